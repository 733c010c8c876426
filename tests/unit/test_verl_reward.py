"""The reward that VeRL calls: the recipe's function with a time limit, and the episode's facts beside the score."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from aworld_train.adapter.verl.reward import score


def call(function: str, *, seconds: float = 5, **extra_info: Any) -> dict[str, Any]:
    return asyncio.run(
        score(
            "x",
            "<answer>4</answer>",
            "4",
            {"assistant_text": "<answer>4</answer>", **extra_info},
            function,
            seconds,
        )
    )


def written(tmp_path: Path, body: str) -> str:
    file = tmp_path / "scorer.py"
    file.write_text(f"import asyncio, time\n{body}\n")
    return f"{file}:score"


ARGUMENTS = "data_source, solution_str, ground_truth, extra_info=None"


def test_the_shipped_reward_comes_with_the_episodes_facts() -> None:
    result = call("aworld_train.reward.answer:score_answer", tool_call_count=2, tool_error_count=1)
    assert result == {
        "score": 1.0,
        "acc": 1.0,
        "answered": 1.0,
        "used_tool": 1.0,
        "tool_calls": 2.0,
        "tool_errors": 1.0,
    }


def test_a_function_may_return_a_number_and_may_be_async(tmp_path: Path) -> None:
    result = call(written(tmp_path, f"async def score({ARGUMENTS}):\n    return 0.5"))
    assert result == {"score": 0.5, "acc": 0.5, "used_tool": 0.0, "tool_calls": 0.0, "tool_errors": 0.0}


def test_a_function_that_takes_too_long_is_named(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"scorer\.py:score took longer than 0\.1 seconds"):
        call(written(tmp_path, f"async def score({ARGUMENTS}):\n    await asyncio.sleep(60)"), seconds=0.1)
    assert time.monotonic() - began < 30
