"""GSM8K's final answers scored against themselves and against corrupted ones, where the files are at hand."""

import json
import random
from collections.abc import Callable

import pytest

from aworld_train.reward.gaia import gaia
from aworld_train.reward.number import number
from aworld_train.reward.score_types import ScoringContext
from aworld_train.reward.texts import exact
from tests.gsm8k import FILES, GSM8K, needs_gsm8k

CORRUPTED = 1000

pytestmark = needs_gsm8k

SCORERS: dict[str, Callable[[str, str], float | None]] = {
    "gaia": lambda answer, truth: gaia(answer, truth).value,
    "number": lambda answer, truth: number(answer, truth, ScoringContext()).value,
    "exact": lambda answer, truth: exact(answer, truth).value,
}


@pytest.fixture(scope="module")
def finals() -> list[str]:
    """What stands after ``####``, in all rows."""
    lines = [line for name in FILES for line in (GSM8K / name).read_text("utf-8").splitlines()]
    return [json.loads(line)["answer"].rpartition("####")[2].strip() for line in lines]


@pytest.mark.parametrize("scorer", SCORERS)
def test_every_final_answer_is_right(scorer: str, finals: list[str]) -> None:
    assert len(finals) > 8000
    assert [final for final in finals if SCORERS[scorer](final, final) != 1.0] == []


@pytest.mark.parametrize("scorer", SCORERS)
def test_no_corrupted_answer_is_right(scorer: str, finals: list[str]) -> None:
    rng = random.Random(8292)
    pairs = [(corrupted(final, rng), final) for final in rng.sample(finals, CORRUPTED)]
    assert [pair for pair in pairs if SCORERS[scorer](*pair) != 0.0] == []


def corrupted(final: str, rng: random.Random) -> str:
    """Another number, or none: a digit changed or put in, the sign turned, ten times as much, a word added."""
    place = rng.choice([index for index, character in enumerate(final) if character.isdigit()])
    digit = final[place]
    other = rng.choice([other for other in "123456789" if other != digit])
    value = float(final.replace(",", ""))
    return rng.choice(
        [
            final[:place] + other + final[place + 1 :],
            final[: place + 1] + other + final[place + 1 :],
            f"-{final}" if value > 0 else f"{1 - value:g}",
            f"{value + rng.choice([1, -1, 10, 0.5]):.10g}",
            f"{value * 10:.12g}" if value else "10",
            f"{final} apples",
            f"{final} or {other}",
            "nan",
            "",
        ]
    )
