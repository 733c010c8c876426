"""Each rollout and each agent has its own conversation, as long as the rollout lasts."""

import asyncio
import gc
import json
import logging
from typing import Any
from urllib.parse import quote

import aiohttp
import anthropic
import openai
import pytest

from aworld_train.episode.message import Message
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import ModelGateway, app
from aworld_train.rollout.model_gateway.app import model_gateway
from aworld_train.rollout.model_gateway.delivery import Delivery
from aworld_train.rollout.response_constraints import RequestRules
from tests.gateways import MODEL, Scripted, rollout_session, serving
from tests.vision import data_url, png

USER: Any = [{"role": "user", "content": "1+1?"}]
TWO = Completion("Two.", tokens=[1])


def echoed(request: ChatRequest) -> Completion:
    """Answers with the last message."""
    return Completion(request.messages[-1].content, tokens=[1])


def client(url: str, key: str = "dummy") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, timeout=120)


async def echo(ai: openai.AsyncOpenAI, text: str) -> str | None:
    messages: Any = [{"role": "user", "content": text}]
    got = await ai.chat.completions.create(model="m", messages=messages)
    return got.choices[0].message.content


async def ask(url: str, key: str = "dummy") -> str | None:
    async with client(url, key) as ai:
        return await echo(ai, "1+1?")


