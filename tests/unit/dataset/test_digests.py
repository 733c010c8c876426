"""Questions folded many at once have the keys that they have one by one, and digests are sha256 of seed and key."""

import hashlib

from hypothesis import example, given
from hypothesis import strategies as st

from aworld_train.dataset.arrays import texts
from aworld_train.dataset.digests import digest, id_from_key, question_keys
from aworld_train.dataset.tasks import question_key

plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
any_text = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.lists(
        plain | any_text | st.sampled_from([" a", "a ", " ", "", "A  b", "\tA", "ẞ", "[@`{"]), max_size=12
    )
)
@example(["a ", " b"])
@example(["", "", "Z", ""])
@example([""])
def test_keys_are_the_same_many_at_once_and_one_by_one(questions: list[str]) -> None:
    assert question_keys(questions, texts(questions)) == [question_key(text).encode() for text in questions]


@given(any_text, st.integers())
def test_a_digest_is_that_of_seed_and_key(key: str, seed: int) -> None:
    assert digest(key.encode(), seed) == hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    assert id_from_key(key.encode()) == hashlib.sha256(key.encode()).hexdigest()[:16]
