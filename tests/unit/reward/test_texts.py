"""Scorers of plain text: ``exact``, ``f1`` and ``contains``."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.score_types import Score
from aworld_train.reward.text_normalization import is_hidden
from aworld_train.reward.texts import MAX_CHARS, contains, exact, exact_case, f1

SCORERS = [exact, f1, contains]
TextScorer = Callable[[str, str], Score]


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("Paris", "paris", True),
        ("  new\n York ", "New York", True),
        ("“Paris”", '"Paris"', True),
        ("e\u0301", "é", True),
        ("Paris.", "Paris", False),
        ("NewYork", "New York", False),
        ("10²", "102", False),
        ("?", "?", False),
        ("", "Paris", False),
    ],
)
def test_exact_forgives_case_space_and_typography_alone(answer: str, truth: str, right: bool) -> None:
    assert exact(answer, truth).value == float(right)


@pytest.mark.parametrize(
    ("answer", "truth", "value"),
    [
        ("the cat sat", "A cat sat.", 1.0),
        ("cat", "the cat sat", 2 / 3),
        ("cat cat cat", "cat", 0.5),
        ("a b c d", "c d e f", 4 / 7),  # the article is no word
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("The The", "The The", 1.0),
        ("The", "The The", 2 / 3),
        ("?", "?", 0.0),
        ("北京", "北京大学", 2 / 3),
        ("北京 大学", "北京大学", 1.0),
        ("東京タワー", "東京", 4 / 7),
        ("กรุง", "กรุงเทพ", 8 / 11),
        ("GPT-4 模型", "gpt4模型", 1.0),
        ("서울시", "서울", 0.0),  # Korean puts spaces between words
    ],
)
def test_f1_is_the_overlap_of_words_without_articles_and_punctuation(
    answer: str, truth: str, value: float
) -> None:
    assert f1(answer, truth).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("It is Paris.", "paris", True),
        ("It is (New  York)", "New York", True),
        ("Parisian", "Paris", False),
        ("comparison", "Paris", False),
        ("Parisian or Paris", "Paris", True),
        ("It is 5.", "5", True),
        ("It is 5, or so", "5", True),
        ("15", "5", False),
        ("51", "5", False),
        ("5.7", "5", False),
        ("0.5", "5", False),
        ("1,5", "5", False),
        ("x = -5", "5", False),
        ("-5", "-5", True),
        ("1990-5", "5", True),
        ("$5", "5", True),
        ("5km", "5", False),
        ("答案是北京。", "北京", True),
        ("北京5", "5", True),
        ("anything?", "?", False),
        ("", "Paris", False),
    ],
)
def test_contains_wants_the_ground_truth_as_words_of_its_own(answer: str, truth: str, right: bool) -> None:
    assert contains(answer, truth).value == float(right)


@pytest.mark.parametrize("scorer", SCORERS)
@given(answer=st.text(max_size=60), truth=st.text(max_size=30))
def test_scoring_never_fails_and_stays_between_0_and_1(scorer: TextScorer, answer: str, truth: str) -> None:
    score = scorer(answer, truth)
    assert score.value is not None
    assert 0.0 <= score.value <= 1.0
    assert len(score.steps) == 1


@pytest.mark.parametrize("scorer", SCORERS)
@given(truth=st.text(max_size=40))
def test_a_ground_truth_answers_itself_unless_it_is_hidden(scorer: TextScorer, truth: str) -> None:
    assert scorer(truth, truth).value == float(not is_hidden(truth))


@given(st.text(max_size=40), st.text(max_size=40))
def test_which_of_two_texts_is_the_answer_makes_no_difference_to_exact(left: str, right: str) -> None:
    if not is_hidden(left) and not is_hidden(right):
        assert exact(left, right).value == exact(right, left).value


@given(st.lists(st.sampled_from(["cat", "sat", "mat", "7"]), min_size=1), st.randoms())
def test_the_order_of_words_makes_no_difference_to_f1(words: list[str], random: Random) -> None:
    shuffled = list(words)
    random.shuffle(shuffled)
    assert f1(" ".join(shuffled), " ".join(words)).value == 1.0


@pytest.mark.parametrize("scorer", SCORERS)
def test_texts_that_are_too_long_are_compared_to_the_letter(scorer: TextScorer) -> None:
    long = "b " * MAX_CHARS
    assert scorer(long, long).value == 1.0
    assert scorer(long, "b").value == 0.0
    assert scorer("b", long).value == 0.0


@pytest.mark.parametrize(
    ("answer", "ground_truth", "right"),
    [("NaCl", "NaCl", True), (" NaCl\n", "NaCl", True), ("nacl", "NaCl", False), ("Na Cl", "NaCl", False)],
)
def test_exact_case_compares_to_the_letter(answer: str, ground_truth: str, right: bool) -> None:
    assert exact_case(answer, ground_truth).value == float(right)