class Named:
    """Conversations by the agent's name, each of which answers with it."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, agent: str) -> Scripted:
        self.names.append(agent)
        return Scripted([Completion(agent, tokens=[1])])


async def test_an_agent_is_named_by_its_address_or_its_key_and_made_once() -> None:
    named = Named()
    async with serving() as gateway:
        session = gateway.open_session(MODEL, named)
        common = gateway.url + "/v1"
        assert await ask(session.address()) == "agent"
        assert await ask(session.address("critic")) == "critic"
        assert await ask(common, session.api_key()) == "agent"
        assert await ask(common, session.api_key("critic")) == "critic"
        assert await ask(session.address("agent"), session.api_key("critic")) == "agent"
        async with anthropic.AsyncAnthropic(base_url=gateway.url, auth_token=session.api_key("critic")) as ai:
            got: Any = await ai.messages.create(model="m", max_tokens=9, messages=USER)
            assert got.content[0].text == "critic"
    assert named.names == ["agent", "critic"]


@pytest.mark.parametrize(
    "agent",
    [
        "",
        ".",
        "..",
        "~",
        "~~x",
        "a/b",
        "a b",
        "ключ",
        "😀",
        "%2F",
        "a.b",
        "?#",
        "a/../b",
        "\n",
        "+",
        "x" * 500,
    ],
)
async def test_agents_may_have_any_name(agent: str) -> None:
    async with serving() as gateway:
        session = gateway.open_session(MODEL, Named())
        assert await ask(session.address(agent)) == agent
        assert await ask(gateway.url + "/v1", session.api_key(agent)) == agent
        async with aiohttp.ClientSession() as http:  # has its own way with URLs
            url = session.address(agent) + "/chat/completions"
            async with http.post(url, json={"messages": USER}) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == agent


async def test_an_agent_that_the_rollout_does_not_know_is_refused() -> None:
    def conversation_of(agent: str) -> Scripted:
        raise RequestRefused(f"there is no agent {agent!r}", status=404, code="no_such_agent")

    async with serving() as gateway, client(gateway.open_session(MODEL, conversation_of).address("x")) as ai:
        with pytest.raises(openai.NotFoundError, match="no agent 'x'"):
            await ai.chat.completions.create(model="m", messages=USER)


@pytest.mark.parametrize("key", ["dummy", "", ".agent", "x.y", "Bearer"])
async def test_an_unknown_key_is_refused(key: str) -> None:
    async with rollout_session(TWO) as (session, scripted):
        root = session.root().partition("/rollouts/")[0]
        urls = [root + "/v1", f"{root}/rollouts/{quote(key) or '-'}/v1", f"{root}/rollouts/x/agents/y/v1"]
        async with aiohttp.ClientSession() as http:
            for url in urls:
                for path in ("/chat/completions", "/responses", "/messages"):
                    headers = {"Authorization": f"Bearer {key}", "x-api-key": key}
                    async with http.post(url + path, json={"messages": USER}, headers=headers) as response:
                        assert response.status == 401
                        assert response.headers["x-should-retry"] == "false"
                        assert (await response.json())["error"]["type"] == "authentication_error"
                async with http.get(url + "/models", headers=headers) as response:
                    assert response.status == 401
    assert scripted.requests == []


async def test_keys_differ_and_open_their_own_rollout_only() -> None:
    async with serving() as gateway:
        sessions = [
            gateway.open_session(MODEL, lambda agent, index=index: Scripted([Completion(str(index))]))
            for index in range(3)
        ]
        assert len({one.key for one in sessions}) == 3
        assert {len(one.key) for one in sessions} == {32}
        assert [await ask(one.address()) for one in sessions] == ["0", "1", "2"]
        sessions[1].close()
        assert await ask(sessions[2].address()) == "2"
        with pytest.raises(openai.APIStatusError):
            await ask(sessions[1].address())


async def test_sixty_four_rollouts_at_once_get_their_own_answers() -> None:
    gate = asyncio.Event()
    async with serving() as gateway:
        scripts = [Scripted([echoed], gate) for _ in range(64)]
        sessions = [gateway.open_session(MODEL, lambda agent, one=one: one) for one in scripts]
        async with client(gateway.url) as ai:  # its connections, of which each rollout gets its own
            request_tasks = [
                asyncio.create_task(echo(ai.with_options(base_url=one.address()), f"t{index}"))
                for index, one in enumerate(sessions)
            ]
            async with asyncio.timeout(20):
                for one in scripts:
                    await one.started.wait()
                gate.set()
                assert await asyncio.gather(*request_tasks) == [f"t{index}" for index in range(64)]
    assert [len(one.requests) for one in scripts] == [1] * 64


async def test_one_agent_may_ask_several_things_at_once() -> None:
    async with rollout_session(echoed) as (session, scripted), client(session.address()) as ai:
        answers = await asyncio.gather(*(echo(ai, f"t{index}") for index in range(20)))
    assert answers == [f"t{index}" for index in range(20)]
    assert len(scripted.requests) == 20


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_ends_what_is_under_way_and_refuses_what_comes_later(stream: bool) -> None:
    async with (
        rollout_session(TWO, gate=asyncio.Event()) as (session, scripted),
        client(session.address()) as ai,
    ):
        request_task = asyncio.create_task(
            ai.chat.completions.create(model="m", messages=USER, stream=stream)
        )
        await asyncio.wait_for(scripted.started.wait(), 120)
        session.close()
        for request in (request_task, ai.chat.completions.create(model="m", messages=USER)):
            with pytest.raises(openai.APIStatusError) as caught:
                await asyncio.wait_for(request, 120)
            assert (caught.value.status_code, caught.value.code) == (410, "rollout_ended")
        session.close()
        with pytest.raises(openai.APIStatusError, match="rollout that this key was for has ended"):
            await ai.models.list()
    assert len(scripted.requests) == 1
    assert scripted.cancelled.is_set()


async def test_closing_ends_a_stream_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", 0.01)
    async with (
        rollout_session(TWO, gate=asyncio.Event()) as (session, scripted),
        client(session.address()) as ai,
    ):
        stream = await ai.chat.completions.create(model="m", messages=USER, stream=True)
        session.close()
        with pytest.raises(openai.APIError, match="has ended"):
            async for _chunk in stream:
                pass
    assert scripted.cancelled.is_set()


async def test_a_rollout_that_ends_while_a_body_comes_is_not_asked_any_more() -> None:
    async with rollout_session(TWO) as (session, scripted):
        halfway = asyncio.Event()

        async def slowly() -> Any:
            yield b'{"messages": '
            await halfway.wait()
            yield json.dumps(USER).encode() + b"}"

        async with aiohttp.ClientSession() as http:
            url = session.address() + "/chat/completions"
            request_task = asyncio.create_task(http.post(url, data=slowly()))
            await asyncio.sleep(0.1)
            session.close()
            halfway.set()
            async with asyncio.timeout(120):
                assert (await request_task).status == 410
    assert scripted.requests == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep_alive", [0.01, 15])
async def test_a_client_that_breaks_off_cancels_its_request(
    stream: bool, keep_alive: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._KEEP_ALIVE_SECONDS", keep_alive)
    async with rollout_session(TWO, gate=asyncio.Event()) as (session, scripted):
        async with client(session.address()) as ai:
            request_task = asyncio.create_task(
                ai.chat.completions.create(model="m", messages=USER, stream=stream)
            )
            await asyncio.wait_for(scripted.started.wait(), 120)
            assert not scripted.cancelled.is_set()
            request_task.cancel()
        await asyncio.wait_for(scripted.cancelled.wait(), 120)
        assert not session._tasks
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_client_that_is_gone_when_a_late_stream_is_written_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def write_eof(response: aiohttp.web.StreamResponse, data: bytes = b"") -> None:
        if type(response) is aiohttp.web.StreamResponse:
            assert response._req is not None and response._req.transport is not None
            response._req.transport.close()
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        await finish(response, data)

    finish = aiohttp.web.StreamResponse.write_eof
    monkeypatch.setattr(aiohttp.web.StreamResponse, "write_eof", write_eof)
    monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", 0.01)
    gate = asyncio.Event()
    async with rollout_session(TWO, gate=gate) as (session, scripted), aiohttp.ClientSession() as http:
        body = {"messages": USER, "stream": True}
        async with http.post(session.address() + "/chat/completions", json=body) as response:
            gate.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
    assert (scripted.lost, scripted.sent) == ([TWO], 1)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(("stream", "late"), [(False, False), (True, False), (True, True)])
async def test_of_several_choices_none_was_received_where_one_is_refused(
    stream: bool, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", 0.01 if late else 15.0)
    gate, refused = asyncio.Event(), RequestRefused("no turn is left")
    async with (
        rollout_session(TWO, refused, gate=gate) as (session, scripted),
        aiohttp.ClientSession() as http,
    ):
        if not late:
            gate.set()
        body = {"messages": USER, "n": 2, "stream": stream}
        async with http.post(session.address() + "/chat/completions", json=body) as response:
            gate.set()  # a late stream has begun by now
            assert "no turn is left" in await response.text()
    assert scripted.lost == [TWO]


class Choosy(Scripted):
    """Refuses its first request once the second has come, which takes until it is cancelled and a while longer."""

    ended = False

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(request)
        if len(self.requests) == 1:
            await self.started.wait()
            raise RequestRefused("no turn is left")
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(1000):
                await asyncio.sleep(0)
            self.ended = True
        raise AssertionError


async def test_of_several_choices_all_have_ended_before_the_refusal_of_one() -> None:
    conversation = Choosy([])
    async with (
        serving() as gateway,
        client(gateway.open_session(MODEL, lambda _: conversation).address()) as ai,
    ):
        with pytest.raises(openai.BadRequestError, match="no turn is left"):
            await ai.chat.completions.create(model="m", messages=USER, n=2)
        assert conversation.ended


@pytest.mark.parametrize(("stream", "late"), [(False, False), (True, False), (True, True)])
async def test_an_answer_that_cannot_be_written_is_a_failure_and_lost(
    stream: bool, late: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("secret")

    monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", 0.01 if late else 15.0)
    monkeypatch.setattr("aworld_train.rollout.model_gateway.anthropic._blocks", fail)
    gate = asyncio.Event()
    async with rollout_session(TWO, gate=gate) as (session, scripted), aiohttp.ClientSession() as http:
        if not late:
            gate.set()
        body = {"messages": USER, "stream": stream}
        async with http.post(session.address() + "/messages", json=body) as response:
            gate.set()
            text = await response.text()
        error = json.loads(text.partition("data: ")[2] if late else text)["error"]
        assert (error["type"], error["message"]) == ("api_error", "the model failed: ValueError")
        assert (response.status, scripted.lost) == (200 if late else 500, [TWO])
    assert "secret" in caplog.text


async def test_a_late_stream_begins_with_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, pending = asyncio.wait, [(set(), set())]

    async def wait_later(tasks: Any, **options: Any) -> Any:
        return pending.pop() if pending else await wait(tasks, **options)

    async with rollout_session(TWO) as (session, _), aiohttp.ClientSession() as http:
        monkeypatch.setattr(asyncio, "wait", wait_later)
        body = {"messages": USER, "stream": True}
        async with http.post(session.address() + "/chat/completions", json=body) as response:
            assert (await response.text()).startswith(": sampling\n\ndata: {")


async def test_a_request_that_is_cancelled_stays_so_unless_its_rollout_has_ended() -> None:
    conversation = Scripted([TWO], asyncio.Event())
    session = ModelGateway().open_session(MODEL, lambda _: conversation)
    request = ChatRequest((Message("user", "1+1?"),))
    left, ended = (asyncio.create_task(session._sample("a", request, Delivery())) for _ in range(2))
    await conversation.started.wait()
    assert len(conversation.requests) == 2
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    session.close()
    with pytest.raises(RequestRefused, match="has ended"):
        await ended
    assert (left.cancelling(), ended.cancelling()) == (1, 0)


async def test_of_a_connection_that_breaks_no_answer_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*arguments: Any) -> Any:
        await next(argument for argument in arguments if asyncio.iscoroutine(argument))
        raise ConnectionResetError

    monkeypatch.setattr(app, "_stream", breaks)
    async with rollout_session(TWO) as (session, scripted), aiohttp.ClientSession() as http:
        body = {"messages": USER, "stream": True}
        async with http.post(session.address() + "/chat/completions", json=body) as response:
            assert (response.status, scripted.lost) == (500, [TWO])


async def test_an_answer_that_was_read_is_not_lost() -> None:
    async with rollout_session(TWO) as (session, scripted):
        await ask(session.address())
    assert scripted.lost == []


async def test_a_failure_of_a_conversation_whose_client_has_left_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Scripted):
        async def complete(self, request: ChatRequest) -> Completion:
            try:
                return await super().complete(request)
            except asyncio.CancelledError:
                raise ValueError from None

    conversation = Failing([TWO], asyncio.Event())
    async with serving() as gateway:
        session = gateway.open_session(MODEL, lambda _: conversation)
        async with client(session.address()) as ai:
            task = asyncio.create_task(ai.chat.completions.create(model="m", messages=USER, stream=True))
            await asyncio.wait_for(conversation.started.wait(), 120)
            task.cancel()
        await asyncio.wait_for(conversation.cancelled.wait(), 120)
    gc.collect()
    assert [record.message for record in caplog.records] == ["a conversation failed"]


async def test_what_an_agent_sends_again_is_not_read_again() -> None:
    async with rollout_session(TWO) as (session, scripted):
        for agent in (None, None, "critic"):
            await ask(session.address(agent))
    first, again, other = (request.messages[0] for request in scripted.requests)
    assert first is again and first is not other


async def test_a_client_that_gives_up_waiting_cancels_its_request() -> None:
    async with (
        rollout_session(TWO, gate=asyncio.Event()) as (session, scripted),
        openai.AsyncOpenAI(base_url=session.address(), api_key="dummy", timeout=1.0, max_retries=0) as ai,
    ):
        with pytest.raises(openai.APITimeoutError):
            await ai.chat.completions.create(model="m", messages=USER)
        await asyncio.wait_for(scripted.cancelled.wait(), 120)


async def test_stopping_ends_what_is_under_way() -> None:
    gateway, scripted = ModelGateway(), Scripted([TWO], asyncio.Event())
    await gateway.start()
    session = gateway.open_session(MODEL, lambda agent: scripted)
    address = session.address()
    async with client(address) as ai:
        request_task = asyncio.create_task(ai.chat.completions.create(model="m", messages=USER))
        await asyncio.wait_for(scripted.started.wait(), 120)
        async with asyncio.timeout(4):
            await gateway.stop()
        with pytest.raises(openai.APIStatusError) as caught:
            await request_task
    assert caught.value.status_code == 410
    assert scripted.cancelled.is_set()
    with pytest.raises(RuntimeError, match="not been started"):
        session.address()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2].partition("/")[0]))


async def test_it_listens_on_loopback_alone_and_starts_once() -> None:
    async with serving() as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
        with pytest.raises(RuntimeError, match="already"):
            await gateway.start()


async def test_the_rollouts_model_is_the_only_one() -> None:
    async with rollout_session(TWO) as (session, _):
        async with client(session.address()) as ai:
            assert [one.id async for one in ai.models.list()] == [MODEL]
            assert (await ai.models.retrieve(MODEL)).id == MODEL
            with pytest.raises(openai.NotFoundError, match="unknown model 'gpt"):
                await ai.models.retrieve("gpt")
        async with anthropic.AsyncAnthropic(base_url=session.root(), api_key="dummy") as other:
            assert [one.id async for one in other.models.list()] == [MODEL]
            assert (await other.models.retrieve(MODEL)).display_name == MODEL


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/chat/completions", 405),
        ("POST", "/completions", 400),
        ("POST", "/responses/input_tokens", 404),
        ("POST", "/embeddings", 404),
        ("POST", "/models", 404),
        ("GET", "", 404),
        ("POST", "//chat//completions", 200),
    ],
)
async def test_what_is_not_served_says_what_is(method: str, path: str, status: int) -> None:
    async with (
        rollout_session(TWO) as (session, _),
        aiohttp.ClientSession() as http,
        http.request(method, session.address() + path, json={"messages": USER}) as response,
    ):
        text = await response.text()
    assert response.status == status, text
    assert session.key not in text
    assert status == 200 or json.loads(text)["error"]["message"]


async def test_a_refusal_of_what_is_not_served_names_it_without_the_key() -> None:
    async with rollout_session(TWO) as (session, _), aiohttp.ClientSession() as http:
        async with http.head(session.address() + "/models") as response:
            assert response.status == 200
        async with http.get(session.address() + "/" + "x" * 300) as response:
            message = (await response.json())["error"]["message"]
        line = f"GET /rollouts/{session.key}/v1/{'x' * 300}"[:200].replace(session.key, "<key>")
        assert message == f"{line} is not served; {app._SERVED} are"


async def test_an_event_loop_has_one_gateway() -> None:
    gateways = await asyncio.gather(model_gateway(), model_gateway())
    assert gateways[0] is gateways[1] is await model_gateway()
    assert await ask(gateways[0].open_session(MODEL, lambda _: Scripted([TWO])).address()) == "Two."
    await gateways[0].stop()


async def test_a_body_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.MAX_BODY_BYTES == 64 << 20
    monkeypatch.setattr(app, "MAX_BODY_BYTES", 4 << 20)
    async with rollout_session(TWO) as (session, scripted), client(session.address()) as ai:
        with pytest.raises(openai.APIStatusError) as caught:
            messages: Any = [{"role": "user", "content": "x" * (5 << 20)}]
            await ai.chat.completions.create(model="m", messages=messages)
        assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
        assert scripted.overlong == 1
        messages = [{"role": "user", "content": "x" * (3 << 20)}]
        await ai.chat.completions.create(model="m", messages=messages)
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a"}] * 40_000,
        [{"role": "user", "content": "so much text " * 90_000}],
        [{"role": "user", "content": "a" * (1 << 20)}],  # as long as a file, and none
    ],
    ids=["many", "long", "like Base64"],
)
@pytest.mark.parametrize("endpoint", ["chat/completions", "messages/count_tokens"])
async def test_a_request_with_more_text_than_the_context_holds_is_refused_before_it_is_rendered(
    messages: Any, endpoint: str
) -> None:
    rules = RequestRules(max_text_bytes=1_000_000, no_images="")
    scripted = Scripted([TWO])
    async with serving() as gateway, aiohttp.ClientSession() as http:
        session = gateway.open_session(MODEL, lambda agent: scripted, rules)
        body = {"model": "m", "max_tokens": 5, "messages": messages}
        async with http.post(f"{session.address()}/{endpoint}", json=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "context_length_exceeded"
    assert (scripted.requests, scripted.overlong) == ([], 1)


async def test_the_images_of_a_request_are_no_text() -> None:
    url = {"url": data_url(png() + bytes(1_000_000))}
    messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    scripted = Scripted([TWO])
    async with serving() as gateway:
        rules = RequestRules(max_text_bytes=100_000, no_images="")
        async with client(gateway.open_session(MODEL, lambda _: scripted, rules).address()) as ai:
            await ai.chat.completions.create(model="m", messages=messages)
    assert len(scripted.requests) == 1


async def test_a_body_that_cannot_be_read_is_refused() -> None:
    async with rollout_session(TWO) as (session, scripted), aiohttp.ClientSession() as http:
        url = session.address() + "/chat/completions"
        async with http.post(url, data=b"no gzip", headers={"Content-Encoding": "gzip"}) as response:
            assert response.status == 400
    assert scripted.requests == []


async def test_a_client_that_would_rather_speak_http_2_is_answered() -> None:
    """Java's own client asks for it with every request, the body included, and takes the answer that comes."""
    async with rollout_session(TWO) as (session, scripted), aiohttp.ClientSession() as http:
        url = session.address() + "/chat/completions"
        upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAA"}
        for _ in range(2):
            async with http.post(url, json={"model": MODEL, "messages": USER}, headers=upgrade) as response:
                assert response.status == 200
                assert (await response.json())["choices"][0]["message"]["content"] == "Two."
    assert len(scripted.requests) == 2


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.rollout.model_gateway.app._BODY_SECONDS", 0.1)
    async with rollout_session(TWO) as (session, _), asyncio.timeout(120):
        host, _, port = session.root().removeprefix("http://").partition("/")[0].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = session.address().partition(port)[2] + "/chat/completions"
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{{".encode())
        assert b" 408 " in await reader.readline()
        writer.close()
