"""How many evaluation questions are found in training data, and what that costs, against datasketch.

The peer is datasketch's `MinHashLSH` at the same threshold, 0.8, with 128 permutations, as its users have it: lower
case, shingles of three words or of five characters, and whatever the index returns counts as found.

Sixty real questions are the evaluation set. Each comes again in thirteen ways, and 1,500 questions that have nothing to
do with them must not be found. Set AWORLD_TRAIN_GSM8K to the folder of GSM8K's files.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import pytest

from tests import gsm8k
from tests.bench.contamination_kinds import KINDS

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

THRESHOLD = 0.8
QUESTIONS = 60
UNRELATED = 1500
ROWS = 100_000
MAX_RATIO = 1.3
"""Of the quickest peer's time; a single run varies by a tenth."""
PEER_ROWS = 5_000
"""Rows that a peer is timed with; the time for all is in proportion."""

Search = Callable[[str], set[str]]
"""The names of the evaluation questions that are found in a text."""
Shingler = Callable[[str], set[str]]


@pytest.fixture(scope="module")
def questions() -> dict[str, list[str]]:
    if gsm8k.ABSENT:
        pytest.skip(gsm8k.REASON)
    return {name: gsm8k.questions(f"{name}.jsonl") for name in ("train", "test")}


def exact_search(questions: Iterable[tuple[str, str]]) -> Search:
    from aworld_train.dataset.contamination import EvaluationQuestions
    from aworld_train.dataset.shingles import shingles

    evaluation = EvaluationQuestions([[(text, name) for name, text in questions]])

    def search(text: str) -> set[str]:
        match = evaluation.match(shingles(text))
        return {match.name} if match else set()

    return search


def datasketch_search(questions: Iterable[tuple[str, str]], shingler: Shingler) -> Search:
    from datasketch import MinHash, MinHashLSH

    def sketch(text: str) -> MinHash:
        minhash = MinHash(num_perm=128)
        minhash.update_batch([shingle.encode() for shingle in shingler(text)])
        return minhash

    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    for name, text in questions:
        index.insert(name, sketch(text))
    return lambda text: set(index.query(sketch(text)))


def three_words(text: str) -> set[str]:
    words = text.lower().split()
    return {" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2))}


def five_characters(text: str) -> set[str]:
    line = text.lower()
    return {line[at : at + 5] for at in range(max(1, len(line) - 4))}


def searches(questions: Sequence[str]) -> dict[str, Search]:
    named = [(str(number), question) for number, question in enumerate(questions)]
    return {
        "ours": exact_search(named),
        "datasketch, words": datasketch_search(named, three_words),
        "datasketch, characters": datasketch_search(named, five_characters),
    }


def test_all_kinds_of_additions_are_found_at_least_as_often(questions: dict[str, list[str]]) -> None:
    pytest.importorskip("datasketch")
    recalls: dict[str, dict[str, int]] = {}
    for kind, add in KINDS.items():
        changed = [(text, again) for text in questions["test"] if (again := add(text)) != text][:QUESTIONS]
        assert len(changed) == QUESTIONS, kind
        recalls[kind] = {
            name: sum(str(number) in search(again) for number, (_, again) in enumerate(changed))
            for name, search in searches([text for text, _ in changed]).items()
        }
    unrelated = questions["train"][:UNRELATED]
    index = searches(questions["test"][:QUESTIONS])
    false_positives = {name: sum(bool(search(text)) for text in unrelated) for name, search in index.items()}
    print(f"\n{'found of ' + str(QUESTIONS):28}" + "".join(f"{name:>24}" for name in index))
    for kind, recall in recalls.items():
        print(f"{kind:28}" + "".join(f"{count:24}" for count in recall.values()))
    print(
        f"{'false, of ' + str(UNRELATED):28}" + "".join(f"{count:24}" for count in false_positives.values())
    )
    for kind, recall in recalls.items():
        assert recall["ours"] == max(recall.values()), kind
    assert false_positives["ours"] == 0


def test_it_takes_no_longer_than_the_peer(questions: dict[str, list[str]]) -> None:
    pytest.importorskip("datasketch")
    train = questions["train"]
    rows = [f"{train[at % len(train)]} {at}" for at in range(ROWS)]
    seconds = {}
    for name, search in searches(questions["test"]).items():
        timed = rows if name == "ours" else rows[:PEER_ROWS]
        started = time.process_time()
        for row in timed:
            search(row)
        seconds[name] = (time.process_time() - started) * ROWS / len(timed)
    print(f"\nseconds of processor time for {ROWS} rows and {len(questions['test'])} evaluation questions:")
    for name, spent in seconds.items():
        print(f"{name:24} {spent:8.1f}, {spent / seconds['ours']:5.2f} times ours")
    assert seconds["ours"] <= MAX_RATIO * min(seconds.values())
