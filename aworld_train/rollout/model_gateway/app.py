"""The server: which rollout a request belongs to, whether that still runs, and an answer in every case.

One server for a process, on loopback, and one `ModelGatewaySession` for each rollout, with a key that nobody guesses.
The only wait without a limit of its own is that for `Conversation.complete`: it ends when the rollout does, which has
one, and when the client breaks off. Clients of OpenAI and Anthropic try again by themselves, which would sample twice,
so every error says that they must not.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from aworld_train.rollout.messages import ChatRequest, Completion, Conversation, RequestRefused
from aworld_train.rollout.model_gateway import address, anthropic, chat, models, responses
from aworld_train.rollout.model_gateway.address import Target
from aworld_train.rollout.model_gateway.bodies import BodyReader
from aworld_train.rollout.model_gateway.dialect import Dialect, ParsedRequest, encode
from aworld_train.rollout.model_gateway.fields import Json

log = logging.getLogger(__name__)

BODY_BYTES = 64 << 20
_BODY_SECONDS = 60.0
_KEEP_ALIVE_SECONDS = 15.0
# Longer than any pause between two requests of an agent: a connection that is closed as the next one is sent on it
# looks like an error to the client.
_IDLE_CONNECTION_SECONDS = 3600.0
_STOP_SECONDS = 5.0
_REMEMBERED = 4096
_BACKLOG = 4096  # connections that may wait to be taken: agents of all rollouts begin at the same time
_NO_RETRY = {"x-should-retry": "false"}
_STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_COMMENT = b": sampling\n\n"
_DIALECTS: Mapping[str, Dialect] = {
    "chat/completions": chat.DIALECT,
    "messages": anthropic.DIALECT,
    "responses": responses.DIALECT,
}
_SERVED = "POST /v1/chat/completions, /v1/responses and /v1/messages, and GET /v1/models"


class ModelGatewaySession:
    """One rollout's way to the model, from `LlmGateway.admit` to `close`.

    Attributes:
        key: What stands for the rollout in its addresses and API keys.
        model: The model's name.
    """

    def __init__(self, gateway: "LlmGateway", model: str, conversation_of: Callable[[str], Conversation]):
        self.key = secrets.token_urlsafe(24)
        self.model = model
        self._gateway = gateway
        self._conversation_of = conversation_of
        self._conversations: dict[str, Conversation] = {}
        self._bodies: dict[tuple[str, Dialect], BodyReader] = {}
        self._asked: dict[tuple[str, Dialect], ParsedRequest] = {}
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    def root(self, agent: str | None = None) -> str:
        """The base URL for Anthropic's clients, which add ``/v1`` themselves."""
        return self._gateway.url + address.path(self.key, agent)

    def address(self, agent: str | None = None) -> str:
        """The base URL for OpenAI's clients; it names the rollout, so that any API key will do."""
        return self.root(agent) + "/v1"

    def api_key(self, agent: str | None = None) -> str:
        """The API key for clients of the common address, `LlmGateway.url` with ``/v1``."""
        return address.api_key(self.key, agent)

    def close(self) -> None:
        """Refuse what comes from now on, and cancel what is under way."""
        self._closed = True
        self._gateway._forget(self)
        for task in self._under_way:
            task.cancel()

    def _read(self, agent: str, dialect: Dialect, body: bytes) -> ParsedRequest:
        caller = (agent, dialect)
        if caller not in self._bodies:
            self._bodies[caller] = BodyReader(dialect.history)
        asked = dialect.read(self._bodies[caller].read(body), self._asked.get(caller))
        self._asked[caller] = asked
        return asked

    async def _complete(self, agent: str, request: ChatRequest) -> Completion:
        """The answer, or `RequestRefused` with the reason that there is none."""
        if self._closed:  # while the body came
            raise _ended()
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            if agent not in self._conversations:
                self._conversations[agent] = self._conversation_of(agent)
            return await self._conversations[agent].complete(request)
        except RequestRefused:
            raise
        except asyncio.CancelledError as error:
            if self._closed:
                task.uncancel()
                raise _ended() from None
            if task.cancelling():  # the client has broken off
                raise
            raise _failed(error) from None
        except Exception as error:
            log.exception("a conversation failed")
            raise _failed(error) from None
        finally:
            self._under_way.discard(task)


