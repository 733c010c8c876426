"""The scorer ``gaia``: GAIA's published rule, and another verdict only where that rule is plainly wrong.

Each row of the table says where its expectation comes from. The rows under ``AS_PUBLISHED`` are checked against the
published rule itself (`tests.gaia_rule`), and those under ``UNLIKE_PUBLISHED`` are checked to differ from it, so that
no departure goes unnamed.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.gaia import MAX_CHARS, gaia
from aworld_train.reward.text_normalization import is_hidden
from tests.gaia_rule import published_rule

NUMBER = "GAIA: a number is compared as a float, without $ % and commas"
NO_NUMBER = "GAIA: what is no float is no number, with its unit or in words"
LIST = "GAIA: a list is split at commas and semicolons, and compared in order"
ELEMENT = "GAIA: elements are compared as floats, or without case and space"
TEXT = "GAIA: texts are compared without case, space and punctuation"
TEXT_ALL = "GAIA: texts are compared as a whole, nothing is looked up in them"

Row = tuple[str, str, bool, str]

AS_PUBLISHED: list[Row] = [
    # Numbers.
    ("17", "17", True, NUMBER),
    ("18", "17", False, NUMBER),
    ("17.0", "17", True, NUMBER),
    ("17", "17.0", True, NUMBER),
    ("17.", "17", True, NUMBER),
    (" 17\n", "17", True, NUMBER),
    ("17,", "17", True, NUMBER),
    ("+17", "17", True, NUMBER),
    ("-17", "17", False, NUMBER),
    ("-17", "-17", True, NUMBER),
    ("0", "0", True, NUMBER),
    ("-0", "0", True, NUMBER),
    ("007", "7", True, NUMBER),
    (".5", "0.5", True, NUMBER),
    ("0.50", "0.5", True, NUMBER),
    ("0.5001", "0.5", False, NUMBER),
    ("3.14", "3.14159", False, NUMBER),
    ("1e3", "1000", True, NUMBER),
    ("1.5E2", "150", True, NUMBER),
    ("1000", "1e3", True, NUMBER),
    ("$17.50", "17.5", True, NUMBER),
    ("$ 17.50", "17.5", True, NUMBER),
    ("17.50$", "17.5", True, NUMBER),
    ("$17.51", "17.5", False, NUMBER),
    ("-$5", "-5", True, NUMBER),
    ("$-5", "-5", True, NUMBER),
    ("50%", "50", True, NUMBER),
    ("50 %", "50", True, NUMBER),
    ("%50", "50", True, NUMBER),
    ("50%.", "50", True, NUMBER),
    ("0.5", "50", False, NUMBER),
    ("50%", "0.5", False, NUMBER),
    ("1,234", "1234", True, NUMBER),
    ("1,234.5", "1234.5", True, NUMBER),
    ("12,345,678", "12345678", True, NUMBER),
    ("1,235", "1234", False, NUMBER),
    ("$1,234,567.89", "1234567.89", True, NUMBER),
    ("$17$", "17", True, NUMBER),
    ("1_000", "1000", True, NUMBER),
    ("1.234,56", "1234.56", False, NUMBER),
    ("9007199254740991", "9007199254740991", True, NUMBER),
    ("0.1000000000000000055511", "0.1", True, NUMBER),
    ("٢٤", "24", True, NUMBER),
    # What is no number.
    ("17 km", "17", False, NO_NUMBER),
    ("17km", "17", False, NO_NUMBER),
    ("about 17", "17", False, NO_NUMBER),
    ("~17", "17", False, NO_NUMBER),
    ("seventeen", "17", False, NO_NUMBER),
    ("17th", "17", False, NO_NUMBER),
    ("17 thousand", "17000", False, NO_NUMBER),
    ("17k", "17000", False, NO_NUMBER),
    ("34/2", "17", False, NO_NUMBER),
    ("12 or 17", "17", False, NO_NUMBER),
    ("17 17", "17", False, NO_NUMBER),
    ("x = 17", "17", False, NO_NUMBER),
    ("USD 17", "17", False, NO_NUMBER),
    ("0x11", "17", False, NO_NUMBER),
    ("--17", "-17", False, NO_NUMBER),
    ("1.2.3", "1.23", False, NO_NUMBER),
    ("1.5×10^2", "150", False, NO_NUMBER),
    ("", "17", False, NO_NUMBER),
    ("?", "17", False, NO_NUMBER),
    ("nan", "17", False, NO_NUMBER),
    ("inf", "17", False, NO_NUMBER),
    ("1e999", "17", False, NO_NUMBER),
    ("²", "2", False, NO_NUMBER),
    ("½", "0.5", False, NO_NUMBER),
    # Texts.
    ("Paris", "Paris", True, TEXT),
    ("paris", "PARIS", True, TEXT),
    ("Paris.", "Paris", True, TEXT),
    ('"Paris"', "Paris", True, TEXT),
    ("**Paris**", "Paris", True, TEXT),
    ("`Paris`", "Paris", True, TEXT),
    ("sea gull", "seagull", True, TEXT),
    ("seagull", "sea gull", True, TEXT),
    ("New\nYork", "New York", True, TEXT),
    ("New\u00a0York", "New York", True, TEXT),
    ("St Petersburg", "St. Petersburg", True, TEXT),
    ("U.S.A", "USA", True, TEXT),
    ("rock-n-roll", "rock'n'roll", True, TEXT),
    ("Dr. Who?", "Dr Who", True, TEXT),
    ("THE CASTLE", "The Castle", True, TEXT),
    ("Émile", "émile", True, TEXT),
    ("ΑΘΗΝΑ", "αθηνα", True, TEXT),
    ("北京", "北京", True, TEXT),
    ("上海", "北京", False, TEXT),
    ("Lyon", "Paris", False, TEXT),
    ("São Paulo", "Sao Paulo", False, TEXT),
    ("17 km", "17 km", True, TEXT),
    ("17km.", "17 km", True, TEXT),
    ("17 km -", "- 17 km", True, TEXT),
    ("Paris-", "Paris", True, TEXT),
    ("17", "17 km", False, TEXT),
    ("17 mi", "17 km", False, TEXT),
    ("17.0 km", "17 km", False, TEXT),
    ("12:05", "12.05 pm", False, TEXT),
    ("1205", "12:05", True, TEXT),
    ("12/05/2020", "12.05.2020", True, TEXT),
    ("2020-05-12", "12.05.2020", False, TEXT),
    ("9783161484100", "978-3-16-148410-0", True, TEXT),
    ("1990-1995", "1990 - 1995", True, TEXT),
    ("1st", "first", False, TEXT),
    ("1st", "1ST", True, TEXT),
    ("(A → B) ↔ (A ∨ ¬B)", "(A→B)↔(A∨¬B)", True, TEXT),
    ("(A → B) ↔ (A ∨ B)", "(A→B)↔(A∨¬B)", False, TEXT),
    ("10²", "102", False, TEXT),
    ("🦆", "🦆", True, TEXT),
    ("🦢", "🦆", False, TEXT),
    ("None", "none", True, TEXT),
    ("", "Paris", False, TEXT),
    ("Paris, France", "Paris", False, TEXT_ALL),
    ("Paris or Lyon", "Paris", False, TEXT_ALL),
    ("The answer is Paris", "Paris", False, TEXT_ALL),
    ("FINAL ANSWER: Paris", "Paris", False, TEXT_ALL),
    ("The Paris", "Paris", False, TEXT_ALL),
    ("Par", "Paris", False, TEXT_ALL),
    # Lists.
    ("a, b", "a, b", True, LIST),
    ("a,b", "a, b", True, LIST),
    ("a; b", "a, b", True, LIST),
    ("a, b", "a;b", True, LIST),
    ("b, a", "a, b", False, LIST),
    ("a", "a, b", False, LIST),
    ("a, b, c", "a, b", False, LIST),
    ("a, b,", "a, b", False, LIST),
    ("a and b", "a, b", False, LIST),
    ("a, and b", "a, b", False, LIST),
    ("[a, b]", "a, b", False, LIST),
    ("a b", "a, b", False, LIST),
    ("a\nb", "a, b", False, LIST),
    ("a, a", "a, b", False, LIST),
    ("", "a, b", False, LIST),
    ("a, b", "ab", True, TEXT),
    ("3, 1, 2", "3,1,2", True, LIST),
    ("3, 2, 1", "3,1,2", False, LIST),
    ("100, 200", "100,200", True, LIST),
    ("100,200", "100, 200", True, LIST),
    ("$1,234", "1,234", True, ELEMENT),
    ("A, b", "a, B", True, ELEMENT),
    ("sea gull, tern", "seagull, tern", True, ELEMENT),
    ("17.0, x", "17, x", True, ELEMENT),
    ("$17, x", "17, x", True, ELEMENT),
    ("50%, x", "50, x", True, ELEMENT),
    ("17 km, x", "17, x", False, ELEMENT),
    ("St Ives, York", "St. Ives, York", False, ELEMENT),
    ("St. Ives, York", "st.ives, york", True, ELEMENT),
    ('"a", "b"', "a, b", False, ELEMENT),
    ("rock'n'roll, jazz", "rocknroll, jazz", False, ELEMENT),
    ("1/2, 3/4", "1/2, 3/4", True, ELEMENT),
    ("1/2, 3/5", "1/2, 3/4", False, ELEMENT),
]

HIDDEN = "differs: a hidden ground truth matches nothing"
FINITE = "differs: what no float holds is a text, and no number equals it"
DIGITS = "differs: whole numbers are compared to the last digit"
GROUPS = "differs: commas stand between thousands, or separate a list"
SPACED = "differs: SI and ISO 80000 write thousands with spaces, Switzerland with apostrophes"
LAKH = "differs: India groups digits as 12,34,567"
UNIT = "differs: a currency or percent sign may be missing on either side, but not be another"
DRESS = "differs: quotation and emphasis around a number are not part of it"
MEANING = "differs: punctuation that makes it another number or name counts"
FOLDED = "differs: typographic characters are the plain ones (Unicode: same meaning, other form)"
STOP = "differs: the full stop of a sentence is none of the last element's"

UNLIKE_PUBLISHED: list[Row] = [
    ("?", "?", False, HIDDEN),
    ("!", "?", False, HIDDEN),
    ("", "?", False, HIDDEN),
    (" ", "", False, HIDDEN),
    ("...", "-", False, HIDDEN),
    (", ;", ";,", False, HIDDEN),
    ("Paris", "inf", False, FINITE),
    ("Paris", "1e999", False, FINITE),
    ("Nan", "nan", True, FINITE),
    ("1e400", "1e999", False, FINITE),
    ("9007199254740993", "9007199254740992", False, DIGITS),
    ("123,456,789,012,345,678", "123456789012345679", False, DIGITS),
    ("1234", "1,234", True, GROUPS),
    ("1234.00", "1,234", True, GROUPS),
    ("1200300", "1,200,300", True, GROUPS),
    ("1,2,3", "123", False, GROUPS),
    ("1,23", "123", False, GROUPS),
    ("12,34", "1234", False, GROUPS),
    (",17", "17", False, GROUPS),
    ("Room 1234", "Room 1,234", True, GROUPS),
    ("1,234, 5,678", "1234, 5678", True, GROUPS),
    ("1234; 5678", "1,234; 5,678", True, GROUPS),
    ("a, 1234", "a, 1,234", True, GROUPS),
    ("1 234", "1234", True, SPACED),
    ("1\u00a0234\u00a0567", "1234567", True, SPACED),
    ("1\u202f234.5", "1234.5", True, SPACED),
    ("1'234", "1234", True, SPACED),
    ("1234567", "12,34,567", True, LAKH),
    ("50", "$50.00", True, UNIT),
    ("$1234", "$1,234", True, UNIT),
    ("€17", "17", True, UNIT),
    ("17 €", "17", True, UNIT),
    ("£1,000", "1000", True, UNIT),
    ("$17", "17%", False, UNIT),
    ("50.0%", "50%", True, UNIT),
    ("5.0", "50%", False, UNIT),
    ("5, x", "$5, x", True, UNIT),
    ("\\$5", "5", True, UNIT),
    ("**17**", "17", True, DRESS),
    ('"17"', "17", True, DRESS),
    ("`17`.", "17", True, DRESS),
    ("35 km", "3.5 km", False, MEANING),
    ("$15 million", "$1.5 million", False, MEANING),
    ("5 km", ".5 km", False, MEANING),
    ("12", "1/2", False, MEANING),
    ("5 °C", "-5 °C", False, MEANING),
    ("C", "C++", False, MEANING),
    ("C#", "C", False, MEANING),
    ("A+", "A-", False, MEANING),
    ("−3", "-3", True, FOLDED),
    ("–3", "-3", True, FOLDED),
    ("１７％", "17", True, FOLDED),
    ("“Paris”", "Paris", True, FOLDED),
    ("rock’n’roll, jazz", "rock'n'roll, jazz", True, FOLDED),
    ("1990–1995", "1990-1995", True, FOLDED),
    ("ｐａｒｉｓ", "Paris", True, FOLDED),
    ("E\u0301mile", "Émile", True, FOLDED),
    ("Pa\u200bris", "Paris", True, FOLDED),
    ("STRASSE", "Straße", True, FOLDED),
    ("北京。", "北京", True, FOLDED),
    ("３，１，２", "3, 1, 2", True, FOLDED),
    ("a, b.", "a, b", True, STOP),
]


def right(answer: str, truth: str) -> bool:
    score = gaia(answer, truth)
    assert score.value in (0.0, 1.0)
    assert len(score.steps) == 1
    return score.value == 1.0


@pytest.mark.parametrize(("answer", "truth", "expected", "source"), AS_PUBLISHED)
def test_ordinary_answers_are_scored_as_gaia_scores_them(
    answer: str, truth: str, expected: bool, source: str
) -> None:
    assert right(answer, truth) is expected, source
    assert published_rule(answer, truth) is expected, source


@pytest.mark.parametrize(("answer", "truth", "expected", "source"), UNLIKE_PUBLISHED)
def test_each_departure_from_the_published_rule_is_named(
    answer: str, truth: str, expected: bool, source: str
) -> None:
    assert right(answer, truth) is expected, source
    assert published_rule(answer, truth) is not expected, source


def test_the_table_is_large_and_has_no_row_twice() -> None:
    pairs = [(answer, truth) for answer, truth, _, _ in AS_PUBLISHED + UNLIKE_PUBLISHED]
    assert len(pairs) == len(set(pairs)) >= 150


AMBIGUOUS = st.text(alphabet="0123456789,;.-+$%€ ab?/'−１", max_size=12)


@given(st.text(max_size=40) | AMBIGUOUS, st.text(max_size=40) | AMBIGUOUS)
def test_scoring_never_fails_whatever_the_texts(answer: str, truth: str) -> None:
    right(answer, truth)


@given(st.text(max_size=40) | AMBIGUOUS)
def test_a_ground_truth_answers_itself_unless_it_is_hidden(truth: str) -> None:
    assert right(truth, truth) is not is_hidden(truth)
    assert right(f" {truth}\n", truth) is not is_hidden(truth)


@given(st.text(alphabet="?!.,;:-_'\" \t…。", max_size=10), st.text(max_size=20) | AMBIGUOUS)
def test_an_answer_of_punctuation_alone_matches_nothing(answer: str, truth: str) -> None:
    assert not right(answer, truth)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=5))
def test_a_list_is_right_in_its_order_alone(items: list[int]) -> None:
    truth = ", ".join(map(str, items))
    assert right("; ".join(map("{:,}".format, items)), truth)
    if items != items[::-1]:
        assert not right(", ".join(map(str, items[::-1])), truth)


@given(st.integers(-(10**30), 10**30))
def test_a_whole_number_is_right_however_it_is_dressed_and_the_next_one_is_not(value: int) -> None:
    for dressed in (f"{value:,}", f"{value}.", f"{value}%", f" {value:,} $".replace("-", "−")):
        assert right(dressed, str(value)), dressed
    assert not right(f"{value + 1:,}", str(value))
    assert not right(str(value), f"{value + 1:,}")


def test_texts_that_are_too_long_are_compared_to_the_letter() -> None:
    long = "a" * MAX_CHARS + "b"
    assert right(long, long)
    assert not right(long.upper(), long)
    assert not right("9" * 1_000_000, "9")
