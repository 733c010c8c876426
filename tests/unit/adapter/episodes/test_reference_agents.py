"""The oracle is right in every task and the null agent in none, through the building, playing and scoring of a run."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.player import EpisodePlayer, FinishedEpisode, episode_facts
from aworld_train.adapter.episodes.record import open_record
from aworld_train.adapter.episodes.reference_agents import NullAgent, OracleAgent, check_oracle
from aworld_train.adapter.episodes.scoring import EpisodeScore, reward_plan, score_episode
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.dataset import build
from aworld_train.episode.outcome import Outcome
from aworld_train.errors import UsageError
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.rollout.model import LanguageModel
from tests.judge_server import JudgeServer

SCHEMAS = (
    "answer",
    "boxed",
    "last_line",
    "json:answer",
    'json:results[1]["the answer"].value[-2]',
    r"regex:(?i)final answer\s*[:=]\s*(?P<answer>.+)",
    r"regex:^(?:So,? )?#{4}\s+(.*)$",
    r"regex:(?s).*",
)
ANSWERS = {
    "number": ["42", "-1,234.5", "$1,000", "0.333333", "1/3", "50%", "twelve"],
    "gaia": ["17", "34689", "a, b, c", "3.5 km", "St. Petersburg", "1,234; 5", "C++", "Ελλάδα", "-5 °C"],
    "math": [
        "1/2", r"\frac{3}{4}", r"\{1, 2\}", "(1, 2]", "x^2 + 1", r"\sqrt{2}", "50%", "3 \\text{ cm}", r"90^\circ",
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\text{Monday}", "x \\in [-2, 7]", "10:30", "12,345",
    ],
    "exact": ["Paris", "two  spaces", "line one\nline two", "“quoted”", "<b>bold</b>", "B", "北京", "42"],
    "exact_case": ["McDonald", "don't", "π", "x{y}"],
    "f1": ["the quick brown fox", "The The", "42", "Größe"],
    "contains": ["5", "-5", "Denver Broncos", "北京"],
    "llm_judge": ["Paris", "VERDICT: INCORRECT"],
}  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """A row for each scorer, right answer and schema."""
    return [
        {
            "id": f"{scorer}-{number}-{schema}",
            "query": f"What is answer {number} of {scorer} in {schema}?",
            "answer": answer,
            "scorer": scorer,
            "answer_schema": schema,
        }
        for scorer, answers in ANSWERS.items()
        for number, answer in enumerate(answers)
        for schema in SCHEMAS
    ]


def built(folder: Path, rows: Sequence[Mapping[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The tasks of a dataset that is built from lines of JSON."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tasks_of(folder, "jsonl", files=[file], **options)


def tasks_of(folder: Path, source: str, **options: Any) -> list[dict[str, Any]]:
    build(source, folder / "data", splits={"test": 1}, strict=True, **options)
    tasks: list[dict[str, Any]] = pq.read_table(folder / "data/test.parquet").to_pylist()
    assert tasks
    return tasks


def evaluated(
    kind: type[EpisodeAgent],
    tasks: Sequence[Mapping[str, Any]],
    folder: Path,
    recipe: str | None = None,
    **sections: Any,
) -> list[tuple[FinishedEpisode, EpisodeScore]]:
    """Each task as it is played and scored in a run of the sections, or of a ready recipe."""
    loaded = recipes.load(recipe or {"name": "a", **sections})
    reward = folder / f"{len(list(folder.iterdir()))}.yaml"  # a run's file never changes
    reward.write_text(yaml.safe_dump(reward_plan(loaded)))
    settings = settings_from(episode_settings(loaded))
    agent = OracleAgent(settings, reward_settings(loaded)) if kind is OracleAgent else kind(settings)
    player = EpisodePlayer(settings, agent)

    async def one(task: Mapping[str, Any]) -> tuple[FinishedEpisode, EpisodeScore]:
        open_record(0, True, task["extra_info"]["index"])
        played = {**task, "raw_prompt": task["prompt"]}
        finished = await player.play(
            cast(LanguageModel, None),
            played,
            {},
            model_name="none",
            max_prompt_tokens=1,
            max_response_tokens=1,
        )
        score = await score_episode(
            str(reward),
            data_source=task["data_source"],
            response="",
            ground_truth=task["reward_model"]["ground_truth"],
            extra_info={**task["extra_info"], **episode_facts(finished)},
        )
        return finished, score

    async def all_of_them() -> list[tuple[FinishedEpisode, EpisodeScore]]:
        return [await one(task) for task in tasks]

    return asyncio.run(all_of_them())


def assert_sound(
    tasks: Sequence[Mapping[str, Any]], folder: Path, recipe: str | None = None, **sections: Any
) -> None:
    """The oracle has every point and the null agent none."""
    for kind, value in ((OracleAgent, 1.0), (NullAgent, 0.0)):
        results = evaluated(kind, tasks, folder, recipe, **sections)
        wrong = [
            (task["extra_info"]["id"], task["reward_model"]["ground_truth"], finished.result.answer, score)
            for task, (finished, score) in zip(tasks, results, strict=True)
            if score.value != value or score.accuracy != value
        ]
        assert wrong == [], kind
        assert {finished.result.outcome for finished, _ in results} == {Outcome.answered}
        assert {finished.result.cause for finished, _ in results} == {None}
        assert all(finished.is_scored for finished, _ in results)


def judged_by(server: JudgeServer) -> dict[str, Any]:
    return {
        "reward": {"judge": {"models": ["judge"]}},
        "endpoints": {"judge": {"url": server.url, "model": "judge"}},
    }


def test_every_scorer_with_every_answer_schema(tmp_path: Path) -> None:
    with JudgeServer() as server:
        assert_sound(built(tmp_path, cases()), tmp_path, **judged_by(server))


def test_calculations_and_problems(tmp_path: Path) -> None:
    assert_sound(tasks_of(tmp_path, "arithmetic", limit=50), tmp_path)
    line = {"question": "Ann has 3 apples and eats 1. How many are left?", "answer": "3-1=<<3-1=2>>2\n#### 2"}
    file = tmp_path / "gsm8k.jsonl"
    file.write_text(json.dumps(line) + "\n")
    for asked in ("annotations", "questions"):
        for schema in ("answer", "boxed"):
            tasks = tasks_of(tmp_path, "gsm8k", files=[file], tasks=asked, answer_schema=schema)
            assert_sound(tasks, tmp_path)


@pytest.mark.parametrize("schema", ["answer", "boxed", "last_line"])
def test_questions_in_gaias_form(tmp_path: Path, schema: str) -> None:
    answers = [
        "17",
        "egalitarian",
        "132, 133, 134",
        "Braintree, Honolulu",
        "0.1777",
        "$89,706.00",
        "3.1.3.1; 1.11.1.7",
    ]
    rows = [
        {
            "task_id": str(n),
            "Question": f"Question {n}?",
            "Level": n % 3 + 1,
            "Final answer": answer,
            "file_name": "",
        }
        for n, answer in enumerate(answers)
    ]
    part = tmp_path / "gaia/2023/validation"
    part.mkdir(parents=True)
    (part / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_sound(tasks_of(tmp_path, "gaia", files=[tmp_path / "gaia"], answer_schema=schema), tmp_path)


def test_choices_and_several_right_answers(tmp_path: Path) -> None:
    rows = [
        {"query": "Which is even?", "choices": ["1", "2", "3"], "answer": "B"},
        {"query": "Who won?", "answer": ["Denver Broncos", "Broncos"], "scorer": "exact"},
        {"query": "Who won again?", "answer": ["Denver Broncos", "Broncos"], "scorer": "llm_judge"},
    ]
    with JudgeServer() as server:
        tasks = built(tmp_path, rows)
        assert_sound([task for task in tasks if task["extra_info"]["scorer"] == "exact"], tmp_path)
        [judged] = [task for task in tasks if task["extra_info"]["scorer"] == "llm_judge"]
        [(finished, _)] = evaluated(OracleAgent, [judged], tmp_path, **judged_by(server))
        assert finished.result.answer == "<answer>Denver Broncos</answer>"
        assert server.requests[0].texts["reference"] == "any one of these:\n- Denver Broncos\n- Broncos"


@pytest.mark.parametrize("name", [name for name in recipes.shipped() if recipes.is_benchmark(name)])
def test_each_benchmark_that_ships_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    answers = {
        "benchmarks/math": [
            r"\frac{1}{2}",
            r"\left( 3, \frac{\pi}{2} \right)",
            "p - q",
            r"\text{Evelyn}",
            r"3\sqrt{13}",
        ],
        "benchmarks/gaia": ["17", "a, b", "St. Petersburg"],
        "benchmarks/gsm8k": ["18", "70,000", "2.5"],
    }.get(name, ["Paris", "42", "北京大学", "C", "between 1990 and 1995"])
    rows = [{"query": f"Question {n}?", "answer": answer} for n, answer in enumerate(answers)]
    scorer = {"benchmarks/gaia": "gaia", "benchmarks/gsm8k": "math"}.get(name)
    with JudgeServer() as server:
        monkeypatch.setenv("JUDGE_URL", server.url)
        monkeypatch.setenv("JUDGE_API_KEY", "sk-1")
        monkeypatch.chdir(tmp_path)  # with the kept verdicts
        assert_sound(built(tmp_path, rows, scorer=scorer), tmp_path, name)


def test_a_right_answer_that_the_form_cannot_hold_is_no_wrong_one(tmp_path: Path) -> None:
    tasks = built(
        tmp_path,
        [
            {
                "id": "a",
                "query": "One?",
                "answer": "</answer>{",
                "scorer": "exact",
                "answer_schema": "answer",
            },
            {"id": "b", "query": "Two?", "answer": "{1", "scorer": "exact", "answer_schema": "boxed"},
            {"id": "c", "query": "Three?", "answer": "Paris", "answer_schema": "regex:([A-D])"},
        ],
    )
    for finished, _ in evaluated(OracleAgent, tasks, tmp_path):
        assert finished.result.outcome is Outcome.agent
        assert "cannot hold the task's right answer" in (finished.result.cause or "")


def test_of_several_right_answers_one_that_the_form_holds_is_given(tmp_path: Path) -> None:
    rows = [{"query": "Which?", "answer": ["left {", "brace"], "answer_schema": "boxed"}]
    assert_sound(built(tmp_path, rows), tmp_path)


def test_a_schema_and_a_scorer_of_the_recipe_take_the_place_of_the_tasks(tmp_path: Path) -> None:
    tasks = built(
        tmp_path, [{"query": "How many?", "answer": "42", "scorer": "exact", "answer_schema": "boxed"}]
    )
    sections = {"reward": {"scorer": "number", "answer_schema": "json:n"}}
    [(finished, _)] = evaluated(OracleAgent, tasks, tmp_path, **sections)
    assert finished.result.answer == '{"n": "42"}'
    assert_sound(tasks, tmp_path, **sections)


def test_a_weighted_sum_may_pay_for_saying_nothing_and_its_accuracy_does_not(tmp_path: Path) -> None:
    tasks = built(tmp_path, [{"query": "How many?", "answer": "42", "scorer": "number"}])
    composite = {
        "scorer": "composite",
        "composite": {"weights": {"correct": 1.0, "length": 0.1, "cost": 0.1}},
    }
    [(silent, nothing)] = evaluated(NullAgent, tasks, tmp_path, reward=composite)
    assert silent.result.answer == ""
    assert (nothing.value, nothing.accuracy) == (pytest.approx(0.2), 0.0)
    [(_, right)] = evaluated(OracleAgent, tasks, tmp_path, reward=composite)
    assert (right.value, right.accuracy) == (pytest.approx(1.2), 1.0)
    composite["composite"]["weights"] = {"correct": 1.0}  # type: ignore[index]
    assert_sound(tasks, tmp_path, reward=composite)


@pytest.mark.parametrize("scorer", [*ANSWERS, None])
@pytest.mark.parametrize("truth", ["", " ", "?", "-"])
def test_where_the_right_answer_is_missing_or_hidden_nothing_is_right(
    tmp_path: Path, scorer: str | None, truth: str
) -> None:
    """`dataset build` leaves such rows out; a file of another program may have them."""
    info = {"index": 0, "id": "x", "scorer": scorer}
    task = {
        "data_source": "other",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"ground_truth": truth},
    }
    for schema in ("last_line", "regex:.*", "answer"):
        row = {**task, "extra_info": {**info, "answer_schema": schema}}
        [(_, score)] = evaluated(NullAgent, [row], tmp_path)
        assert score.value == 0.0
        if scorer != "llm_judge":
            [(_, score)] = evaluated(OracleAgent, [row], tmp_path)
            assert score.value == 0.0


def test_a_program_has_no_right_answer_in_its_row(tmp_path: Path) -> None:
    recipe = recipes.load({"name": "a"})
    with pytest.raises(UsageError, match="have tests and no program that passes them"):
        check_oracle(reward_settings(recipe), ["number", "code_tests"])
    check_oracle(reward_settings(recipe), ["number", None, "agentcpm"])
    tasks = built(tmp_path, [{"query": "Add.", "answer": '{"tests": "assert f"}', "scorer": "code_tests"}])
    settings = settings_from(episode_settings(recipe))
    with pytest.raises(UsageError, match="have tests and no program"):
        asyncio.run(
            OracleAgent(settings, reward_settings(recipe)).play([], tasks[0], cast(Any, None), "none")
        )
    composite = recipes.load({"name": "a", "reward": {"scorer": "composite"}})
    with pytest.raises(UsageError, match="have tests and no program"):
        check_oracle(reward_settings(composite), ["code_tests"])


def test_an_agent_that_should_have_asked_has_still_failed(tmp_path: Path) -> None:
    class Silent(NullAgent):
        asks_model = True

    tasks = built(tmp_path, [{"query": "How many?", "answer": "42"}])
    [(finished, _)] = evaluated(Silent, tasks, tmp_path)
    assert finished.result.outcome is Outcome.agent and not finished.is_scored
    assert "without asking the model" in (finished.result.cause or "")


def test_no_tool_server_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    assert_sound(built(tmp_path, [{"query": "How many?", "answer": "42"}]), tmp_path)
