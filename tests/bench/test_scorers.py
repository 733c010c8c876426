"""What the scorer ``gaia`` costs, against the plainest program of GAIA's published rule, and what extraction does."""

import random
import time
from collections.abc import Callable
from statistics import median

import pytest

from aworld_train.reward.extraction import extract
from aworld_train.reward.gaia import gaia
from tests.adversarial import SLOW_PATTERNS, UNITS
from tests.gaia_rule import published_rule

PAIRS = 100_000
MEGABYTE = 1_000_000
SCHEMAS = ["answer", "boxed", "json:a", "json:[0].b", r"regex:x(\d*)", *SLOW_PATTERNS, "last_line"]
SLOWEST = 0.050
"""Seconds one answer may take."""

WORDS = [
    "Paris",
    "sea gull",
    "St. Petersburg",
    "Ångström",
    "right",
    "backtick",
    "Claude Shannon",
    "b, e",
    "INT. CASTLE",
]


def ground_truth(rng: random.Random) -> str:
    """Four in ten a number, three a text, three a list, about as in GAIA's validation set."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice([str(rng.randrange(10_000)), f"{rng.uniform(0, 1000):.2f}"])
    if kind < 0.7:
        return f"{rng.choice(WORDS)} {rng.choice(WORDS)}".replace(",", "")
    items = [rng.choice([rng.choice(WORDS), str(rng.randrange(100))]) for _ in range(rng.randrange(2, 6))]
    return ", ".join(items)


def answer_to(truth: str, rng: random.Random) -> str:
    """A right one, one that is dressed otherwise, or a wrong one."""
    kind = rng.random()
    if kind < 0.4:
        return truth
    if kind < 0.6:
        return rng.choice([truth.upper(), f"${truth}", f" {truth}.", truth.replace(", ", ";")])
    return rng.choice([ground_truth(rng), f"{truth} km", "I do not know"])


def seconds(score: Callable[[str, str], object], pairs: list[tuple[str, str]]) -> float:
    start = time.perf_counter()
    for answer, truth in pairs:
        score(answer, truth)
    return time.perf_counter() - start


@pytest.mark.bench
@pytest.mark.parametrize(
    "questions", [165, PAIRS], ids=["questions of GAIA's size", "every question another"]
)
def test_gaia_is_as_fast_as_the_published_rule(questions: int) -> None:
    rng = random.Random(11)
    truths = [ground_truth(rng) for _ in range(questions)]
    pairs = [(answer_to(truth, rng), truth) for truth in (truths * (PAIRS // questions + 1))[:PAIRS]]
    rng.shuffle(pairs)
    ratios = [seconds(gaia, pairs) / seconds(published_rule, pairs) for _ in range(5)]
    print(f"gaia: {median(ratios):.2f} of the time of the published rule ({questions} questions)")
    assert median(ratios) <= 1.0


ADVERSARIAL = {
    "digits": "9" * 100_000,
    "digits as many as are read": "9" * 100,
    "nearly a number": "9" * 99 + "x",
    "commas": "," * 4000,
    "thousands": "1" + ",000" * 999,
    "semicolons and digits": "1;" * 2000,
    "points": "1." * 2000,
    "minus signs": "−" * 4000,
    "full-width digits": "９" * 4000,
    "combining marks": "a" + "\u0301\u0316" * 1999,
    "marks in wrong order": "a" + "\u0301" * 2000 + "\u0316" * 1999,
    "marks that just pass": ("a" + "\u0301\u0316" * 15) * 129,
    "letters that fold to three": "ΐ" * 4000,
    "hangul": "각" * 4000,
    "emoji": "👩‍👩‍👧‍👦" * 570,
    "space": " " * 4000,
    "a megabyte": "a" * 1_000_000,
}


@pytest.mark.bench
def test_no_answer_takes_more_than_fifty_milliseconds() -> None:
    slowest = (0.0, "")
    for name, text in ADVERSARIAL.items():
        for answer, truth in ((text, "1,234; b"), (text, text[:-1] + "b"), ("1," * 1000, text), (text, text)):
            # The least of five is what the answer costs, and not what another program on the machine did.
            least = min(seconds(gaia, [(answer, truth + " " * turn)]) for turn in range(5))
            slowest = max(slowest, (least, name))
    print(f"slowest answer: {slowest[0] * 1000:.1f} ms ({slowest[1]})")
    assert slowest[0] <= SLOWEST


@pytest.mark.bench
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_megabyte_of_anything_is_read_within_two_seconds(schema: str) -> None:
    slowest = (0.0, "")
    for unit in UNITS:
        text = unit * (MEGABYTE // len(unit))
        slowest = max(slowest, (min(seconds(extract, [(text, schema)]) for _ in range(2)), unit))
    print(f"{schema}: a megabyte in {slowest[0]:.2f} s at most (of {slowest[1]!r})")
    assert slowest[0] <= 2


@pytest.mark.bench
def test_a_megabyte_of_what_an_assistant_says_is_read_in_milliseconds() -> None:
    said = 'So f(x) = [1, 2] is "it", {or} so.\n' * (MEGABYTE // 36)
    ends = '<answer>5</answer> \\boxed{5}\n{"a": [{"b": 5}]}\nx5'
    for schema in ("answer", "boxed", "json:a[0].b", r"regex:x(\d*)", "last_line"):
        least = min(seconds(extract, [(said + ends, schema)]) for _ in range(3))
        print(f"{schema}: {least * 1000:.0f} ms")
        assert least <= 0.5
