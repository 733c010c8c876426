"""Each rollout and each agent has its own conversation, as long as the rollout lasts."""

import asyncio
import json
import logging
from typing import Any
from urllib.parse import quote

import aiohttp
import anthropic
import openai
import pytest

from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway import ModelGateway, app
from tests.gateways import MODEL, Scripted, rollout_session, serving

USER: Any = [{"role": "user", "content": "1+1?"}]
TWO = Completion("Two.", tokens=[1])


def echoed(request: ChatRequest) -> Completion:
    """Answers with the last message."""
    return Completion(request.messages[-1].content, tokens=[1])


def client(url: str, key: str = "dummy") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, timeout=20)


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
        await asyncio.wait_for(scripted.started.wait(), 10)
        session.close()
        for request in (request_task, ai.chat.completions.create(model="m", messages=USER)):
            with pytest.raises(openai.APIStatusError) as caught:
                await asyncio.wait_for(request, 10)
            assert (caught.value.status_code, caught.value.code) == (410, "rollout_ended")
        session.close()
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
            async with asyncio.timeout(10):
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
            await asyncio.wait_for(scripted.started.wait(), 10)
            assert not scripted.cancelled.is_set()
            request_task.cancel()
        await asyncio.wait_for(scripted.cancelled.wait(), 10)
        assert not session._tasks
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


async def test_a_client_that_gives_up_waiting_cancels_its_request() -> None:
    async with (
        rollout_session(TWO, gate=asyncio.Event()) as (session, scripted),
        openai.AsyncOpenAI(base_url=session.address(), api_key="dummy", timeout=1.0, max_retries=0) as ai,
    ):
        with pytest.raises(openai.APITimeoutError):
            await ai.chat.completions.create(model="m", messages=USER)
        await asyncio.wait_for(scripted.cancelled.wait(), 10)


async def test_stopping_ends_what_is_under_way() -> None:
    gateway, scripted = ModelGateway(), Scripted([TWO], asyncio.Event())
    await gateway.start()
    session = gateway.open_session(MODEL, lambda agent: scripted)
    async with client(session.address()) as ai:
        request_task = asyncio.create_task(ai.chat.completions.create(model="m", messages=USER))
        await asyncio.wait_for(scripted.started.wait(), 10)
        async with asyncio.timeout(4):
            await gateway.stop()
        with pytest.raises(openai.APIStatusError) as caught:
            await request_task
    assert caught.value.status_code == 410
    assert scripted.cancelled.is_set()
    with pytest.raises(RuntimeError, match="not been started"):
        session.address()


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
            with pytest.raises(openai.NotFoundError, match="no model 'gpt"):
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


async def test_a_body_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.MAX_BODY_BYTES == 64 << 20
    monkeypatch.setattr(app, "MAX_BODY_BYTES", 4 << 20)
    async with rollout_session(TWO) as (session, scripted), client(session.address()) as ai:
        with pytest.raises(openai.APIStatusError) as caught:
            messages: Any = [{"role": "user", "content": "x" * (5 << 20)}]
            await ai.chat.completions.create(model="m", messages=messages)
        assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
        messages = [{"role": "user", "content": "x" * (3 << 20)}]
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
    async with rollout_session(TWO) as (session, _), asyncio.timeout(10):
        host, _, port = session.root().removeprefix("http://").partition("/")[0].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = session.address().partition(port)[2] + "/chat/completions"
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{{".encode())
        assert b" 408 " in await reader.readline()
        writer.close()
