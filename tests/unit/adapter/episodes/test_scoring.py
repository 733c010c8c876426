"""The reward that VeRL calls: the scorer of a task or the function of a recipe, and the facts of the episode."""

import asyncio
import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import asdict

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.scoring import reward_plan, score_episode

ARGUMENTS = "data_source, solution_str, ground_truth, extra_info=None"
SAID = "So it is <answer>4</answer>"


@pytest.fixture
def call(tmp_path: Path) -> Any:
    """Scores an episode with the settings that a recipe writes into its run folder."""

    def call(
        *overrides: str, truth: str = "4", elsewhere: Path | None = None, **extra_info: Any
    ) -> dict[str, Any]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"  # a run's file never changes
        recipe = recipes.load({"name": "a"}, list(overrides))
        file.write_text(yaml.safe_dump(reward_plan(recipe)))
        info = {"assistant_text": SAID, **extra_info}
        with chdir(elsewhere or "."):  # a run works in its folder, not where the user is
            score = asyncio.run(
                score_episode(
                    str(file),
                    data_source="x",
                    response=f"<answer>9</answer> {SAID}",
                    ground_truth=truth,
                    extra_info=info,
                )
            )
        return {**score.figures(), "score": score.value, "scoring": asdict(score.result)}

    return call


def written(tmp_path: Path, body: str) -> str:
    file = tmp_path / "scorer.py"
    file.write_text(f"import asyncio, json, time\n{body}\n")
    return f"{file}:score"


def test_the_rows_scorer_decides_and_the_episodes_facts_come_with_it(call: Any) -> None:
    result = call(scorer="gaia", tool_call_count=2, tool_error_count=1)
    scoring = result.pop("scoring")
    assert result == {
        "score": 1.0,
        "acc": 1.0,
        "answered": 1.0,
        "used_tool": 1.0,
        "tool_calls": 2.0,
        "tool_errors": 1.0,
    }
    assert (scoring["scorer"], scoring["outcome"], scoring["extracted"]) == ("gaia", "scored", "4")


def test_a_scorer_in_the_recipe_takes_the_place_of_the_rows(call: Any) -> None:
    assert call()["scoring"]["scorer"] == "number"
    result = call(
        "reward.scorer=contains", "reward.answer_schema=last_line", scorer="gaia", answer_schema="boxed"
    )
    assert (result["scoring"]["scorer"], result["scoring"]["extracted"]) == ("contains", SAID)


def test_where_the_loop_does_not_say_what_was_said_tool_text_is_cut_out(call: Any) -> None:
    result = call("reward.scorer=exact", assistant_text=None)
    assert result["scoring"]["extracted"] == "4"


def test_no_answer_is_a_score_of_0_and_says_so(call: Any) -> None:
    result = call(assistant_text="I cannot tell.")
    assert result.pop("scoring")["outcome"] == "no_answer"
    assert result == {
        "score": 0.0,
        "acc": 0.0,
        "answered": 0.0,
        "used_tool": 0.0,
        "tool_calls": 0.0,
        "tool_errors": 0.0,
    }


def test_every_scorer_has_the_same_keys_so_that_verl_can_put_rows_together(call: Any) -> None:
    composite = call("reward.scorer=composite", "reward.composite.weights={correct: 1, format: 0.5}")
    assert set(composite) == set(call(scorer="f1")) == set(call())
    assert composite["score"] == 1.5
    assert composite["acc"] == composite["scoring"]["parts"]["correct"] == 1.0
    assert composite["scoring"]["parts"]["format"] == 1.0


def test_composite_has_the_tasks_own_scorer_say_what_is_right(call: Any) -> None:
    said = {"assistant_text": "<answer>the 4</answer>"}
    right = {
        scorer: call("reward.scorer=composite", scorer=scorer, **said)["acc"]
        for scorer in ("contains", "number")
    }
    assert right == {"contains": 1.0, "number": 0.0}


def test_a_function_of_ones_own_with_verls_signature_takes_the_place_of_scorers(
    call: Any, tmp_path: Path
) -> None:
    own = written(
        tmp_path,
        f"def score({ARGUMENTS}):\n    return {{'score': 0.5, 'acc': 1, 'style': 2, 'note': 'no number'}}",
    )
    result = call(f"reward.function={own}", scorer="gaia")
    assert (result["score"], result["acc"], result["scoring"]["scorer"]) == (0.5, 1.0, own)
    assert result["scoring"]["parts"] == {"acc": 1.0, "style": 2.0}


def test_a_function_may_return_a_number_and_may_be_async(call: Any, tmp_path: Path) -> None:
    own = written(
        tmp_path, f"async def score({ARGUMENTS}):\n    return float(solution_str.count('<answer>'))"
    )
    result = call(f"reward.function={own}")
    assert (result["score"], result["acc"]) == (2.0, 2.0)


