"""The model gateway's server: finds the rollout of a request, and answers in every case.

Only the wait for `Conversation.complete` has no limit of its own: it ends with the rollout, or when the client
disconnects. The clients of OpenAI and Anthropic retry, which would sample twice, so every error tells them not to.
"""

import asyncio
import logging
import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from aworld_train.rollout.messages import ChatRequest, Completion, Conversation, RequestRefused
from aworld_train.rollout.model_gateway import (
    address,
    anthropic,
    chat,
    completions,
    fields,
    responses,
)
from aworld_train.rollout.model_gateway.address import Target
from aworld_train.rollout.model_gateway.bodies import BodyReader, text_bytes
from aworld_train.rollout.model_gateway.delivery import Delivery, DeliveryServer
from aworld_train.rollout.model_gateway.dialect import Dialect, ParsedRequest, Surroundings, encode
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.response_constraints import RequestRules

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BODY_BYTES = 64 << 20
_BODY_SECONDS = 60.0
_KEEP_ALIVE_SECONDS = 15.0
# Longer than any pause between two requests of an agent: a connection that the server closes just as the next request
# is sent looks like an error to the client.
_IDLE_CONNECTION_SECONDS = 3600.0
_STOP_SECONDS = 5.0
_MAX_ENDED_KEYS = 4096
_BACKLOG = 4096  # connections that may wait to be accepted: the agents of all rollouts begin at the same time
_NO_RETRY = {"x-should-retry": "false"}
_STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_COMMENT = b": sampling\n\n"
_DIALECTS: Mapping[str, Dialect] = {
    "chat/completions": chat.DIALECT,
    "completions": completions.DIALECT,
    "messages": anthropic.DIALECT,
    "messages/count_tokens": anthropic.DIALECT,
    "responses": responses.DIALECT,
}
_COUNT_TOKENS = "messages/count_tokens"
_SERVED = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens and /v1/completions, and "
    "GET /v1/models"
)


class ModelGatewaySession:
    """One rollout's access to the model, from `ModelGateway.open_session` to `close`."""

    def __init__(
        self,
        gateway: "ModelGateway",
        model: str,
        conversation_of: Callable[[str], Conversation],
        rules: RequestRules,
    ):
        self.key = secrets.token_urlsafe(24)
        self.model = model
        self._gateway = gateway
        self._conversation_of = conversation_of
        self._conversations: dict[str, Conversation] = {}
        self._bodies: dict[tuple[str, Dialect], BodyReader] = {}
        self._last_requests: dict[tuple[str, Dialect], ParsedRequest] = {}
        self._rules = rules
        self._around: defaultdict[str, Surroundings] = defaultdict(lambda: Surroundings(rules))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def root(self, agent: str | None = None) -> str:
        """The base URL for Anthropic's clients, which add ``/v1`` themselves."""
        return self._gateway.url + address.path(self.key, agent)

    def address(self, agent: str | None = None) -> str:
        """The base URL for OpenAI's clients; it identifies the rollout, so any API key works."""
        return self.root(agent) + "/v1"

    def api_key(self, agent: str | None = None) -> str:
        """For clients of the common base URL, `ModelGateway.url` with ``/v1``."""
        return address.api_key(self.key, agent)

    def close(self) -> None:
        """Refuse later requests, and cancel those under way."""
        self._closed = True
        self._gateway._forget(self)
        for task in self._tasks:
            task.cancel()

    def _read(self, agent: str, dialect: Dialect, body: bytes) -> ParsedRequest:
        caller = (agent, dialect)
        if caller not in self._bodies:
            self._bodies[caller] = BodyReader(dialect.history)
        parsed = dialect.read(
            self._bodies[caller].read(body), self._last_requests.get(caller), self._around[agent]
        )
        self._refuse_text(agent, body, parsed.request)
        self._last_requests[caller] = parsed
        return parsed

    def _refuse_text(self, agent: str, body: bytes, request: ChatRequest | None = None) -> None:
        """Refuse a body with more text than the model's context can hold; ``request`` is what it was read as."""
        if len(body) <= self._rules.max_text_bytes:
            return
        # What looks like a file in the body may be read as text.
        size = sum(message.size for message in request.messages) if request else text_bytes(body)
        if size > self._rules.max_text_bytes:
            self._conversation(agent).note_overlong()
            raise RequestRefused(
                f"the request has {size:,} bytes of text, and what the model's context holds has at most "
                f"{self._rules.max_text_bytes:,}; shorten the conversation",
                code="context_length_exceeded",
            )

    def _conversation(self, agent: str) -> Conversation:
        if agent not in self._conversations:
            self._conversations[agent] = self._conversation_of(agent)
        return self._conversations[agent]

    async def _complete(self, agent: str, parsed: ParsedRequest, delivery: Delivery) -> Sequence[Completion]:
        choices = parsed.request.choices
        if choices == 1:
            sampled: Sequence[Completion] = (await self._sample(agent, parsed.request, delivery),)
        else:
            tasks = [
                asyncio.create_task(self._sample(agent, parsed.request, delivery)) for _ in range(choices)
            ]
            try:
                sampled = await asyncio.gather(*tasks)
            except BaseException:
                delivery.fail()
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        if parsed.response_id:
            self._around[agent].responses[parsed.response_id] = (*parsed.carried, sampled[0].message)
        return sampled

    async def _sample(self, agent: str, request: ChatRequest, delivery: Delivery) -> Completion:
        completion = await self._call(agent, lambda conversation: conversation.complete(request))
        delivery.add(self._conversations[agent], completion)
        return completion

    async def _count_tokens(self, agent: str, request: ChatRequest) -> int:
        return await self._call(agent, lambda conversation: conversation.count_tokens(request))

    async def _call(self, agent: str, call: Callable[[Conversation], Coroutine[Any, Any, T]]) -> T:
        if self._closed:  # while the body was read
            raise _rollout_ended()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await call(self._conversation(agent))
        except RequestRefused:
            raise
        except asyncio.CancelledError as error:
            if self._closed:
                task.uncancel()
                raise _rollout_ended() from None
            if task.cancelling():  # the client has disconnected
                raise
            raise _internal_error(error) from None
        except Exception as error:
            log.exception("a conversation failed")
            raise _internal_error(error) from None
        finally:
            self._tasks.discard(task)


