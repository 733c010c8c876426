"""One agent's requests, one after another: each brings the whole history again, and only what is new in it is read.

A body that begins and ends as the one before, with something in between, is the one before with more messages, if the
place in between is where its history ends. JSON's grammar says whether it is: a value that is put there must turn up
as the history's last one. All else is read as a whole.
"""

import secrets
from bisect import bisect_left
from typing import Any

import msgspec

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.fields import Json

_PROBE = secrets.token_hex(16)
_UNKNOWN = -1  # the next body will tell
_NONE = -2
_DECODER: "msgspec.json.Decoder[list[Any]]" = msgspec.json.Decoder(list[Any])


class BodyReader:
    """Reads the bodies of one agent.

    Args:
        history: The parameter that holds the history, an array.
    """

    def __init__(self, history: str) -> None:
        self._history = history
        self._body = b""
        self._read: Json = {}
        self._end = _NONE  # where the history of `_body` ends

    def read(self, body: bytes) -> Json:
        """A body as an object, which has parts in common with the one before and must not be changed.

        Raises:
            Refused: as :func:`~aworld_train.rollout.model_gateway.fields.parse_body`.
        """
        if self._end == _UNKNOWN:
            self._end = self._find_end(body)
        new = self._between(body) if self._end != _NONE else None
        if new is None:
            self._read, self._end = fields.parse_body(body), _UNKNOWN
        else:
            self._read = {**self._read, self._history: [*self._read[self._history], *new]}
            self._end += len(body) - len(self._body)
        self._body = body
        return self._read

    def _between(self, body: bytes) -> list[Any] | None:
        """What ``body`` adds to the history of the one before; None where it is another body altogether."""
        more = len(body) - len(self._body)
        head, tail = self._body[: self._end], self._body[self._end :]
        if more < 0 or not (body.startswith(head) and body.endswith(tail)):
            return None
        try:
            # After a string, which nothing can make longer, JSON goes on as it does after the last message.
            return _DECODER.decode(b'[""' + body[self._end : self._end + more] + b"]")[1:]
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None

    def _find_end(self, body: bytes) -> int:
        """Where the history of the body before ends, if that is where ``body`` first differs from it."""
        last_body = self._body
        history = self._read.get(self._history)
        if type(history) is not list or not history or _PROBE.encode() in last_body:
            return _NONE
        # The longest beginning that both have.
        difference = bisect_left(
            range(1, len(last_body) + 1), True, key=lambda n: not body.startswith(last_body[:n])
        )
        if not body.endswith(last_body[difference:]):
            return _NONE
        try:
            probed = fields.parse_body(
                last_body[:difference] + b',"' + _PROBE.encode() + b'"' + last_body[difference:]
            )
        except RequestRefused:
            return _NONE
        return difference if probed == {**self._read, self._history: [*history, _PROBE]} else _NONE
