"""A gateway goes on with a worker that lives, ends what a token may not have, and passes all on."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from aworld_train.serving import tokens
from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.env_gateway import app, pool, proxy_request
from aworld_train.serving.env_gateway.app import RETRY_AFTER, Gateway, GatewayLimits
from aworld_train.serving.env_gateway.connections import listening
from aworld_train.serving.env_gateway.request_limits import HELD_BYTES, WINDOW_BYTES
from aworld_train.serving.env_gateway.waiting import WaitingClient
from aworld_train.serving.env_gateway.worker_client import WorkerClient
from aworld_train.serving.tokens import Revocation, sign, sign_revocation
from tests.environments import HEADERS, HELLO, eventually, is_listening
from tests.unit.serving.worker.test_app import SECRET, WITHIN, worker

LIMITS = GatewayLimits(queue_seconds=WITHIN)


class Client(NamedTuple):
    """How to speak to a gateway, and the gateway."""

    http: aiohttp.ClientSession
    url: str
    gateway: Gateway


@asynccontextmanager
async def with_process(folder: Path) -> AsyncIterator[str]:
    """The socket of a real worker."""
    with worker(folder) as (_, socket):
        assert await asyncio.to_thread(eventually, lambda: is_listening(Path(socket)), WITHIN)
        yield socket


@asynccontextmanager
async def running(folder: Path, sessions: int = 1) -> AsyncIterator[str]:
    """The socket of a worker in this process, which echoes, and is ready again when a session has ended."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            made.report(ready=True, slots=sessions)
            return web.Response()
        message = await request.json()
        result: dict[str, Any] = {"serverInfo": {"name": "echo"}}
        if message["method"] == "tools/call":
            result = {"structuredContent": {"result": message["params"]["arguments"]["text"]}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async with scripted(folder, answer) as made:
        made.report(ready=True, slots=sessions)
        yield made.socket


@asynccontextmanager
async def between(socket: str, breaks_off: Callable[[bytes], bool], folder: Path) -> AsyncIterator[str]:
    """A socket that leads to the other one, except for requests that are to break off."""

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_reader, on_writer = await asyncio.open_unix_connection(socket)
        answers = asyncio.create_task(back(on_reader, writer))
        with suppress(ConnectionError):
            while (data := await reader.read(1 << 16)) and not breaks_off(data):
                on_writer.write(data)
        writer.close()
        on_writer.close()
        await answers

    path = str(folder / "between.sock")
    server = await asyncio.start_unix_server(lead, path)
    yield path
    server.close()


class Scripted:
    """A worker in this process: ``answer`` responds to its MCP requests, and it reports what it is told to."""

    def __init__(self, socket: str, answer: Handler, secret: str):
        self.socket = socket
        self.requests: list[tuple[str, str]] = []
        self.connections = 0
        self._answer, self._channel = answer, Channel(secret)
        self._reports: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def report(self, *, ready: bool, slots: int = 1, **more: Any) -> None:
        self._reports.put_nowait({"ready": ready, "slots": slots, "servers": ["odd"], "broken": {}, **more})

    def report_call(self, *call: Any) -> None:
        self._reports.put_nowait({"call": call})

    def end(self) -> None:
        """End the stream of reports, by which its gateway loses it."""
        self._reports.put_nowait(None)

    async def state(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        self.connections += 1
        await response.prepare(request)
        while (report := await self._reports.get()) is not None:
            await response.write(json.dumps(report).encode() + b"\n")
        return response

    async def mcp(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.headers["Mcp-Session-Id"]))
        return await self._answer(request)

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self._channel.response_headers(request.headers))


@asynccontextmanager
async def scripted(
    folder: Path, answer: Handler, secret: str = derive_secret(SECRET, 0)
) -> AsyncIterator[Scripted]:
    made = Scripted(str(folder / "scripted.sock"), answer, secret)
    application = web.Application(client_max_size=0)
    application.router.add_get("/state", made.state)
    application.router.add_route("*", "/mcp", made.mcp)
    application.on_response_prepare.append(made.sign)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.UnixSite(runner, made.socket).start()
    yield made
    await runner.cleanup()


