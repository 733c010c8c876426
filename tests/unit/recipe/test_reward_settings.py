"""From a recipe to the settings of scorers, and whether it can score before a run depends on it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.dataset.sources.records import DEFAULT_SCORER
from aworld_train.errors import RewardError
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import RewardSection
from aworld_train.reward.settings import SCORER, CompositeSettings, JudgeModel, JudgeSettings, RewardSettings
from tests.locations import REPOSITORY

JUDGE = (
    "endpoints={big: {url: 'http://there/v1', model: m, price_in: 2, key_variable: JUDGE_KEY, timeout: 5}}"
)
JUDGES = (JUDGE, "reward.judge.models=[big]")
VERL = "def score(data_source, solution_str, ground_truth, extra_info=None, **more): return 1\n"


def recipe(*overrides: str) -> Any:
    return recipes.load({"name": "a"}, list(overrides))


def test_a_recipe_that_says_nothing_leaves_all_to_the_tasks() -> None:
    assert reward_settings(recipe()) == RewardSettings()


def test_all_that_a_recipe_says_is_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "judge.md").write_text("Be fair.")
    found = reward_settings(
        recipe(
            *JUDGES,
            "reward={scorer: composite, answer_schema: boxed, timeout: 7, code_tool: run}",
            f"reward.judge={{concurrency: 3, per_minute: 9, attempts: 2, cache: {tmp_path}/kept}}",
            f"reward.judge.prompt={tmp_path}/judge.md",
            "reward.composite={correct: gaia, weights: {format: 1}, gates: [format], max_chars: 5, max_calls: 6}",
            "env.url=http://tools/mcp",
            "env.servers=[python-server]",
        )
    )
    model = JudgeModel("big", "http://there/v1", "m", "JUDGE_KEY", 5, price_in=2)
    assert found.judge == JudgeSettings((model,), 3, 9, 2, f"{tmp_path}/kept", "Be fair.")
    assert (found.scorer, found.answer_schema, found.timeout) == ("composite", "boxed", 7.0)
    assert found.composite == CompositeSettings("gaia", {"correct": 1.0, "format": 1.0}, ("format",), 5, 6)
    assert (found.tools.url, found.tools.tool, found.tools.servers) == (
        "http://tools/mcp",
        "run",
        ("python-server",),
    )
    assert RewardSettings.from_plain(found.to_plain()) == found


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"\xff", "cannot be read"), (b" \n", "says nothing")],
)
def test_instructions_that_are_none_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "judge.md"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RewardError, match=message) as caught:
        reward_settings(recipe(f"reward.judge.prompt={file}"))
    assert "reward.judge.prompt" in str(caught.value) and str(file) in str(caught.value)


def test_patience_is_for_the_minutes_that_a_turn_may_be_away() -> None:
    def patient(concurrency: int, per_minute: int, models: int = 1) -> float:
        judges = (JudgeModel("a", "u", "m"),) * models
        judge = JudgeSettings(judges, concurrency=concurrency, per_minute=per_minute)
        return RewardSettings(timeout=10, judge=judge).patient().timeout

    assert patient(16, 0) == 10
    assert patient(16, 100) == 70
    assert patient(16, 15) == 130
    assert patient(16, 100, models=2) == 130


@pytest.mark.parametrize(
    ("settings", "named", "asked"),
    [
        (RewardSettings(), ["gaia", None], {"gaia", "number"}),
        (RewardSettings(), [], set()),
        (RewardSettings(scorer="math"), ["gaia"], {"math"}),
        (RewardSettings(scorer="math"), [], {"math"}),
        (RewardSettings(), ["composite", "gaia"], {"composite", "gaia"}),
        (RewardSettings(scorer="composite"), ["llm_judge"], {"composite", "llm_judge"}),
        (
            RewardSettings(scorer="composite", composite=CompositeSettings("f1")),
            ["gaia"],
            {"composite", "f1"},
        ),
    ],
)
def test_who_is_asked_is_known_beforehand(
    settings: RewardSettings, named: list[str | None], asked: set[str]
) -> None:
    assert settings.scorers_asked(named) == asked


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(VERL + "def two(answer, truth): return 1\ndef four(a, b, c, d): return 1\n")
    return file


def test_what_can_score_is_let_through(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k")
    check_rewards(recipe(), ["number", "gaia", f"{own}:two"], ["boxed", r"regex:x=(\d+)", "json:a.b"])
    check_rewards(recipe(*JUDGES), ["llm_judge"])
    check_rewards(recipe(*JUDGES, "reward.scorer=composite"), ["llm_judge"])
    check_rewards(recipe("reward.scorer=composite", f"reward.composite.correct={own}:two"), ["llm_judge"])
    check_rewards(recipe("reward.scorer=math", "reward.answer_schema=boxed"), ["llm_judge"], ["unheard of"])
    check_rewards(recipe(f"reward.function={own}:score"), ["unheard of"], ["unheard of"])


@pytest.mark.parametrize(
    ("overrides", "scorers", "schemas", "message"),
    [
        ([], ["gaja"], [], "Unknown scorer 'gaja'. Did you mean 'gaia'"),
        ([], [], ["boxd"], "'boxd'"),
        ([], ["llm_judge"], [], "nobody judges"),
        (["reward.scorer=llm_judge"], [], [], "nobody judges"),
        (["reward.scorer=composite", "reward.composite.correct=llm_judge"], [], [], "nobody judges"),
        (["reward.scorer=composite"], ["llm_judge"], [], "nobody judges"),
        ([*JUDGES], ["llm_judge"], [], "The judge big needs its key in JUDGE_KEY, which is not set"),
        (["reward.scorer={own}:five"], [], [], "names 'five', which is not in"),
        (["reward.scorer={own}:four"], [], [], "cannot be called with"),
        (["reward.scorer=composite", "reward.composite.correct={own}:four"], [], [], "cannot be called with"),
        (["reward.function={own}:two"], [], [], "cannot be called with the keywords"),
        (["reward.scorer=nowhere/at.py:all"], [], [], "no such file"),
    ],
)
def test_what_cannot_score_is_refused(
    own: Path, overrides: list[str], scorers: list[str], schemas: list[str], message: str
) -> None:
    given = recipe(*(override.replace("{own}", str(own)) for override in overrides))
    with pytest.raises(RewardError) as caught:
        check_rewards(given, scorers, schemas)
    assert message in str(caught.value)


def test_loading_a_recipe_runs_no_code_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')\n")
    program = (
        "from aworld_train import recipe\n"
        "recipe.load({'name': 'a', 'reward': {'scorer': 'own.py:score', 'composite': {'correct': 'own:score'}}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_pages_name_the_scorers_of_tasks_that_name_none() -> None:
    help_text = RewardSection.__dataclass_fields__["scorer"].metadata["help"]
    page = (REPOSITORY / "docs" / "how-to" / "scorer.md").read_text(encoding="utf-8")
    for text in (help_text, " ".join(page.split())):
        assert f"have `{SCORER}`" in text or f"has `{SCORER}`" in text
        assert f"`dataset build` writes `{DEFAULT_SCORER}` where its input names none" in text
