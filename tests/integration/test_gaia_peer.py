"""`gaia` beside GAIA's own scorer (Apache 2.0), on every pair of 66 answers of GAIA's kinds.

GAIA's scorer is read from the wheel of evalscope, which has a copy. The list below says where it is wrong, and why.
"""

import logging
import re
import string
from functools import cache
from pathlib import Path
from typing import Any

from tests.gaia_rule import published_rule
from tests.peer_functions import load_functions
from tests.source_packages import wheel_folder
from tests.suites import Right, Verdict, check_disagreements, score_by_command

EVALSCOPE = ("evalscope", "1.14.1", "ae4bb15908862d6ae22c9ffe2af3c11e8f446a0ea798912870178f4347ef90c4")
ANSWERS = (
    # Numbers, and what looks like one.
    "17", "17.0", "+17", "-17", "seventeen", "1234", "1,234", "1 234", "1.234", "0.5", ".5", "1/2", "12", "1e3", "1000",
    "17 km", "17 thousand", "17000", "1,234,567", "1234567", "1,23", "123",
    # Amounts of money, shares, temperatures.
    "$17", "17 $", "€17", "17 USD", "$1,234", "$17.50", "17.5", "50%", "50 %", "50", "50 percent", "-5 °C", "5 °C", "5",
    # Dates and times.
    "2023-04-05", "04/05/2023", "5 April 2023", "April 5, 2023", "12:30", "12:30 PM", "1230",
    # Lists.
    "1, 2, 3", "1,2,3", "1;2;3", "3, 2, 1", "1, 2", "a, b, c", "a,b,c.", "A; B; C", "100,200", "100200", "$1, $2",
    "St. Petersburg, Ångström",
    # Texts, and a hidden ground truth.
    "Saint Petersburg", "St. Petersburg", "st petersburg", "Sea gull", "seagull", "The sea gull", "C++", "C",
    "“Claude”", "Claude", "?",
)  # fmt: skip

_THOUSANDS = "A number with commas or spaces between thousands is a number."
_AMOUNT = "An amount is a number. GAIA's scorer compares $17 as text where it is the ground truth, and does not know €."
_SIGN = "GAIA's scorer drops a minus sign, a point or a slash from a text."
_COMMA = "A comma that separates no thousands separates numbers."
_STOP = "A full stop after a list is not part of its last element."
_LETTER = "C++ is not C."
_QUOTES = "Typographic quotes are quotes."
DIFFERENT = {
    pair: Verdict(Right.scorer, reason)
    for reason, pairs in {
        _THOUSANDS: (
            ("1 234", "1234"), ("1234", "1,234"), ("1 234", "1,234"), ("1234567", "1,234,567"), ("100200", "100,200"),
        ),
        _AMOUNT: (
            ("€17", "17"), ("€17", "17.0"), ("€17", "+17"), ("17.0", "$17"), ("17.0", "17 $"), ("17", "€17"),
            ("17.0", "€17"), ("+17", "€17"), ("1234", "$1,234"), ("1,234", "$1,234"), ("1 234", "$1,234"),
            ("17.5", "$17.50"), ("1, 2", "$1, $2"),
        ),
        _SIGN: (
            ("-17", "$17"), ("-17", "17 $"), ("5 °C", "-5 °C"), ("-5 °C", "5 °C"), ("1.234", "1 234"), ("12", "1/2"),
        ),
        _COMMA: (("1,23", "123"), ("1,2,3", "123")),
        _STOP: (("a,b,c.", "a, b, c"), ("a, b, c", "a,b,c."), ("A; B; C", "a,b,c."), ("a,b,c.", "A; B; C")),
        _LETTER: (("C", "C++"), ("C++", "C")),
        _QUOTES: (("Claude", "“Claude”"), ("“Claude”", "Claude")),
        "A hidden ground truth has no right answer.": (("?", "?"),),
    }.items()
    for pair in pairs
}  # fmt: skip
"""Pairs of an answer and a ground truth that `gaia` judges otherwise."""


@cache
def gaia_scorer() -> Any:
    names = ["question_scorer", "normalize_number_str", "normalize_str", "split_string"]
    outside = {
        "re": re,
        "string": string,
        "Any": Any,
        "List": list,
        "Tuple": tuple,
        "logger": logging.getLogger("gaia"),
    }
    logging.getLogger("gaia").setLevel(logging.ERROR)
    file = wheel_folder(*EVALSCOPE) / "evalscope" / "benchmarks" / "gaia" / "scorer.py"
    return load_functions(file, names, **outside)["question_scorer"]


def test_every_pair_of_66_answers_scores_as_by_gaia_s_own_scorer(tmp_path: Path) -> None:
    assert len(set(ANSWERS)) == 66
    pairs = [(answer, truth) for truth in ANSWERS for answer in ANSWERS]
    scores = score_by_command(pairs, "gaia", tmp_path)
    peer = [bool(gaia_scorer()(*pair)[0]) for pair in pairs]
    assert peer == [published_rule(*pair) for pair in pairs]
    disagreements = [
        pair for pair, score, right in zip(pairs, scores, peer, strict=True) if (score == 1.0) != right
    ]
    check_disagreements("GAIA, 66 x 66 answers", len(pairs), disagreements, DIFFERENT)
