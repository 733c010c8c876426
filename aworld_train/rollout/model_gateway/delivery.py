"""Which answers reached their client.

An answer that could not be written did not. One that was written may still meet a client that has given up: its system
then resets the connection, as TCP does for data that nobody reads, while a client that has read everything ends the
connection in order or sends its next request over it. But a client can also read an answer and then reset the
connection, so that the turn would not count: what was written is only said to be in doubt.
"""

import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web

from aworld_train.rollout.messages import Completion, Conversation

_TCP_CLOSE = 7  # include/net/tcp_states.h: after a reset; where the client ended it in order, CLOSE_WAIT


class Delivery:
    __slots__ = ("_answers", "_failed", "_response")

    def __init__(self) -> None:
        self._answers: list[tuple[Conversation, Completion]] = []
        self._response: web.StreamResponse | None = None
        self._failed = False

    def add(self, conversation: Conversation, completion: Completion) -> None:
        self._answers.append((conversation, completion))
        if self._failed:
            self.fail()

    def written_as(self, response: web.StreamResponse) -> None:
        self._response = response

    @property
    def _was_sent(self) -> bool:
        return self._response is not None and self._response.prepared

    def end(self, was_reset: bool) -> None:
        if was_reset or not self._was_sent:
            self.fail()

    def fail(self) -> None:
        """The answers may not have arrived, or cannot if they were not sent, nor will any that comes later."""
        self._failed = True
        for conversation, completion in self._answers:
            conversation.undelivered(completion, self._was_sent)
        self._answers.clear()


class DeliveryServer(web.Server):
    """An HTTP server that knows of each connection which answers went over it last."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], **options: Any) -> None:
        super().__init__(handler, **options)
        self._deliveries: dict[web.RequestHandler, Delivery] = {}

    def begin(self, request: web.BaseRequest) -> Delivery:
        """The delivery of a request's answers; those of the connection's request before have arrived."""
        delivery = self._deliveries[request.protocol] = Delivery()
        return delivery

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """As aiohttp calls it, while the connection's socket is still open."""
        delivery = self._deliveries.pop(handler, None)
        if delivery is not None:
            delivery.end(exc is not None or _was_reset(handler.transport))
        super().connection_lost(handler, exc)


def _was_reset(transport: Any) -> bool:
    """Whether the client's system has reset a connection; False where the system does not tell."""
    connection = transport.get_extra_info("socket") if transport is not None else None
    option = getattr(socket, "TCP_INFO", None)
    if connection is None or option is None:
        return False
    try:
        return bool(connection.getsockopt(socket.IPPROTO_TCP, option, 1)[0] == _TCP_CLOSE)
    except OSError:
        return False
