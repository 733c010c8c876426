"""Event streams are read alike however they are cut up, and give the id to resume from."""

import time

from hypothesis import given
from hypothesis import strategies as st

from aworld_train.rollout.tool_answers import EventReader
from aworld_train.serving.mcp_messages import event


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_are_read_whole_however_they_come_in_pieces(
    texts: list[str], end: str, data: st.DataObject
) -> None:
    stream = "".join(f": comment{end}event: message{end}data: {text}{end}{end}" for text in texts).encode()
    stream += b":\n"  # a return at the very end might be half of a line's end
    reader, found, position = EventReader(), list[bytes](), 0
    while position < len(stream):
        size = data.draw(st.integers(1, 40))
        found += reader.feed(stream[position : position + size])
        position += size
    assert found == [text.encode() for text in texts]
    assert reader.last_id == ""


def test_an_event_of_megabytes_in_many_pieces_takes_linear_time() -> None:
    reader, began = EventReader(), time.process_time()
    piece = b"x" * 65536
    found = [*reader.feed(b"data: "), *(data for _ in range(400) for data in reader.feed(piece))]
    found += reader.feed(b"\n\n")
    assert [len(data) for data in found] == [400 * 65536]
    assert time.process_time() - began < 2


def test_an_id_is_the_one_to_resume_from_with_or_without_data() -> None:
    reader = EventReader()
    assert list(reader.feed(b"id: first\ndata: a\n\nid: second\n\n: comment\n\n")) == [b"a"]
    assert reader.last_id == "second"
    assert list(EventReader("second").feed(b"data:\n\n")) == [b""]
    assert EventReader("second").last_id == "second"


def test_lines_of_one_event_are_joined_and_an_unfinished_event_is_not_given() -> None:
    reader = EventReader()
    assert list(reader.feed(b"data: a\r\ndata:  b\r\n\r\ndata: c\r\n")) == [b"a\n b"]
    assert list(reader.feed(event(b"{}"))) == [b"c\n{}"]
