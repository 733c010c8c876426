"""What the scorer ``gaia`` costs, against the plainest program of GAIA's published rule, and what extraction does.

What the longest and worst texts cost is held against one pass over a megabyte, character by character, in the same run.
Where such a pass took 14 ms, the slowest answer took 19 ms, a hostile megabyte 0.6 s and one of prose less than 20 ms;
the bars there were 50 ms, 2 s and 0.5 s, and are those in passes.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import pytest

from aworld_train.reward import gaia as gaia_module
from aworld_train.reward import number as number_module
from aworld_train.reward import texts as texts_module
from aworld_train.reward.extraction import extract
from aworld_train.reward.gaia import gaia
from aworld_train.reward.number import number
from aworld_train.reward.score_types import ScoringContext
from aworld_train.reward.texts import contains, exact, f1
from tests.adversarial import SLOW_PATTERNS, UNITS
from tests.gaia_rule import published_rule

PAIRS = 100_000
MEGABYTE = 1_000_000
SCHEMAS = ["answer", "boxed", "json:a", "json:[0].b", r"regex:x(\d*)", *SLOW_PATTERNS, "last_line"]
MAX_PASSES = 3.5
"""One answer, in passes over a megabyte."""
MAX_HOSTILE_PASSES = 140
"""A megabyte of anything, read by a schema."""
MAX_PLAIN_PASSES = 35
"""A megabyte of what an assistant says."""

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
    """Of the processor, which other programs on the machine do not lengthen much."""
    start = time.process_time()
    for answer, truth in pairs:
        score(answer, truth)
    return time.process_time() - start


@pytest.fixture(scope="module")
def one_pass() -> float:
    """Seconds of a pass over a megabyte that looks at each character."""
    text = "ab, 1" * (MEGABYTE // 5)
    return min(seconds(lambda answer, _: sum(map(str.isalnum, answer)), [(text, "")]) for _ in range(9))


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


# What is repeated to fill the longest text that a scorer looks into.
ADVERSARIAL = {
    "digits": "9",
    "commas": ",",
    "thousands": ",000",
    "semicolons and digits": "1;",
    "points": "1.",
    "slashes": "1/",
    "minus signs": "−",
    "plus signs": "a+",
    "full-width digits": "９",
    "combining marks": "\u0301\u0316",
    "as many marks as are put in order": "a" + "\u0301\u0316" * 15,
    "letters that fold to three": "ΐ",
    "hangul": "각",
    "emoji": "👩\u200d👩\u200d👧\u200d👦",
    "space": " \u00a0",
    "words": "ab ",
}
SCORERS: dict[str, tuple[Callable[[str, str], object], int]] = {
    "gaia": (gaia, gaia_module.MAX_CHARS),
    "number": (partial(number, context=ScoringContext()), number_module.MAX_TEXT_CHARS),
    "exact": (exact, texts_module.MAX_CHARS),
    "f1": (f1, texts_module.MAX_CHARS),
    "contains": (contains, texts_module.MAX_CHARS),
}


@pytest.mark.bench
@pytest.mark.parametrize("name", SCORERS)
def test_no_answer_takes_more_than_a_few_passes_over_a_megabyte(name: str, one_pass: float) -> None:
    score, most = SCORERS[name]
    slowest = (0.0, "")
    for kind, unit in ADVERSARIAL.items():
        text = (unit * most)[: most - 8]
        half, long = text[: most // 2], unit * (MEGABYTE // len(unit))
        others = (f"1,234; {unit}b", f"{text}b", f"{half}b", half, unit, unit[:1], f"b{text}")
        pairs = [(text, other) for other in others] + [(other, text) for other in others]
        for pair in [*pairs, (f"9{text[1:]}", f"{text}b"), (long, text), ("9" * 99 + unit, "1234")]:
            # The least of three is what the answer costs, and not what another program on the machine did.
            slowest = max(slowest, (min(seconds(score, [pair]) for _ in range(3)), kind))
    passes = slowest[0] / one_pass
    print(f"{name}: slowest answer {slowest[0] * 1000:.1f} ms ({slowest[1]}), {passes:.2f} passes")
    assert passes <= MAX_PASSES


@pytest.mark.bench
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_megabyte_of_anything_is_read_in_a_bounded_number_of_passes(schema: str, one_pass: float) -> None:
    slowest = (0.0, "")
    for unit in UNITS:
        text = unit * (MEGABYTE // len(unit))
        slowest = max(slowest, (min(seconds(extract, [(text, schema)]) for _ in range(2)), unit))
    passes = slowest[0] / one_pass
    print(f"{schema}: a megabyte in {slowest[0]:.2f} s at most (of {slowest[1]!r}), {passes:.1f} passes")
    assert passes <= MAX_HOSTILE_PASSES


@pytest.mark.bench
def test_a_megabyte_of_what_an_assistant_says_is_read_in_a_few_passes(one_pass: float) -> None:
    said = 'So f(x) = [1, 2] is "it", {or} so.\n' * (MEGABYTE // 36)
    ends = '<answer>5</answer> \\boxed{5}\n{"a": [{"b": 5}]}\nx5'
    for schema in ("answer", "boxed", "json:a[0].b", r"regex:x(\d*)", "last_line"):
        least = min(seconds(extract, [(said + ends, schema)]) for _ in range(3))
        print(f"{schema}: {least * 1000:.0f} ms, {least / one_pass:.1f} passes")
        assert least <= MAX_PLAIN_PASSES * one_pass
