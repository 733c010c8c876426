"""The key of a question is its words without case, and digests are sha256 of seed and key."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.tasks import digest, id_from_key, question_key

plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
any_text = st.text(st.characters(codec="utf-8"), max_size=8)


@given(plain | any_text | st.sampled_from([" a", "a ", " ", "", "A  b", "\tA", "ẞ", "[@`{"]))
def test_the_key_of_a_question_is_its_words_without_case(question: str) -> None:
    assert question_key(question) == " ".join(question.casefold().split())


@given(any_text, st.integers())
def test_a_digest_is_that_of_seed_and_key(key: str, seed: int) -> None:
    assert digest(key.encode(), seed) == hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    assert id_from_key(key.encode()) == hashlib.sha256(key.encode()).hexdigest()[:16]
