"""Reads what a tool server sends within limits, since the session that it serves may have taken it over.

The format of event streams: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
"""

from collections.abc import Iterator
from typing import Any

import aiohttp

from aworld_train.whole_text import load_whole

MAX_BYTES = 32 << 20  # after decompression; room for one image of the most bytes, in Base64
MAX_VALUES = 2 << 20  # in one answer: an empty array is 3 bytes of JSON and 64 of memory
MAX_DEPTH = 100  # nesting of arguments and answers; parsers fail at some hundreds of levels


class AnswerExceeds(Exception):
    """An answer is beyond a limit; the text says which, and a model can read it."""


def too_large() -> AnswerExceeds:
    return AnswerExceeds(f"the answer is larger than {MAX_BYTES >> 20} MB, ask for less at once")


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """A response's body; raises ``AnswerExceeds`` and reads no more beyond ``MAX_BYTES``."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise too_large()
    return bytes(body)


def parse(data: bytes) -> Any:
    """The JSON value in ``data``, with U+FFFD for each half of a surrogate pair.

    Raises ``AnswerExceeds``, and ``ValueError`` for what is not JSON.
    """
    if len(data) > MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise AnswerExceeds(f"the answer has more than {MAX_VALUES:,} values, ask for less at once")
    try:
        value = load_whole(data.decode("utf-8-sig", "surrogatepass"))
        if depth(value) <= MAX_DEPTH:
            return value
    except RecursionError:
        pass
    raise AnswerExceeds(f"the answer is nested more than {MAX_DEPTH} deep")


def depth(value: Any) -> int:
    """How deep arrays and objects are nested; ``RecursionError`` beyond what can be counted."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


class EventReader:
    """Takes a stream in chunks of any size and gives the data of each event once it is complete.

    ``last_id`` is the id sent last, after which a client may request what follows; empty: it cannot.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._partial: list[bytes] = []  # pieces of a line that is not complete
        self._data: list[bytes] = []
        self._size = 0  # of what came since the last event

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that ``chunk`` completes; raises ``AnswerExceeds``."""
        self._partial.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_BYTES:
            raise too_large()
        if b"\n" not in chunk and b"\r" not in chunk:
            return  # not joined yet: a line of megabytes comes in many pieces
        lines = b"".join(self._partial).splitlines(keepends=True)
        # A return at the end of the chunk may be the first half of a line end.
        self._partial = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"id":
                self.last_id = value.removeprefix(b" ").decode(errors="replace")
            elif not line:
                lines_of_data, self._data = self._data, []
                self._size = sum(map(len, self._partial))
                if lines_of_data:
                    yield b"\n".join(lines_of_data)
