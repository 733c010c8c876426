"""Right and wrong answers by kind, from ``data/answers.jsonl``: a line is a ground truth with its answers.

The kinds are those of public reports by users of other graders. A new fault is a new answer, beside wrong ones that its
repair must not accept. Answers stand in ``<answer>``, except those of the kind ``texts``, which are whole texts.
"""

import json
from functools import cache
from typing import NamedTuple

from tests.locations import REPOSITORY

WHOLE_TEXTS = "texts"


class Pair(NamedTuple):
    """An assistant's text, its ground truth, and the score that it gets."""

    kind: str
    scorer: str
    truth: str
    text: str
    score: float
    schema: str
    question: str


@cache
def pairs() -> list[Pair]:
    """All pairs, one for each scorer that a line names."""
    lines = (REPOSITORY / "tests" / "data" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Pair(
            line["kind"],
            scorer,
            line["truth"],
            answer if line["kind"] == WHOLE_TEXTS else f"<answer>{answer}</answer>",
            score,
            line.get("schema", "answer"),
            line.get("question", ""),
        )
        for line in map(json.loads, lines)
        for scorer in line["scorers"].split()
        for score, answers in ((1.0, line["right"]), (0.0, line["wrong"]))
        for answer in answers
    ]


KINDS = tuple(dict.fromkeys(pair.kind for pair in pairs()))
