"""Scorers of plain text: ``exact``, ``exact_case``, ``f1`` and ``contains``.

All but ``exact_case`` normalize characters and case and treat a run of space as one. A text of more than ``MAX_CHARS``
characters is right only where it is identical to the ground truth.
"""

import re
import string
from collections import Counter

from aworld_train.reward.score_types import Score
from aworld_train.reward.text_normalization import PUNCTUATION, fold, is_hidden

MAX_CHARS = 10_000

_ARTICLES = frozenset(("a", "an", "the"))
_PUNCTUATION_TO_NOTHING = str.maketrans("", "", PUNCTUATION)
# Han, Japanese syllables, Thai, Lao, Burmese and Khmer.
_UNSPACED = (
    r"\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_DIGITS = frozenset(string.digits)


def exact(answer: str, ground_truth: str) -> Score:
    if (score := _trivial_score(answer, ground_truth)) is not None:
        return score
    return Score(float(_plain(answer) == _plain(ground_truth)), steps=("Compared as texts.",))


def exact_case(answer: str, ground_truth: str) -> Score:
    if (score := _trivial_score(answer, ground_truth)) is not None:
        return score
    return Score(float(answer.strip() == ground_truth.strip()), steps=("Compared to the letter.",))


def f1(answer: str, ground_truth: str) -> Score:
    """The harmonic mean of precision and recall over words, as SQuAD measures answers (arXiv 1606.05250, 6.1), without
    articles unless the ground truth consists of them. In scripts without spaces each character is a word, as in MLQA
    (arXiv 1910.07475).
    """
    if (score := _trivial_score(answer, ground_truth)) is not None:
        return score
    actual, expected = _words(answer), _words(ground_truth)
    if content := [word for word in expected if word not in _ARTICLES]:
        actual, expected = [word for word in actual if word not in _ARTICLES], content
    shared = (Counter(actual) & Counter(expected)).total()
    value = 2 * shared / (len(actual) + len(expected))
    return Score(
        value, steps=(f"{shared} words shared, of {len(actual)} in the answer and {len(expected)} wanted.",)
    )


def contains(answer: str, ground_truth: str) -> Score:
    """Whether the answer contains the ground truth as whole words: ``5`` is not in ``15``, ``-5`` or ``5.7``."""
    if (score := _trivial_score(answer, ground_truth)) is not None:
        return score
    text, expected = _plain(answer), _plain(ground_truth)
    start = text.find(expected)
    while start >= 0 and not _stands_alone(text, start, start + len(expected)):
        start = text.find(expected, start + 1)
    verb = "is" if start >= 0 else "is not"
    return Score(float(start >= 0), steps=(f"The ground truth {verb} in the answer.",))


def _trivial_score(answer: str, ground_truth: str) -> Score | None:
    if max(len(answer), len(ground_truth)) > MAX_CHARS:
        same = answer == ground_truth
        return Score(float(same), steps=(f"More than {MAX_CHARS} characters: compared to the letter.",))
    if is_hidden(ground_truth):
        return Score(0.0, steps=("The ground truth is hidden: nothing is right.",))
    return None


def _plain(text: str) -> str:
    return " ".join(fold(text).casefold().split())


def _words(text: str) -> list[str]:
    return _WORD.findall(_plain(text).translate(_PUNCTUATION_TO_NOTHING))


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (
        _in_one_word(text[start - 1 : start], text[start])
        or _in_one_word(text[end - 1], text[end : end + 1])
        or (
            text[start] in _DIGITS
            and re.search(r"(?:[0-9][.,]|(?:^|[\s(=])-)$", text[max(0, start - 2) : start])
        )
        or (text[end - 1] in _DIGITS and re.match(r"[.,][0-9]", text[end : end + 2]))
    )


def _in_one_word(left: str, right: str) -> bool:
    return _is_spaced(left) and _is_spaced(right)


def _is_spaced(character: str) -> bool:
    """Whether it is a digit or of a script with upper and lower case, which put spaces between words."""
    return character.isdigit() or character.lower() != character.upper()
