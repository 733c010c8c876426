"""Outside language models: their answers are returned, their errors are reported, and their key is never shown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.context import ContextSettings, ContextView
from aworld_train.rollout.endpoint import Endpoint, EndpointFailed, Failover
from aworld_train.rollout.outcome import ToolHelperFailed

KEY = "sk-very-secret"
VARIABLE = "SUMMARIZER_KEY"
ASKED = [Message("system", "Sum up."), Message("user", "What is 6*7?")]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """A chat endpoint that does what the test wants."""

    handler: Handler
    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.json())
        return await self.handler(request)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Server]:
    server = Server(handler)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def says(content: Any) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": content}}]})

    return handler


def sends(text: str, status: int = 200) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return handler


def endpoint(url: str, **more: Any) -> Endpoint:
    return Endpoint.read("helper", {"url": url, "model": "big", **more})


async def failure(endpoint_or_failover: Endpoint | Failover) -> str:
    with pytest.raises(EndpointFailed) as caught:
        await endpoint_or_failover.ask(ASKED)
    assert caught.value.outcome is Outcome.provider
    return str(caught.value)


async def test_the_answer_is_the_model_s_text_and_the_question_is_what_was_asked() -> None:
    async with serving(says("forty-two")) as server:
        assert await endpoint(server.url + "/").ask(ASKED) == "forty-two"
    [body] = server.bodies
    assert body["model"] == "big"
    assert [(m["role"], m["content"]) for m in body["messages"]] == [(m.role, m.content) for m in ASKED]
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("written", [KEY, f"{KEY}\n", f" {KEY}\r\n"])
async def test_the_key_goes_with_the_request_as_a_bearer(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv(VARIABLE, written)
    async with serving(says("yes")) as server:
        await endpoint(server.url, key_variable=VARIABLE).ask(ASKED)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_a_missing_key_is_said_by_its_variable_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(says("yes")) as server:
        for value in (None, "", "\n"):
            monkeypatch.delenv(VARIABLE, raising=False) if value is None else monkeypatch.setenv(
                VARIABLE, value
            )
            error_message = await failure(endpoint(server.url, key_variable=VARIABLE))
            assert error_message == (
                f"the endpoint helper gave no answer: The key in the environment variable {VARIABLE} is missing."
            )
    assert server.bodies == []


async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in (f"{KEY}\nX-Other: 1", f"{KEY}é"):
        monkeypatch.setenv(VARIABLE, value)
        error_message = await failure(endpoint("http://127.0.0.1:9/v1", key_variable=VARIABLE))
        assert VARIABLE in error_message
        assert KEY not in error_message


async def test_a_server_that_repeats_the_key_does_not_bring_it_into_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)

    async def repeats(request: web.Request) -> web.StreamResponse:
        # Cut off in the middle of the key, if it were cut before the key was taken out.
        return web.Response(text="x" * 190 + request.headers["Authorization"], status=401)

    async with serving(repeats) as server:
        error_message = await failure(endpoint(server.url, key_variable=VARIABLE))
    assert "HTTP 401" in error_message
    assert "sk-" not in error_message


async def test_an_http_error_is_said_with_its_status_and_the_beginning_of_its_text() -> None:
    async with serving(sends("overloaded " + "x" * 10_000, 500)) as server:
        error_message = await failure(endpoint(server.url))
    assert error_message.startswith("the endpoint helper gave no answer: HTTP 500 'overloaded xxx")
    assert len(error_message) < 300


@pytest.mark.parametrize(
    "body",
    [
        *("<html>", "[]", "{}", "null", "7", '{"choices": []}', '{"choices": [{}]}', '{"choices": {"a": 1}}'),
        '{"choices": [{"message": {"content": 5}}]}',
        pytest.param("[" * 100_000, id="nested"),
    ],
)
async def test_nonsense_is_no_answer(body: str) -> None:
    async with serving(sends(body)) as server:
        error_message = await failure(endpoint(server.url))
    assert error_message.startswith("the endpoint helper gave no answer: its answer is not ")


@pytest.mark.parametrize("content", ["", " \n", None, []])
async def test_an_answer_without_text_is_none(content: Any) -> None:
    async with serving(says(content)) as server:
        assert await failure(endpoint(server.url)) == "the endpoint helper answered with nothing"


async def test_a_server_that_is_not_there_is_no_answer() -> None:
    error_message = await failure(endpoint("http://127.0.0.1:9/v1"))
    assert error_message.startswith("the endpoint helper gave no answer: ConnectError")


async def test_an_address_that_is_none_is_no_answer() -> None:
    error_message = await failure(endpoint("http://127.0.0.1:port/v1"))
    assert error_message.startswith(
        "the endpoint helper gave no answer: http://127.0.0.1:port/v1 is not the address of an endpoint"
    )


async def test_a_redirect_is_not_followed() -> None:
    async with serving(says("stolen")) as other:

        async def redirects(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"{other.url}/chat/completions")

        async with serving(redirects) as server:
            error_message = await failure(endpoint(server.url))
    assert error_message == "the endpoint helper gave no answer: HTTP 307 '307: Temporary Redirect'"
    assert other.bodies == []


async def test_requests_share_a_connection() -> None:
    ports = []

    async def notes_the_port(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return await says("yes")(request)

    async with serving(notes_the_port) as server:
        for _ in range(3):
            await endpoint(server.url).ask(ASKED)
    assert len(ports) == 3
    assert len(set(ports)) == 1


async def says_nothing(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def drips(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("slow", [says_nothing, drips])
async def test_a_slow_server_is_given_up_even_if_it_sends_a_byte_now_and_then(slow: Handler) -> None:
    async with serving(slow) as server:
        error_message = await failure(endpoint(server.url, timeout=0.5))
    assert error_message == "the endpoint helper gave no answer: no answer in 0.5 seconds"


async def test_the_next_is_asked_only_if_the_one_before_failed() -> None:
    async with serving(sends("", 503)) as broken, serving(says("yes")) as good, serving(says("no")) as spare:
        servers = Failover([endpoint(server.url) for server in (broken, good, spare)])
        assert await servers.ask(ASKED) == "yes"
    assert [len(server.bodies) for server in (broken, good, spare)] == [1, 1, 0]


@pytest.mark.parametrize(("statuses", "is_permanent"), [((401, 402), True), ((401, 503), False)])
async def test_a_failure_is_permanent_where_every_endpoint_refuses(
    statuses: tuple[int, int], is_permanent: bool
) -> None:
    async with serving(sends("no", statuses[0])) as first, serving(sends("no", statuses[1])) as second:
        servers = Failover([endpoint(server.url, timeout=0.5) for server in (first, second)])
        view = ContextView(ContextSettings(condense_over=0, condenser=servers.ask))
        with pytest.raises(ToolHelperFailed) as caught:
            await view.of(
                [Message("user", "?"), Message("assistant", ""), Message("tool", "long", call_id="1")]
            )
    assert caught.value.is_permanent == is_permanent


async def test_if_none_answers_each_says_why() -> None:
    async with serving(sends("", 503)) as broken, serving(says("")) as empty:
        first = Endpoint("first", broken.url, "m")
        second = Endpoint("second", empty.url, "m")
        error_message = await failure(Failover([first, second]))
    assert (
        error_message
        == "the endpoint first gave no answer: HTTP 503 ''; the endpoint second answered with nothing"
    )
