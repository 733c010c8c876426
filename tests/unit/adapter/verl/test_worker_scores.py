"""Episodes and their scores inside VeRL's worker: one that cannot be scored is left out, named and counted alone."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import get_custom_reward_fn

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.scoring import reward_plan
from aworld_train.adapter.verl.compose import compose
from tests.agent_loops import END, TOKENIZER, sampled
from tests.episode_workers import OneAnswerLoop, Queue, TwoRows, lines, play, queue_in_place, worker

RIGHT, WRONG = sampled("<answer>42</answer>" + END), sampled("<answer>41</answer>" + END)
TASK = {
    "data_source": "arithmetic",
    "reward_model": {"style": "rule", "ground_truth": "42"},
    "extra_info": {"index": 0, "scorer": "number", "answer_schema": "answer", "attachments": None},
}
# Says nothing of 41, gets stuck at 13 and is wrong about the rest.
OWN = """
import time

def judge(answer, truth):
    if answer == "13":
        time.sleep(600)
    return {"score": None if answer == "41" else float(answer == truth), "style": 0.5}
"""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> Queue:
    return queue_in_place(monkeypatch)


@pytest.fixture
def scoring(run_dir: Path) -> Callable[..., Any]:
    """A worker whose episodes are scored as a recipe says, by VeRL's own reward manager."""

    def scoring(
        episodes: list[Any], *overrides: str, n: int, min_healthy: int = 0, loop: Any = OneAnswerLoop
    ) -> Any:
        base = {"name": "a", "model": {"path": "m"}, "dataset": {"train": "t.parquet", "val": "v.parquet"}}
        recipe = recipes.load(base, list(overrides))
        (run_dir / "reward.yaml").write_text(yaml.safe_dump(reward_plan(recipe)))
        config = OmegaConf.create({"reward": compose(recipe, run_dir)["reward"]})
        manager = NaiveRewardManager(config, TOKENIZER, get_custom_reward_fn(config))
        made = worker(episodes, n=n, min_healthy=max(min_healthy, 1), loop=loop)
        made._min_healthy = min_healthy
        # In place of the actor of Ray's that the manager lives in.
        made.reward_loop_worker_handles = [
            SimpleNamespace(compute_score=SimpleNamespace(remote=last(manager)))
        ]
        return made

    return scoring


def last(manager: NaiveRewardManager) -> Callable[[Any], Any]:
    """Asks it for the score of a copy, as Ray makes one: it writes into what it is given."""
    return lambda data: manager.run_single(deepcopy(data[-1:]))


def own(folder: Path) -> str:
    (folder / "own.py").write_text(OWN)
    return f"reward.scorer={folder}/own.py:judge"


async def test_a_score_comes_with_its_scorer_and_parts_and_verl_sees_numbers_alone(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    await play(scoring([RIGHT, WRONG], "reward.scorer=composite", n=2), **TASK)
    assert queue.sessions("task") == ["0", "1"]
    right, wrong = sorted(lines(run_dir), key=lambda line: -line["reward"])
    assert (right["reward"], right["scorer"], right["scoring"]) == (1.0, "composite", "scored")
    assert (right["parts"]["correct"], wrong["parts"]["correct"]) == (1.0, 0.0)
    assert right["scores"]["acc"] == 1.0 and "scoring" not in right["scores"]


async def test_an_episode_of_several_rows_has_one_score(queue: Queue, scoring: Any, run_dir: Path) -> None:
    await play(scoring([RIGHT], n=1, loop=TwoRows), **TASK)
    (line,) = lines(run_dir)
    assert (line["reward"], line["scorer"], queue.rows) == (1.0, "number", ["task_0_0", "task_0_1"])


async def test_an_episode_whose_scorer_abstains_is_left_out_alone_and_says_why(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    await play(scoring([RIGHT, WRONG, RIGHT], own(run_dir), n=3), **TASK)
    assert len(queue.sessions("task")) == 2
    assert queue.status == {"task": "finished"}
    (left_out,) = [line for line in lines(run_dir) if "reward" not in line]
    assert (left_out["outcome"], left_out["treatment"]) == ("answered", "dropped")
    assert left_out["scoring"] == "abstained" and left_out["cause"].endswith(
        "own.py:judge abstained without a reason"
    )
    assert left_out["parts"] == {"style": 0.5}


async def test_a_stuck_scorer_is_named_and_costs_its_own_episode(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    stuck = sampled("<answer>13</answer>" + END)
    await play(scoring([RIGHT, stuck], own(run_dir), "reward.timeout=0.5", n=2), **TASK)
    assert len(queue.sessions("task")) == 1
    (left_out,) = [line for line in lines(run_dir) if "reward" not in line]
    assert left_out["scoring"] == "timeout" and "own.py:judge took longer than 0.5" in left_out["cause"]


async def test_an_episode_without_a_score_is_no_healthy_one_of_its_group(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    await play(scoring([RIGHT, WRONG, RIGHT], own(run_dir), n=2, min_healthy=2), **TASK)
    assert queue.sessions("task") == ["0", "1"]
    assert sorted(line["scoring"] for line in lines(run_dir)) == ["abstained", "scored", "scored"]


async def test_an_episode_without_a_score_is_left_out_of_validation_too(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    await play(scoring([RIGHT, WRONG], own(run_dir), n=2), validate=True, **TASK)
    assert len(queue.sessions("task")) == 1


async def test_doubts_about_an_episode_are_kept_with_what_it_takes_to_look_at_it(
    queue: Queue, scoring: Any, run_dir: Path
) -> None:
    await play(scoring([RIGHT, WRONG], n=2), **TASK)
    right, wrong = sorted(lines(run_dir), key=lambda line: -line["reward"])
    assert right["suspicions"] == ["right_without_tool"]
    assert right["look"] == {
        "query": "What is 6*7?",
        "said": "<answer>42</answer>",
        "extracted": "42",
        "ground_truth": "42",
    }
    assert "suspicions" not in wrong