async def agreeing(request: web.Request) -> web.Response:
    """A worker's response to what opens or ends a session."""
    return web.json_response({"jsonrpc": "2.0", "id": 0, "result": {}})


@asynccontextmanager
async def gateway(
    socket: str, folder: Path | None = None, limits: GatewayLimits = LIMITS
) -> AsyncIterator[Client]:
    """A gateway of that worker, and a client with a token; what is revoked is remembered in that folder."""
    revoked = [] if folder is None else [folder / "revoked"]
    served = Gateway("name", SECRET, [socket], limits, revoked)
    async with (
        asyncio.timeout(WITHIN),
        listening(served.application(), served.admission.connections, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(headers={**HEADERS, **shown("t")}) as http,
    ):
        yield Client(http, f"http://127.0.0.1:{port}/mcp", served)


def shown(token_id: str, seconds: int = 600, sessions: int | None = None) -> dict[str, str]:
    """The header with a token."""
    now = int(time.time())
    token = sign(SECRET, "name", issued=now, expires=now + seconds, sessions=sessions, token_id=token_id)
    return {"Authorization": f"Bearer {token}"}


def calling(tool: str, **arguments: object) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def first(times: int, method: bytes) -> Callable[[bytes], bool]:
    """Whether a request is one of the first so many of its method."""
    remaining = [None] * times

    def is_one(request: bytes) -> bool:
        return request.startswith(method) and bool(remaining) and remaining.pop() is None

    return is_one


async def opened(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    async with http.post(url, json=HELLO, headers=headers) as answer:
        text = await answer.text()  # a session that has to wait is open at the end of the stream
        assert answer.status == 200, text
        return {**headers, "Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_worker_that_was_not_to_be_had_once_is_used_again(sessions: int, tmp_path: Path) -> None:
    async with (
        running(tmp_path, sessions) as socket,
        between(socket, first(3, b"POST"), tmp_path) as path,
        gateway(path) as (http, url, served),
    ):
        for _ in range(3):
            session = await opened(http, url)
            async with http.delete(url, headers=session) as closed:
                assert closed.status == 200
        assert served.pool.sessions == {}


async def test_where_the_end_of_a_session_does_not_arrive_others_of_its_worker_go_on(tmp_path: Path) -> None:
    async with (
        running(tmp_path, sessions=2) as socket,
        between(socket, first(3, b"DELETE"), tmp_path) as path,
        gateway(path) as (http, url, _),
    ):
        one, other = await opened(http, url), await opened(http, url)
        async with http.delete(url, headers=one) as closed:
            assert closed.status == 200
        async with http.post(url, json=calling("echo", text="x"), headers=other) as answer:
            assert (await answer.json())["result"]["structuredContent"] == {"result": "x"}
        await opened(http, url)


async def until(holds: Callable[[], object]) -> bool:
    """Whether it holds within the time that a test has."""
    return await asyncio.to_thread(eventually, holds, WITHIN / 2)


# Waits


async def test_a_client_that_takes_no_events_waits_for_a_plain_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        first = await opened(http, url)
        monkeypatch.setattr(pool, "REPORT_SECONDS", 0.05)
        plain = {"Accept": "application/json"}
        waits = asyncio.create_task(http.post(url, json=HELLO, headers=plain))
        assert await until(lambda: served.pool.queued)
        await asyncio.sleep(0.2)
        async with http.delete(url, headers=first) as closed:
            assert closed.status == 200
        async with await waits as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert "result" in await answer.json()


async def test_a_wait_ends_with_the_response_or_with_the_error_as_the_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        first = await opened(http, url)
        monkeypatch.setattr(pool, "REPORT_SECONDS", 0.05)
        for turn in ("served", "refused"):
            async with http.post(url, json={**HELLO, "id": 7}) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
                if turn == "refused":
                    async with http.post(url.replace("/mcp", "/revoke"), headers=order("t")) as revoked:
                        assert revoked.status == 200
                else:
                    async with http.delete(url, headers=first) as closed:
                        assert closed.status == 200
                text = await answer.text()
            *reports, last = [
                json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line[:6] == "data: "
            ]
            assert {one["method"] for one in reports} == {"notifications/message"}
            assert last["id"] == 7
            first = session
            if turn == "served":
                assert last["result"]["serverInfo"]
            else:
                assert last["error"]["data"] == {"type": "token"} and "revoked" in last["error"]["message"]
                assert b'requests_refused_total{cause="token"} 1.0' in served.metrics.text()
        assert await until(lambda: not served.pool.sessions and not served.pool.queued)


async def test_where_no_worker_becomes_free_a_session_is_told_when_to_try_again(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        session = await opened(http, url)
        served._limits = GatewayLimits(queue_seconds=0.05)
        async with http.post(url, json=HELLO, headers={"Accept": "application/json"}) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, RETRY_AFTER["Retry-After"])
            assert "no worker became free within" in await refused.text()
        async with http.delete(url, headers=session) as closed:
            assert closed.status == 200


async def test_a_worker_that_has_no_room_is_not_ready_until_it_says_so(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            return web.Response(status=404)
        return web.Response(status=503) if len(made.requests) == 1 else await agreeing(request)

    async with scripted(tmp_path, answer) as made, gateway(made.socket) as (http, url, served):
        made.report(ready=True)
        opening = asyncio.create_task(opened(http, url))
        assert await until(lambda: len(made.requests) > 1 and (served.pool.queued or opening.done()))
        assert [method for method, _ in made.requests] == ["POST", "DELETE"]
        made.report(ready=True)
        session = (await opening)["Mcp-Session-Id"]
        assert made.requests == [(method, session) for method in ("POST", "DELETE", "POST")]


# What it says of itself


async def test_health_names_the_servers_of_a_worker_that_lives(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        lost = WorkerClient(1, "", Channel(SECRET), False, *[lambda *_: None] * 3)
        lost.servers, lost.broken = ["of one that is lost"], {"browser": "no browser"}
        served.pool.links.insert(0, lost)
        assert await until(lambda: served.pool.links[1].ready)
        async with http.get(url.replace("/mcp", "/health")) as answer:
            assert answer.status == 200
            health = await answer.json()
        assert health["servers"] == served.pool.links[1].servers != []
        assert (health["status"], health["broken"]) == ("ok", {"browser": "no browser"})
        assert health["states"] == ["down", "ready"]
        served.pool.links.pop(0)


async def test_metrics_tell_how_many_bytes_are_held(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        for used in (12_345, 0):
            served.budget.used = used
            async with http.get(url.replace("/mcp", "/metrics")) as answer:
                lines = (await answer.text()).splitlines()
            values = [float(line.split()[-1]) for line in lines if "held" in line and line[0] != "#"]
            assert values == [used]


# Bodies


async def test_messages_of_any_length_pass_unchanged(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for place in range(0, len(message), 100_000):
            yield message[place : place + 100_000]

    async with with_process(tmp_path) as socket, gateway(socket) as (http, url, served):
        headers = {**await opened(http, url), "Content-Type": "application/json"}
        for length in (1, HELD_BYTES - 200, HELD_BYTES, HELD_BYTES + 1, WINDOW_BYTES, 9 << 20):
            text = "".join(chr(97 + number % 26) for number in range(length))
            message = json.dumps(calling("echo", text=text)).encode()
            for data in (message, chunks()):
                async with http.post(url, data=data, headers=headers) as answer:
                    assert (await answer.json())["result"]["structuredContent"] == {"result": text}
                assert served.budget.used == 0


async def test_a_long_message_whose_worker_is_lost_is_answered_as_to_a_session_that_is_gone(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path) as socket,
        between(socket, lambda data: b"xxxx" in data, tmp_path) as path,
        gateway(path) as (http, url, served),
    ):
        session = await opened(http, url)
        async with http.post(url, json=calling("echo", text="x" * 1_000_000), headers=session) as answer:
            assert (answer.status, (await answer.json())["error"]["data"]) == (404, {"type": "worker_lost"})
        assert served.budget.used == 0


async def test_a_client_that_takes_nothing_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_request, "_WRITE_SECONDS", 0.5)
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        session = await opened(http, url)
        async with http.post(url, json=calling("echo", text="x" * (8 << 20)), headers=session) as answer:
            assert served.budget.used == WINDOW_BYTES
            assert await until(lambda: not served.budget.used)
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()


async def test_a_session_that_ends_while_it_is_written_to_is_not_opened_again(tmp_path: Path) -> None:
    """What arrives after the end opens the session at the worker, if it says so: nobody else would end that one."""
    async with with_process(tmp_path) as socket, gateway(socket) as (http, url, served):
        session = await opened(http, url)
        proceed = asyncio.Event()

        async def hello() -> AsyncIterator[bytes]:
            message = json.dumps({**HELLO, "padding": "x" * 100_000}).encode()
            yield message[:-1]
            await proceed.wait()
            yield message[-1:]

        late = asyncio.create_task(http.post(url, data=hello(), headers=session))
        assert await until(lambda: served.budget.used > WINDOW_BYTES)
        async with http.delete(url, headers=session) as closed:
            assert closed.status == 200
        assert await until(lambda: served.pool.links[0].free)
        proceed.set()
        await (await late).read()
        for _ in range(2):
            async with http.delete(url, headers=await opened(http, url)) as closed:
                assert closed.status == 200


async def test_headers_that_are_no_text_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, _):
        session = await opened(http, url)
        async with http.post(
            url, json=calling("echo", text="x"), headers={**session, "MCP_SERVERS": "é"}
        ) as answer:
            assert answer.status == 400


# Tokens


async def test_sessions_that_wait_count_for_the_limit_of_their_token(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        limited = shown("limited", sessions=2)
        first_session = await opened(http, url, limited)
        waiting = asyncio.create_task(opened(http, url, limited))
        assert await until(lambda: served.pool.queued)
        async with http.post(url, json=HELLO, headers=limited) as refused:
            assert (refused.status, "Retry-After" in refused.headers) == (429, True)
        async with http.delete(url, headers=first_session) as closed:
            assert closed.status == 200
        await waiting
        third = asyncio.create_task(opened(http, url, limited))
        assert await until(lambda: served.pool.queued)
        third.cancel()
        # Who gives up waiting does not count any more.
        assert await until(lambda: not served.pool.queued)
        again = asyncio.create_task(opened(http, url, limited))
        assert await until(lambda: served.pool.queued)
        again.cancel()


async def test_the_wait_for_a_session_ends_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_LEEWAY", 0.0)
    async with running(tmp_path) as socket, gateway(socket) as (http, url, _):
        await opened(http, url)
        headers = {"Accept": "application/json", **shown("late", seconds=1)}
        async with http.post(url, json=HELLO, headers=headers) as refused:
            assert refused.status == 401


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    limits = GatewayLimits(vanish_seconds=0.01)  # so that it looks often
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket, limits=limits) as client:
        worker.report(ready=True)
        await opened(client.http, client.url, shown("short", seconds=1000))
        (session,) = client.gateway.pool.sessions.values()
        assert 900 < session.expires - time.time() < 1010
        session.expires = time.time()
        assert await until(lambda: not client.gateway.pool.sessions)
        assert b'aworld_sessions_ended_total{cause="expired"} 1.0' in client.gateway.metrics.text()


def order(token_id: str, expires: float | None = None) -> dict[str, str]:
    text = sign_revocation(SECRET, "name", Revocation(token_id, expires), issued=int(time.time()))
    return {"Authorization": f"Bearer {text}"}


async def test_a_revoked_token_loses_its_sessions_and_is_refused_also_by_the_next_gateway(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path, sessions=4) as socket,
        gateway(socket, tmp_path) as (http, url, served),
    ):
        revoke = url.replace("/mcp", "/revoke")
        bad = [await opened(http, url, shown("bad")) for _ in range(2)]
        good = await opened(http, url)
        for no_order in (shown("bad"), shown("t"), {"Authorization": "Bearer x"}):
            async with http.post(revoke, headers=no_order) as refused:
                assert refused.status == 401
        async with http.post(url, json=HELLO, headers=order("bad")) as refused:
            assert refused.status == 401
        async with http.post(revoke, headers=order("bad", time.time() + 600)) as revoked:
            assert await revoked.json() == {"sessions": 2, "kept": True}
        for headers in (*bad, shown("bad"), shown("bad", seconds=300)):
            async with http.post(url, json=HELLO, headers=headers) as refused:
                assert (refused.status, "revoked" in await refused.text()) == (401, True)
        async with http.post(url, json=calling("echo", text="x"), headers=good) as answer:
            assert answer.status == 200
        assert b'aworld_sessions_ended_total{cause="revoked"} 2.0' in served.metrics.text()
    async with running(tmp_path) as socket, gateway(socket, tmp_path) as (http, url, _):
        async with http.post(url, json=HELLO, headers=shown("bad")) as refused:
            assert refused.status == 401
        await opened(http, url)


async def test_a_session_is_of_its_own_token_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        session = await opened(http, url)
        unknown = {"Mcp-Session-Id": "0" * 32}
        for headers in ({**session, **shown("other")}, unknown):
            for method in ("POST", "DELETE", "GET"):
                message = calling("echo", text="x")
                async with http.request(method, url, json=message, headers=headers) as refused:
                    assert (refused.status, "no such session" in await refused.text()) == (404, True)
        async with http.post(url.replace("/mcp", "/revoke"), headers=order("other")) as revoked:
            assert (await revoked.json())["sessions"] == 0
        assert list(served.pool.sessions) == [session["Mcp-Session-Id"]]
        async with http.post(url, json=calling("echo", text="mine"), headers=session) as answer:
            assert (await answer.json())["result"]["structuredContent"] == {"result": "mine"}


async def test_answers_are_not_run_where_there_is_no_worker_for_scoring(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        async with http.post(url, json=HELLO, headers={"Aworld-Purpose": "scoring"}) as refused:
            assert (refused.status, "no worker for scoring" in await refused.text()) == (400, True)
        assert not served.pool.sessions


async def test_a_token_that_is_revoked_while_it_waits_gets_no_worker(tmp_path: Path) -> None:
    async with running(tmp_path) as socket, gateway(socket) as (http, url, served):
        session = await opened(http, url)
        waiting = asyncio.create_task(http.post(url, json=HELLO, headers=shown("bad")))
        assert await until(lambda: served.pool.queued)
        async with http.post(url.replace("/mcp", "/revoke"), headers=order("bad")) as revoked:
            assert await revoked.json() == {"sessions": 0, "kept": False}
        async with http.delete(url, headers=session) as closed:
            assert closed.status == 200
        async with await waiting as refused:
            assert refused.status == 401
        await opened(http, url)


async def test_what_answers_in_a_workers_place_is_not_believed(tmp_path: Path) -> None:
    """It says that it is ready, and answers whatever it is asked; it does not have the secret."""
    async with scripted(tmp_path, agreeing, "a guess") as impostor, gateway(impostor.socket) as client:
        for _ in range(3):
            impostor.report(ready=True)
        opening = asyncio.create_task(client.http.post(client.url, json=HELLO))
        assert await until(lambda: impostor.connections >= 3)
        assert client.gateway.pool.states() == {"ready": 0, "busy": 0, "cleaning": 0, "down": 1}
        assert not opening.done() and impostor.requests == []
        opening.cancel()


# Sessions of a scripted worker


async def test_a_worker_that_is_lost_takes_its_sessions_along_and_is_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True, slots=2)
        sessions = [await opened(http, url) for _ in range(2)]
        worker.end()
        assert await until(lambda: worker.connections == 2)
        for session in sessions:
            async with http.post(url, json=calling("echo"), headers=session) as refused:
                assert refused.status == 404
        assert b'aworld_sessions_ended_total{cause="worker_lost"} 2.0' in served.metrics.text()
        assert "worker 0 was lost with 2 sessions" in capsys.readouterr().err
        assert served.pool.states()["down"] == 1
        worker.report(ready=True, slots=1)
        await opened(http, url)
        assert served.pool.states()["busy"] == 1


async def ending(client: Client, session: Mapping[str, str]) -> dict[str, Any]:
    """What the gateway says of a session, without its uptime."""
    async with client.http.get(client.url.replace("/mcp", "/session"), headers=session) as answer:
        description: dict[str, Any] = await answer.json()
    assert description.pop("uptime", 1.0) > 0.0
    return description


async def test_what_became_of_a_session_is_said_to_its_token(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as client:
        worker.report(ready=True, slots=2)
        session, other = [await opened(client.http, client.url) for _ in range(2)]
        assert await ending(client, session) == {"gateway": "name", "session": "open"}
        unknown = {"gateway": "name", "session": "unknown"}
        assert await ending(client, session | shown("another")) == unknown
        assert await ending(client, {"Mcp-Session-Id": "none"}) == unknown
        assert "error" in await ending(client, session | {"Authorization": "Bearer x"})
        async with client.http.delete(client.url, headers=session):
            pass
        lost = {"gateway": "name", "worker": 0, "others": False}
        assert await ending(client, session) == lost | {"session": "closed"}
        worker.end()
        assert await until(lambda: not client.gateway.pool.sessions)
        assert await ending(client, other) == lost | {"session": "worker_lost"}
        assert await ending(client, other | shown("another")) == unknown


async def test_a_worker_that_breaks_off_an_answer_is_lost_to_its_session(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as socket,
        between(socket, lambda data: b"echo" in data, tmp_path) as path,
        gateway(path) as client,
    ):
        session = await opened(client.http, client.url)
        async with client.http.post(client.url, json=calling("echo", text=""), headers=session) as answer:
            assert (await answer.json())["error"]["data"] == {"type": "worker_lost"}
        assert (await ending(client, session))["session"] == "worker_lost"


async def test_idle_workers_that_are_lost_at_the_same_time_are_said(tmp_path: Path) -> None:
    folders = [tmp_path / "busy", tmp_path / "idle"]
    for folder in folders:
        folder.mkdir()
    async with (
        scripted(folders[0], agreeing) as busy,
        scripted(folders[1], agreeing, derive_secret(SECRET, 1)) as idle,
        gateway(busy.socket) as client,
    ):
        made = Gateway("name", SECRET, [busy.socket, idle.socket], LIMITS).pool.links[1]
        link = WorkerClient(
            1, idle.socket, made.channel, False, lambda: None, client.gateway._handle_worker_loss, print
        )
        following = asyncio.create_task(link.follow())
        busy.report(ready=True)
        idle.report(ready=True)
        session = await opened(client.http, client.url)
        assert await until(lambda: link.ready)
        busy.end()
        assert await until(lambda: not client.gateway.pool.sessions)
        assert not (await ending(client, session))["others"]
        idle.end()
        assert await until(lambda: not link.alive)
        assert (await ending(client, session))["others"]
        following.cancel()


async def test_a_session_ends_where_it_is_not_used_and_not_during_a_request(tmp_path: Path) -> None:
    begun, proceed = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if b"echo" in await request.read():
            begun.set()
            await proceed.wait()
        return await agreeing(request)

    limits = GatewayLimits(vanish_seconds=0.05)  # so that it looks often
    async with scripted(tmp_path, answer) as worker, gateway(worker.socket, limits=limits) as client:
        worker.report(ready=True, slots=2)
        used = await opened(client.http, client.url)
        asking = asyncio.create_task(client.http.post(client.url, json=calling("echo"), headers=used))
        await begun.wait()
        unused = await opened(client.http, client.url)
        client.gateway._limits = GatewayLimits(vanish_seconds=0.05, idle_seconds=0.05)
        assert await until(lambda: len(client.gateway.pool.sessions) == 1)
        assert worker.requests[-1] == ("DELETE", unused["Mcp-Session-Id"])
        assert list(client.gateway.pool.sessions) == [used["Mcp-Session-Id"]]
        proceed.set()
        async with await asking as response:
            assert response.status == 200
        assert await until(lambda: not client.gateway.pool.sessions)
        assert b'aworld_sessions_ended_total{cause="idle"} 2.0' in client.gateway.metrics.text()


async def test_a_gateway_that_stops_ends_its_sessions_at_their_workers(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker:
        async with gateway(worker.socket) as (http, url, served):
            worker.report(ready=True)
            session = await opened(http, url)
        assert worker.requests[1:] == [("DELETE", session["Mcp-Session-Id"])]
        assert not served._tasks


async def test_a_worker_that_does_not_end_a_session_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            await asyncio.Event().wait()
        return await agreeing(request)

    monkeypatch.setattr(app, "_END_SECONDS", 0.05)
    async with scripted(tmp_path, answer) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        session = await opened(http, url)
        async with http.delete(url, headers=session) as closed:
            assert closed.status == 200
        assert await until(lambda: worker.connections == 2)
        assert served.pool.links[0].sessions == set()
        worker.report(ready=True)
        await opened(http, url)


async def test_the_end_of_a_session_waits_for_a_worker_until_that_is_lost(tmp_path: Path) -> None:
    (link,) = Gateway("name", SECRET, [str(tmp_path / "none")], LIMITS).pool.links
    link.alive = True
    served = Gateway("name", SECRET, [], LIMITS)
    closing = asyncio.create_task(served._close(link, "one"))
    # What cannot connect leaves the loop to others between its tries.
    asyncio.get_running_loop().call_later(0.1, setattr, link, "alive", False)
    assert not await closing
    await link.reset()


async def test_that_a_session_is_open_is_confirmed_to_the_gateway_alone(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        session = await opened(http, url)
        (at_gateway,) = served.pool.sessions.values()
        at_gateway.vanished, before = 0.0, at_gateway.last_active
        confirmed = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with http.post(url, json=confirmed, headers=session) as response:
            assert response.status == 202
        assert at_gateway.vanished is None and at_gateway.last_active >= before
        assert len(worker.requests) == 1
        mentioned = calling("echo", text="notifications/initialized")
        async with http.post(url, json=mentioned, headers=session) as response:
            assert response.status == 200
        assert len(worker.requests) == 2


async def test_a_session_begins_with_its_opening(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        for method, message in (("POST", calling("echo")), ("GET", HELLO), ("DELETE", HELLO)):
            async with http.request(method, url, json=message) as refused:
                assert (refused.status, "Mcp-Session-Id is missing" in await refused.text()) == (400, True)
        assert b'aworld_requests_refused_total{cause="session"} 3.0' in served.metrics.text()
        assert (worker.requests, served._opening) == ([], {})


async def test_workers_for_scoring_are_for_nothing_else(tmp_path: Path) -> None:
    served = Gateway("name", SECRET, ["a", "b", "c"], GatewayLimits(), scoring=1)
    assert [link.scoring for link in served.pool.links] == [False, False, True]
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        served.pool.links[0].scoring = True
        served._limits = GatewayLimits(queue_seconds=0.05)
        worker.report(ready=True)
        assert await until(lambda: served.pool.links[0].ready)
        plain = {"Accept": "application/json"}
        for purpose, status in (("training", 503), ("scoring", 200)):
            async with http.post(url, json=HELLO, headers={**plain, "Aworld-Purpose": purpose}) as answer:
                assert answer.status == status


async def test_what_workers_report_is_shown(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        health = url.replace("/mcp", "/health")
        (link,) = served.pool.links
        worker.report(ready=False, starting="browser")
        assert await until(lambda: link.alive)
        async with http.get(health) as answer:
            assert (answer.status, (await answer.json())["starting"]) == (503, ["browser"])
        worker.report(ready=True)
        assert await until(lambda: link.ready)
        async with http.get(health) as answer:
            shown_health = await answer.json()
            assert (answer.status, shown_health["starting"], shown_health["status"]) == (200, [], "ok")
        assert (shown_health["sessions"], shown_health["queued"], shown_health["egress"]) == (0, 0, None)
        await opened(http, url)
        worker.report(ready=False)
        for seconds in (0.5, 2.0):
            worker.report_call("odd", "tool_error", seconds)
        assert await until(lambda: b'outcome="tool_error"' in served.metrics.text())
        async with http.get(health) as answer:  # it has been ready
            assert (answer.status, (await answer.json())["sessions"]) == (200, 1)
        async with http.get(url.replace("/mcp", "/metrics")) as answer:
            lines = (await answer.text()).splitlines()
        assert 'aworld_tool_calls_total{outcome="tool_error",server="odd"} 2.0' in lines
        assert 'aworld_tool_call_seconds_sum{server="odd"} 2.5' in lines
        assert {
            'aworld_workers{state="busy"} 1.0',
            "aworld_sessions_open 1.0",
            "aworld_sessions_total 1.0",
            "aworld_sessions_queued 0.0",
            "aworld_session_wait_seconds_count 1.0",
        } <= set(lines)
        figures = dict(line.rsplit(" ", 1) for line in lines if "{" not in line and line[0] != "#")
        assert float(figures["aworld_connections"]) == len(served.admission.connections) > 0
        assert 0 <= float(figures["aworld_session_wait_seconds_sum"]) < WITHIN


async def test_a_session_that_waits_is_counted_as_queued(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        waiting = asyncio.create_task(opened(http, url))
        assert await until(lambda: served.pool.queued)
        async with http.get(url.replace("/mcp", "/health")) as answer:
            health = await answer.json()
            assert (health["queued"], health["sessions"], health["status"]) == (1, 0, "no worker")
        async with http.get(url.replace("/mcp", "/metrics")) as answer:
            assert "aworld_sessions_queued 1.0" in await answer.text()
        worker.report(ready=True)
        await waiting


async def test_a_stranger_gets_no_session_and_is_told_how_to_log_in(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        async with http.post(url, json=HELLO, headers={"Authorization": "Bearer x"}) as refused:
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b'aworld_requests_refused_total{cause="token"} 1.0' in served.metrics.text()
        assert worker.requests == []


async def test_a_worker_of_one_session_gets_the_next_one_when_it_is_clean(tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        (link,) = served.pool.links
        worker.report(ready=True)
        session = await opened(http, url)
        assert len(session["Mcp-Session-Id"]) == 32
        async with http.delete(url, headers=session) as closed:
            assert closed.status == 200
        assert b'aworld_sessions_ended_total{cause="closed"} 1.0' in served.metrics.text()
        assert (link.state, link.ready) == ("cleaning", False)
        worker.report(ready=True, slots=2)
        await opened(http, url)
        async with http.delete(url, headers=await opened(http, url)) as closed:
            assert closed.status == 200
        assert (link.state, link.free) == ("busy", True), "one of several sessions ends: nothing is cleaned"


async def test_a_worker_that_knew_no_session_has_nothing_to_clean(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if len(made.requests) > 2:
            return await agreeing(request)
        return web.json_response({"error": {}}, status=404 if request.method == "DELETE" else 400)

    async with scripted(tmp_path, answer) as made, gateway(made.socket) as (http, url, served):
        made.report(ready=True)
        plain = {"Accept": "application/json"}
        async with http.post(url, json=HELLO, headers=plain) as refused:
            assert (refused.status, "Mcp-Session-Id" in refused.headers) == (400, False)
        await opened(http, url)
        assert b'aworld_sessions_ended_total{cause="not opened"} 1.0' in served.metrics.text()


async def test_a_refusal_by_the_worker_ends_a_wait_as_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"id": None, "error": {"code": 1, "message": "no"}}, status=400)

    monkeypatch.setattr(pool, "REPORT_SECONDS", 0.01)
    async with scripted(tmp_path, answer) as worker, gateway(worker.socket) as (http, url, served):
        async with http.post(url, json={**HELLO, "id": 7}) as refused:
            worker.report(ready=True)
            *_, last = (await refused.text()).removesuffix("\n\n").split("data: ")
        error = {"code": 1, "message": "no", "data": {"type": "worker_lost"}}
        assert json.loads(last) == {"id": 7, "error": error}
        assert not served.pool.sessions


async def test_a_session_whose_client_is_gone_when_it_opens_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_: object) -> web.StreamResponse:
        raise ConnectionResetError("the client is gone")

    monkeypatch.setattr(WaitingClient, "answer", answer)
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        async with http.post(url, json=HELLO) as response:
            assert response.status == 500
        assert await until(lambda: len(worker.requests) == 2 and not served.pool.sessions)
        assert [method for method, _ in worker.requests] == ["POST", "DELETE"]
        assert b'aworld_sessions_ended_total{cause="vanished"} 1.0' in served.metrics.text()


async def test_a_message_that_becomes_too_long_is_refused_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_MESSAGE_BYTES", 2 * HELD_BYTES)

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        return await agreeing(request)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * HELD_BYTES

    async with scripted(tmp_path, answer) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        session = await opened(http, url)
        async with http.post(url, data=body(), headers=session) as refused:
            assert (refused.status, f"at most {2 * HELD_BYTES}" in await refused.text()) == (413, True)
        assert await until(lambda: not served.budget.used)