@pytest.mark.parametrize("spec", ["function", "scorer"])
def test_what_is_stuck_is_named_and_has_no_score(call: Any, tmp_path: Path, spec: str) -> None:
    arguments = ARGUMENTS if spec == "function" else "answer, ground_truth"
    own = written(tmp_path, f"def score({arguments}):\n    time.sleep(600)")
    result = call(f"reward.{spec}={own}", "reward.timeout=0.2")
    assert set(result) == {"score", "scoring"} and result["score"] is None, (
        "without a score there are no figures"
    )
    assert result["scoring"]["outcome"] == "timeout"
    assert "scorer.py:score took longer than 0.2 seconds" in result["scoring"]["cause"]


def test_what_raises_is_named_and_has_no_score(call: Any, tmp_path: Path) -> None:
    own = written(tmp_path, f"def score({ARGUMENTS}):\n    return 1 / 0")
    scoring = call(f"reward.function={own}")["scoring"]
    assert (scoring["score"], scoring["outcome"]) == (None, "error")
    assert "ZeroDivisionError" in scoring["cause"]


def test_a_judge_that_cannot_be_reached_abstains(call: Any) -> None:
    result = call(
        "endpoints={judge: {url: 'http://127.0.0.1:9/v1', model: m}}",
        "reward.judge={models: [judge], attempts: 1}",
        scorer="llm_judge",
    )
    assert result["score"] is None
    assert result["scoring"]["outcome"] == "abstained"


def test_an_agent_of_several_may_have_a_score_of_its_own(call: Any, tmp_path: Path) -> None:
    own = written(tmp_path, f"def score({ARGUMENTS}):\n    return {{'score': 1, 'score/critic': -1}}")
    assert call(f"reward.function={own}")["score/critic"] == -1.0


def test_a_function_is_loaded_once_and_its_loading_is_not_in_its_time(call: Any, tmp_path: Path) -> None:
    own = written(
        tmp_path,
        f"time.sleep(6)\ncalls = []\ndef score({ARGUMENTS}):\n    calls.append(1)\n    return len(calls)",
    )
    overrides = (f"reward.function={own}", "reward.timeout=5")
    assert [call(*overrides)["score"] for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_scorer_that_a_task_names_by_its_file_is_found_from_the_run_folder(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "def score(answer, truth):\n    return 0.25")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    result = call(scorer="scorer.py:score", elsewhere=tmp_path / "run")
    assert (result["score"], result["scoring"]["scorer"]) == (0.25, f"{tmp_path}/scorer.py:score")


def test_code_is_tested_in_the_environment_of_the_run(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:9/mcp")
    recipe = recipes.load({"name": "a"}, ["reward.code_tool=run_it", "env.servers=[python]"])
    assert reward_plan(recipe)["tools"] == {
        "url": None,
        "tool": "run_it",
        "argument": "code",
        "servers": ("python",),
    }
    scoring = call(scorer="code_tests", truth='{"tests": "assert x"}')["scoring"]
    assert scoring["outcome"] == "abstained" and "the tool environment was lost" in scoring["cause"]


@pytest.mark.parametrize(
    ("facts", "query"),
    [
        ({"query": "of the episode", "question": "of the task"}, "of the episode"),
        ({"question": "of the task"}, "of the task"),
        ({}, ""),
    ],
)
def test_a_scorer_gets_the_question_and_the_facts_of_the_episode(
    call: Any, tmp_path: Path, facts: dict[str, str], query: str
) -> None:
    own = written(
        tmp_path,
        "def score(answer, truth, context):\n"
        "    with open(__file__ + '.json', 'w') as file:\n"
        "        json.dump([context.query, {**context.info}, {**context.episode}], file)\n"
        "    return 1.0",
    )
    assert call(f"reward.scorer={own}", **facts)["score"] == 1.0
    got_query, *infos = json.loads((tmp_path / "scorer.py.json").read_text())
    assert got_query == query
    assert all(info.items() >= {"assistant_text": SAID, **facts}.items() for info in infos)


def test_the_files_of_reward_code_are_named_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    function = reward_plan(recipes.load({"reward": {"function": "scorer.py:score"}}))
    composite = reward_plan(
        recipes.load({"reward": {"scorer": "composite", "composite": {"correct": "scorer.py:score"}}})
    )
    assert function["function"] == composite["composite"]["correct"] == f"{tmp_path}/scorer.py:score"
    assert (function["scorer"], composite["function"], composite["directory"]) == (None, None, str(tmp_path))
