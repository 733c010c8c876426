"""Evaluation questions are found in other texts whatever is put around them, and nothing else is found."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.contamination import EvaluationQuestions
from aworld_train.dataset.matches import THRESHOLD, MatchKind, QuestionMatch
from aworld_train.dataset.shingles import MIN_WORDS, Shingles, shingles
from tests.gsm8k import needs_gsm8k, questions
from tests.properties import examples
from tests.word_problems import LIBRARY

OTHER = (
    "A baker sells 12 rolls in the morning and 30 in the afternoon, each for 40 cents. How much does she earn in "
    "one day if she gives every tenth roll away?"
)
CHINESE = "小明在商店买了三支铅笔和两本练习本, 每支铅笔一元五角, 每本练习本四元, 他一共应该付多少钱?"


def evaluation_of(questions: Iterable[str]) -> EvaluationQuestions:
    """The questions as one evaluation set, each with its number as its name."""
    return EvaluationQuestions([[(question, str(number)) for number, question in enumerate(questions)]])


def kind(text: str, *questions: str) -> MatchKind | None:
    """How the text matches the evaluation questions."""
    evaluation = evaluation_of(questions)
    match = evaluation.match(shingles(text))
    return match and match.kind


@pytest.mark.parametrize(
    "again",
    [
        f"1. {LIBRARY}",
        f"12) {LIBRARY}",
        f"Problem 12: {LIBRARY}",
        f"Question 3.1. {LIBRARY}",
        f"Question: {LIBRARY}",
        f"{LIBRARY} (5 points)",
        f"[2 pts] {LIBRARY}",
        f"<p>{LIBRARY.replace('15 cents', '<b>15</b> cents')}</p>",
        LIBRARY.replace("15 cents", "<b>1</b>5 cents"),
        LIBRARY.replace("; how", ";<br>how"),
        LIBRARY.replace("15 cents", "**15** cents"),
        LIBRARY.replace("15 cents", "$15$ cents"),
        LIBRARY.replace("15 cents", r"\$15 cents"),
        LIBRARY.replace("15 cents", r"\(15\) cents"),
        LIBRARY.replace("small town", "small&nbsp;town"),
    ],
)
def test_numbering_points_and_markup_hide_no_question(again: str) -> None:
    evaluation = EvaluationQuestions([[(LIBRARY, "test:1")]])
    assert evaluation.match(shingles(again)) == QuestionMatch(MatchKind.near_duplicate, "test:1", 1.0)


@pytest.mark.parametrize(
    "around",
    [
        "You are a careful tutor of mathematics. Read the problem twice and answer it with one number.\n\n{}",
        "{} Let's think step by step and output the final answer after ####. Hint: a week has 7 days.",
        f"{{}}\n\n{OTHER}",
        f"1. {OTHER}\n2. {{}}",
        "Aufgabe 17: {}\n\nAntwort: Two books are late for 7 days each, so 2 * 7 * 15 = 210 cents.",
        "问题三: 请一步一步地思考下面的数学应用题, 然后给出最后的答案. {}",
    ],
    ids=["preface", "hint", "before another", "after another", "answer", "Chinese preface"],
)
def test_a_question_is_found_inside_a_longer_text(around: str) -> None:
    evaluation = EvaluationQuestions([[(OTHER[:40], "none"), (LIBRARY, "test:1")]])
    match = evaluation.match(shingles(around.format(LIBRARY)))
    assert match == QuestionMatch(MatchKind.contained, "test:1", 1.0)


def test_a_chinese_question_is_found_in_an_english_prompt() -> None:
    preface = (
        "Please reason step by step, and put the final answer of the problem into one box at the very end. "
    )
    assert kind(preface + CHINESE, CHINESE) is MatchKind.contained
    assert kind(CHINESE, preface + CHINESE) is MatchKind.contained
    assert kind(preface + CHINESE.replace("两本", "五本"), CHINESE) is MatchKind.figure_variant


def test_a_part_of_a_question_is_found_too() -> None:
    prompt = (
        f"Solve the problem. The last line of the reply is the answer alone.\n\n{LIBRARY}\n\nBox the answer."
    )
    assert kind(LIBRARY, prompt) is MatchKind.contained
    assert kind(LIBRARY.replace("15", "16"), prompt) is MatchKind.figure_variant
    assert (
        kind("a reader who brings a book back late pays 15 cents for each day", LIBRARY)
        is MatchKind.contained
    )


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How much does she earn?", f"{OTHER} How much does she earn?"),
        ("What is 3 + 5?", "Ann has a bag. What is 3 + 5? She then goes home with all of it."),
        ("Who wrote Emma?", "Name the year of its first edition, and then say: who wrote Emma?"),
        ("How much is 12 plus 5 in all?", "How much is 19 plus 2 in all?"),
    ],
)
def test_a_short_question_is_not_found_inside_others_nor_by_its_words_alone(question: str, text: str) -> None:
    assert shingles(question).words < MIN_WORDS
    assert kind(text, question) is None
    assert kind(question, text) is None
    assert kind(question, question) is MatchKind.near_duplicate


def test_in_a_question_of_a_dozen_words_each_word_counts() -> None:
    question = "What is the name of the largest city of all in {}?"
    for place in ("Germany", "Iceland", "the Netherlands"):
        assert kind(f"Think first. {question.format(place)} Then answer.", question.format("France")) is None
        assert kind(question.format(place), question.format("France")) is None


@pytest.mark.parametrize("around", ["{}", "Read this twice. {}", "{} Hint: there are 7 days in a week."])
def test_other_figures_are_a_kind_of_their_own(around: str) -> None:
    for text in (LIBRARY.replace("15", "16"), LIBRARY.replace("4 books for 21", "21 books for 4")):
        assert kind(around.format(text), LIBRARY) is MatchKind.figure_variant
        assert kind(around.format(text), LIBRARY, text) in (MatchKind.near_duplicate, MatchKind.contained)


def test_the_closest_of_several_is_named_and_of_equal_ones_the_first() -> None:
    evaluation = EvaluationQuestions(
        [
            [
                (LIBRARY.replace("15", "16"), "other figures"),
                (f"{OTHER} {LIBRARY} Give a reason for the answer in one line.", "longer"),
                (LIBRARY.replace("town", "village"), "one word off"),
                (LIBRARY, "same"),
                (LIBRARY.upper(), "same again"),
            ]
        ]
    )
    assert evaluation.match(shingles(LIBRARY)) == QuestionMatch(MatchKind.near_duplicate, "same", 1.0)
    assert evaluation.match(shingles(LIBRARY.replace("15", "17"))) == QuestionMatch(
        MatchKind.figure_variant, "other figures", 1.0
    )


def test_of_a_template_each_question_is_found_by_its_figures() -> None:
    texts = [LIBRARY.replace("15", str(number)) for number in range(20, 1020)]
    evaluation = evaluation_of(texts)
    for number in (0, 500, 999):
        text = f"Here are 3 rules. {texts[number]} Show the work."
        assert evaluation.match(shingles(text)) == QuestionMatch(MatchKind.contained, str(number), 1.0)
    assert evaluation.match(shingles(LIBRARY)) == QuestionMatch(MatchKind.figure_variant, "0", 1.0)


def test_long_instructions_around_short_questions_are_no_part_of_them() -> None:
    around = (
        "Solve the following problem step by step. The last line of the reply is of the form Answer: X, without "
        "quotes, where X is the answer to the problem.\n\n{}\n\nRemember to put the answer on its own line after "
        '"Answer:", and nothing else after it.'
    )
    short = [
        "A baker has 30 rolls and sells 12 of them; how many are left?",
        "Tom walks 5 miles an hour for 3 hours; how far does he get?",
        "Which number has to be added to 17 so that the sum is 40?",
        "The sides of a rectangle are 4 and 9 inches; find its area.",
        "If 3 pens cost 6 dollars, what do 5 of the same pens cost?",
        "Mia is 4 years older than Ben, who is 9; how old is Mia?",
        "Half of the 28 pupils of a class swim; how many do not?",
    ]
    evaluation = EvaluationQuestions(
        [[(around.format(text), text) for text in short], [(LIBRARY, "library"), (OTHER, "other")]]
    )
    for text in short:
        for again in (text, around.format(text), f"Think well. {text} Then reply with one number."):
            match = evaluation.match(shingles(again))
            assert match is not None
            assert match.name == text
    for text in (
        "How tall is the tower?",
        "A boy has 7 kites and a girl 9; who of them has more of these kites?",
    ):
        assert evaluation.match(shingles(around.format(text))) is None
    match = evaluation.match(shingles(around.format(LIBRARY)))
    assert match == QuestionMatch(MatchKind.near_duplicate, "library", 1.0)


def test_questions_of_one_form_are_found_by_what_they_have_in_common_too() -> None:
    places = ["France", "Peru", "Kenya", "Japan", "Chile", "Norway", "Ghana", "Nepal"]
    short = [f"What is the capital of {place}?" for place in places]
    long = [LIBRARY.replace("town", place).replace("cents", "coins") for place in places]
    evaluation = EvaluationQuestions([[(text, text) for text in short], [(text, text) for text in long]])
    for text in short:
        assert evaluation.match(shingles(f"Problem 3: {text}")) == QuestionMatch(
            MatchKind.near_duplicate, text, 1.0
        )
    for text in long:
        again = (
            f"Read this text twice, and then give a short answer to its question: {text} Reply in one line."
        )
        match = evaluation.match(shingles(again))
        assert match is not None
        assert (match.name, match.share) == (text, 1.0)


def test_without_questions_nothing_matches() -> None:
    assert kind(LIBRARY) is None
    assert kind(LIBRARY, "", "  ") is None
    assert kind("", LIBRARY) is None


WORDS = st.lists(st.sampled_from(["red", "old", "cat", "sees", "the", "a", "7", "8"]), max_size=24)


@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=5), WORDS.map(" ".join))
@examples(400)
def test_the_search_misses_nothing_that_a_comparison_with_each_question_finds(
    references: list[str], text: str
) -> None:
    evaluation = evaluation_of(references)
    match = evaluation.match(shingles(text))
    comparisons = [(shingles(text), shingles(reference)) for reference in references]
    sufficient = [
        (share, similarity)
        for pair in comparisons
        for is_same_figures in [pair[0].figures == pair[1].figures]
        for share, similarity, is_long_enough in [overlap(*pair)]
        if (is_same_figures and similarity >= THRESHOLD) or (share >= THRESHOLD and is_long_enough)
    ]
    assert (match is None) == (not sufficient)
    assert match is None or any(match.share == value for pair in sufficient for value in pair)


def overlap(left: Shingles, right: Shingles) -> tuple[float, float, bool]:
    """Share of the shorter text in the longer, Jaccard similarity, and whether the shorter is long enough."""
    short, long = (right, left) if len(set(right.inner)) <= len(set(left.inner)) else (left, right)
    if not short.inner or not long.inner:
        return 0.0, 0.0, False
    distinct, inside = list(dict.fromkeys(short.inner)), set(long.inner)
    shared = len(inside.intersection(distinct)) + 2 * sum(distinct[end] in inside for end in (0, -1))
    sizes = len(distinct) + 4, len(inside) + 4
    is_long_enough = short.words >= MIN_WORDS and len(distinct) >= MIN_WORDS - 2
    return shared / sizes[0], shared / (sum(sizes) - shared), is_long_enough


@given(st.text(st.characters()) | st.text(st.sampled_from("1\ud83d+ a三")), st.text())
def test_any_text_can_be_compared(text: str, around: str) -> None:
    evaluation = evaluation_of([text, around])
    assert (evaluation.match(shingles(text)) is None) == (not text.split())
    evaluation.match(shingles(f"{around} {text} {around}"))


@needs_gsm8k
def test_no_real_question_is_taken_for_another_once_its_additions_are_gone() -> None:
    tests = questions("test.jsonl")[:60]
    evaluation = evaluation_of(tests)
    for at, text in enumerate(tests):
        for again in (f"1. {text}", f"Problem 12: {text}", f"{text} (5 points)", text.replace("$", r"\$")):
            assert evaluation.match(shingles(again)) == QuestionMatch(MatchKind.near_duplicate, str(at), 1.0)
    train = questions("train.jsonl")[:1500]
    assert not any(evaluation.match(shingles(f"Problem 12: {text} (5 points)")) for text in train)


@needs_gsm8k
def test_real_questions_are_found_inside_real_texts_and_nothing_else_is() -> None:
    tests, train = questions("test.jsonl"), questions("train.jsonl")
    evaluation = evaluation_of(tests)
    draw = random.Random(0)
    for at, text in enumerate(tests[:200]):
        before, after = draw.sample(train, 2)
        match = evaluation.match(shingles(f"{before}\n\n{text}\n\n{after}"))
        assert match == QuestionMatch(MatchKind.contained, str(at), 1.0)
    kinds = Counter(match.kind for text in train if (match := evaluation.match(shingles(text))))
    # Two training problems ask about a train what one of the test part asks about a plane.
    assert kinds == {MatchKind.figure_variant: 2}
    pairs = (f"{one} {other}" for one, other in itertools.pairwise(train))
    kinds = Counter(match.kind for text in pairs if (match := evaluation.match(shingles(text))))
    assert kinds == {MatchKind.figure_variant: 4}


@needs_gsm8k
def test_a_real_question_with_another_number_is_a_variant() -> None:
    tests, changed = questions("test.jsonl"), 0
    evaluation = evaluation_of(tests)
    for at, text in enumerate(tests):
        digit = next((place for place, letter in enumerate(text) if letter in "2345678"), None)
        if digit is not None:
            changed += 1
            again = text[:digit] + str(int(text[digit]) + 1) + text[digit + 1 :]
            match = evaluation.match(shingles(again))
            assert match == QuestionMatch(MatchKind.figure_variant, str(at), 1.0)
    assert changed > 700