class LlmGateway:
    """The server."""

    def __init__(self) -> None:
        self._admitted: dict[str, ModelGatewaySession] = {}
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._runner: web.ServerRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        if not self._url:
            raise RuntimeError("the gateway has not been started")
        return self._url

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        if self._runner is not None:
            raise RuntimeError("the gateway has been started already")
        # The server below aiohttp's applications, whose routes and middlewares take as long as all the rest of it.
        server = web.Server(
            self._handle,
            request_factory=_request,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=_IDLE_CONNECTION_SECONDS,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=_BACKLOG).start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close all admissions and stop listening; within seconds, whatever is under way."""
        for admission in list(self._admitted.values()):
            admission.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner, self._url = None, ""

    def admit(self, model: str, conversation_of: Callable[[str], Conversation]) -> ModelGatewaySession:
        """Let a rollout in.

        Args:
            model: The name that answers have; requests may name any.
            conversation_of: An agent's name becomes its conversation; asked when the agent first asks, and never
                again. It may raise `RequestRefused`.
        """
        admission = ModelGatewaySession(self, model, conversation_of)
        self._admitted[admission.key] = admission
        return admission

    def _forget(self, admission: ModelGatewaySession) -> None:
        if self._admitted.pop(admission.key, None):
            self._ended.append(admission.key)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        target = address.read(request.rel_url.raw_path, request.headers)
        dialect = _DIALECTS.get(target.endpoint)
        try:
            admission, agent = self._find(target)
            if dialect is None:
                return _json(_about_models(request, target, admission))
            if request.method != "POST":
                raise RequestRefused(f"{request.method} is not possible here; POST is", status=405)
            asked = admission._read(agent, dialect, await _read(request))
            return await _serve(request, dialect, asked, admission, agent)
        except RequestRefused as refused:
            return _refusal(dialect or chat.DIALECT, refused)
        except ConnectionError:  # the client is gone; a conversation's own have become `RequestRefused`
            raise
        except Exception as error:
            log.exception("the gateway failed")
            return _refusal(dialect or chat.DIALECT, _failed(error))

    def _find(self, target: Target) -> tuple[ModelGatewaySession, str]:
        for key, agent in target.callers:
            if key in self._admitted:
                return self._admitted[key], agent
        if any(key in self._ended for key, _ in target.callers):
            raise _ended()
        raise RequestRefused(
            "no rollout has this key; use the address or the API key that the rollout was given",
            status=401,
            code="invalid_api_key",
        )


def _about_models(request: web.BaseRequest, target: Target, admission: ModelGatewaySession) -> Json:
    endpoint, _, name = target.endpoint.partition("/")
    if endpoint != "models" or request.method not in ("GET", "HEAD"):
        asked = f"{request.method} {request.rel_url.raw_path}"[:200].replace(admission.key, "<key>")
        raise RequestRefused(f"{asked} is not served; {_SERVED} are", status=404, code="not_found")
    return models.one(unquote(name), admission.model) if name else models.listed(admission.model)


def _request(
    message: RawRequestMessage, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES)


async def _read(request: web.BaseRequest) -> bytes:
    try:
        if request.content.is_eof():  # most bodies are there with their heads
            return await request.read()
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise RequestRefused(
            f"the body is larger than {BODY_BYTES >> 20} MB", status=413, code="request_too_large"
        ) from None
    except TimeoutError:
        raise RequestRefused(
            f"the body did not come within {_BODY_SECONDS:g} s", status=408, code="request_timeout"
        ) from None
    except web.RequestPayloadError as error:
        raise RequestRefused(f"the body cannot be read: {error}", code="invalid_body") from None


async def _serve(
    request: web.BaseRequest,
    dialect: Dialect,
    asked: ParsedRequest,
    admission: ModelGatewaySession,
    agent: str,
) -> web.StreamResponse:
    answering = admission._complete(agent, asked.request)
    if asked.stream:
        return await _stream(request, dialect, asked, admission, answering)
    return _json(dialect.answer(await answering, asked, admission.model))


async def _stream(
    request: web.BaseRequest,
    dialect: Dialect,
    asked: ParsedRequest,
    admission: ModelGatewaySession,
    answering: Coroutine[Any, Any, Completion],
) -> web.StreamResponse:
    """An answer as events; where it is late, it begins with comments that tell the client that one is to come."""
    task = asyncio.create_task(answering)
    task.add_done_callback(_seen)
    try:
        if not (await asyncio.wait([task], timeout=_KEEP_ALIVE_SECONDS))[0]:
            return await _stream_late(request, dialect, asked, admission, task)
        events = dialect.events(await task, asked, admission.model)
    finally:
        task.cancel()
    return web.Response(body=b"".join(events), headers=_STREAM_HEADERS)


def _seen(task: "asyncio.Task[Completion]") -> None:
    if not task.cancelled():
        task.exception()  # nobody asks for it where the client is gone, and asyncio would complain


async def _stream_late(
    request: web.BaseRequest,
    dialect: Dialect,
    asked: ParsedRequest,
    admission: ModelGatewaySession,
    task: "asyncio.Task[Completion]",
) -> web.StreamResponse:
    response = web.StreamResponse(headers=_STREAM_HEADERS)
    await response.prepare(request)
    await response.write(_COMMENT)
    while not (await asyncio.wait([task], timeout=_KEEP_ALIVE_SECONDS))[0]:
        await response.write(_COMMENT)
    try:
        events = b"".join(dialect.events(await task, asked, admission.model))
    except RequestRefused as refused:
        events = dialect.error_event(refused)
    except Exception as error:
        log.exception("the gateway failed")
        events = dialect.error_event(_failed(error))
    await response.write(events)
    await response.write_eof()
    return response


def _json(body: Json) -> web.Response:
    return web.Response(body=encode(body), content_type="application/json")


def _refusal(dialect: Dialect, refused: RequestRefused) -> web.Response:
    return web.Response(
        body=encode(dialect.error(refused)),
        status=refused.status,
        headers=_NO_RETRY,
        content_type="application/json",
    )


def _ended() -> RequestRefused:
    return RequestRefused("the rollout that this key was for has ended", status=410, code="rollout_ended")


def _failed(error: BaseException) -> RequestRefused:
    return RequestRefused(f"the model failed: {type(error).__name__}", status=500, code="internal_error")


_gateways: "WeakKeyDictionary[asyncio.AbstractEventLoop, LlmGateway]" = WeakKeyDictionary()
_starting: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


async def llm_gateway() -> LlmGateway:
    """The gateway of this process (of this event loop, where it has several), started when it is first asked for."""
    loop = asyncio.get_running_loop()
    async with _starting.setdefault(loop, asyncio.Lock()):
        if loop not in _gateways:
            gateway = LlmGateway()
            await gateway.start()
            _gateways[loop] = gateway
    return _gateways[loop]
