"""Server-sent events: the one reader of the package, for the MCP client and for what the tool gateway passes on.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
"""

from collections.abc import Iterator

from aworld_train.rollout.tool_answers import MAX_BYTES, too_large


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


def event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"