class ModelGateway:
    """The server of a process; it has a session for each rollout."""

    def __init__(self) -> None:
        self._sessions: dict[str, ModelGatewaySession] = {}
        self._ended_keys: deque[str] = deque(maxlen=_MAX_ENDED_KEYS)
        self._runner: web.ServerRunner | None = None
        self._server: DeliveryServer | None = None
        self._url = ""

    @property
    def url(self) -> str:
        if not self._url:
            raise RuntimeError("the gateway has not been started")
        return self._url

    async def start(self) -> None:
        if self._runner is not None:
            raise RuntimeError("the gateway has been started already")
        # Not an aiohttp application: its routes and middlewares take as long as all the rest.
        self._server = DeliveryServer(
            self._handle,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=_IDLE_CONNECTION_SECONDS,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=_BACKLOG).start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close all sessions and stop listening; takes seconds at most, whatever is under way."""
        for session in list(self._sessions.values()):
            session.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner, self._url = None, ""

    def open_session(
        self,
        model: str,
        conversation_of: Callable[[str], Conversation],
        rules: RequestRules | None = None,
    ) -> ModelGatewaySession:
        """Open a session for a rollout; ``conversation_of`` is called once per agent and may raise `RequestRefused`."""
        session = ModelGatewaySession(self, model, conversation_of, rules or RequestRules())
        self._sessions[session.key] = session
        return session

    def _forget(self, session: ModelGatewaySession) -> None:
        if self._sessions.pop(session.key, None):
            self._ended_keys.append(session.key)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._server is not None
        delivery = self._server.begin(request)
        try:
            response = await self._respond(request, delivery)
        except BaseException:
            delivery.fail()
            raise
        delivery.written_as(response)
        if request.transport is None or request.transport.is_closing():
            delivery.fail()
        return response

    async def _respond(self, request: web.BaseRequest, delivery: Delivery) -> web.StreamResponse:
        """The response, whatever happens; one of which the head has been written has been written to its end."""
        target = address.read(request.rel_url.raw_path, request.headers)
        dialect = _DIALECTS.get(target.endpoint)
        try:
            session, agent = self._find(target)
            if dialect is None:
                return _json(_about_models(request, target, session))
            if request.method != "POST":
                raise RequestRefused(f"{request.method} is not possible here; POST is", status=405)
            body = await _read(request, session, agent)
            if target.endpoint == _COUNT_TOKENS:
                counted = dialect.read(fields.parse_body(body), None, session._around[agent]).request
                session._refuse_text(agent, body, counted)
                return _json({"input_tokens": await session._count_tokens(agent, counted)})
            parsed = session._read(agent, dialect, body)
            completion = session._complete(agent, parsed, delivery)
            if parsed.stream:
                return await _stream(request, dialect, parsed, session, completion, delivery)
            return _json(dialect.answer(await completion, parsed, session.model))
        except RequestRefused as refused:
            refusal = refused
        except ConnectionError as error:
            # The client is gone, since a conversation's errors are `RequestRefused` by now. It is not told of this, but
            # aiohttp would log an exception as an error of this server.
            refusal = _internal_error(error)
        except Exception as error:
            log.exception("the gateway failed")
            refusal = _internal_error(error)
        delivery.fail()
        return _refusal(dialect or chat.DIALECT, refusal)

    def _find(self, target: Target) -> tuple[ModelGatewaySession, str]:
        for key, agent in target.callers:
            if key in self._sessions:
                return self._sessions[key], agent
        if any(key in self._ended_keys for key, _ in target.callers):
            raise _rollout_ended()
        raise RequestRefused(
            "no rollout has this key; use the address or the API key that the rollout was given",
            status=401,
            code="invalid_api_key",
        )


def _about_models(request: web.BaseRequest, target: Target, session: ModelGatewaySession) -> Json:
    endpoint, _, name = target.endpoint.partition("/")
    if endpoint != "models" or request.method not in ("GET", "HEAD"):
        request_line = f"{request.method} {request.rel_url.raw_path}"[:200].replace(session.key, "<key>")
        raise RequestRefused(f"{request_line} is not served; {_SERVED} are", status=404, code="not_found")
    return models(unquote(name), session.model)


def models(name: str, model: str) -> Json:
    """The one model, or a list of it without a ``name``, as the clients of OpenAI and Anthropic both read it."""
    if name and name != model:
        raise RequestRefused(f"unknown model {name!r}, only {model!r}", status=404, code="model_not_found")
    entry: Json = {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "aworld-train",
        "type": "model",
        "display_name": model,
        "created_at": "1970-01-01T00:00:00Z",
    }
    if name:
        return entry
    return {"object": "list", "data": [entry], "has_more": False, "first_id": model, "last_id": model}


def _request(
    message: RawRequestMessage, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


async def _read(request: web.BaseRequest, session: ModelGatewaySession, agent: str) -> bytes:
    """A request's body; of one with too much text, no more is done than counting it."""
    try:
        if request.content.is_eof():  # most bodies arrive together with their headers
            body = await request.read()
        else:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        session._conversation(agent).note_overlong()
        raise RequestRefused(
            f"the body is larger than {MAX_BODY_BYTES >> 20} MB", status=413, code="request_too_large"
        ) from None
    except TimeoutError:
        raise RequestRefused(
            f"the body did not come within {_BODY_SECONDS:g} s", status=408, code="request_timeout"
        ) from None
    except web.RequestPayloadError as error:
        raise RequestRefused(f"the body cannot be read: {error}", code="invalid_body") from None
    session._refuse_text(agent, body)
    return body


