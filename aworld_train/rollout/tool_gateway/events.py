"""Server-sent events, as far as a gateway has to understand what it passes on.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
"""

import re
from collections.abc import Iterator

_LINE_END = re.compile(
    rb"\r\n|\n|\r(?!\Z)"
)  # a return at the end of what has come may be half of a line's end


class EventReader:
    """Takes a stream in pieces of any size and gives the data of each event once it is whole.

    Attributes:
        resumable: Whether an event had an id: a client that loses the stream may ask for what comes after it.
    """

    def __init__(self) -> None:
        self.resumable = False
        self._begun: list[bytes] = []  # pieces of a line whose end has not come
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that ``chunk`` completes."""
        self._begun.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return  # not joined yet: a line of megabytes comes in many pieces
        lines = b"".join(self._begun).splitlines(keepends=True)
        # A return at the end of what has come may be half of a line's end.
        self._begun = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"id":
                self.resumable = True
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data = []


def event(message: bytes) -> bytes:
    """An event that carries a JSON-RPC message."""
    return b"event: message\ndata: " + message + b"\n\n"
