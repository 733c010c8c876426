"""What is right is right and what is wrong is wrong, however it is written: by kind, and as the documentation says."""

import asyncio
import re

import pytest

from aworld_train.reward.scoring import score, score_now
from tests.locations import REPOSITORY
from tests.written_answers import KINDS, Pair, pairs

YES, NO = "yes", "no"


@pytest.mark.parametrize("kind", KINDS)
async def test_answers_have_their_scores(kind: str) -> None:
    of_kind = [pair for pair in pairs() if pair.kind == kind]
    assert {pair.score for pair in of_kind} == {0.0, 1.0}
    wrong: list[tuple[Pair, object]] = []
    for start in range(0, len(of_kind), 64):
        part = of_kind[start : start + 64]
        results = await asyncio.gather(
            *(
                score(
                    pair.text,
                    ground_truth=pair.truth,
                    scorer=pair.scorer,
                    answer_schema=pair.schema,
                    query=pair.question,
                )
                for pair in part
            )
        )
        wrong += [
            (pair, result)
            for pair, result in zip(part, results, strict=True)
            if (result.score, result.cause) != (pair.score, None)
        ]
    assert not wrong


def documented() -> list[tuple[str, str, str, str]]:
    """Of the table of notations: notation, number, scorer, and whether it is that number to this scorer."""
    page = (REPOSITORY / "docs" / "how-to" / "scorer.md").read_text(encoding="utf-8")
    head, *rows = re.search(r"(\| written \|.*?\n)\|[-|]+\n((?:\|.*\n)+)", page)[0].splitlines()  # type: ignore[index]
    scorers = re.findall("`([a-z]+)`", head)
    found = []
    for row in rows[1:]:
        written, number, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
        for notation in re.findall(r"``? ?(.+?) ?``?(?:,|$)", written):
            found += [(notation, number, scorer, cell) for scorer, cell in zip(scorers, cells, strict=True)]
    return found


def test_the_documentation_says_what_is_read_as_a_number() -> None:
    rows = documented()
    assert len(rows) > 100
    for notation, number, scorer, cell in rows:
        result = score_now(f"<answer>{notation}</answer>", ground_truth=number, scorer=scorer)
        assert cell in (YES, NO) and result.score == float(cell == YES), (notation, number, scorer, result)