async def _stream(
    request: web.BaseRequest,
    dialect: Dialect,
    parsed: ParsedRequest,
    session: ModelGatewaySession,
    completion: Coroutine[Any, Any, Sequence[Completion]],
    delivery: Delivery,
) -> web.StreamResponse:
    """An answer as events; if it is late, comments come first and keep the connection alive."""
    task = asyncio.create_task(completion)
    task.add_done_callback(_retrieve_exception)
    response = web.StreamResponse(headers=_STREAM_HEADERS)
    try:
        while not (await asyncio.wait([task], timeout=_KEEP_ALIVE_SECONDS))[0]:
            if not response.prepared:
                await response.prepare(request)
            await response.write(_COMMENT)
    finally:
        task.cancel()  # if the client has left; it is done otherwise
    if not response.prepared:
        events = b"".join(dialect.events(task.result(), parsed, session.model))
        return web.Response(body=events, headers=_STREAM_HEADERS)
    try:
        events = b"".join(dialect.events(task.result(), parsed, session.model))
    except RequestRefused as refused:
        events = dialect.error_event(refused)
    except Exception as error:
        log.exception("the gateway failed")
        delivery.fail()
        events = dialect.error_event(_internal_error(error))
    delivery.written_as(response)
    # At once: a client may leave when it has read the last event.
    await response.write_eof(events)
    return response


def _retrieve_exception(task: "asyncio.Task[Sequence[Completion]]") -> None:
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would log it when the client is gone


def _json(body: Json) -> web.Response:
    return web.Response(body=encode(body), content_type="application/json")


def _refusal(dialect: Dialect, refused: RequestRefused) -> web.Response:
    return web.Response(
        body=encode(dialect.error(refused)),
        status=refused.status,
        headers=_NO_RETRY,
        content_type="application/json",
    )


def _rollout_ended() -> RequestRefused:
    return RequestRefused("the rollout that this key was for has ended", status=410, code="rollout_ended")


def _internal_error(error: BaseException) -> RequestRefused:
    return RequestRefused(f"the model failed: {type(error).__name__}", status=500, code="internal_error")


_gateways: "WeakKeyDictionary[asyncio.AbstractEventLoop, ModelGateway]" = WeakKeyDictionary()
_start_locks: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


async def model_gateway() -> ModelGateway:
    """The model gateway of this event loop, started at the first call."""
    loop = asyncio.get_running_loop()
    async with _start_locks.setdefault(loop, asyncio.Lock()):
        if loop not in _gateways:
            gateway = ModelGateway()
            await gateway.start()
            _gateways[loop] = gateway
    return _gateways[loop]
