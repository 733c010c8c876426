"""A worker that is disconnected is lost at once, with every response that it was still sending."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol

from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.env_gateway import worker_client as module
from aworld_train.serving.env_gateway.worker_client import WorkerClient
from tests.unit.serving.env_gateway.test_app import Scripted, scripted, until
from tests.unit.serving.worker.test_app import SECRET

HEADERS = {"Mcp-Session-Id": "one"}


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun\n")
    await asyncio.Event().wait()
    return response


def link_to(socket: str, reports_seen: list[str]) -> WorkerClient:
    return WorkerClient(
        0,
        socket,
        Channel(derive_secret(SECRET, 0)),
        False,
        lambda: reports_seen.append("change"),
        lambda lost: reports_seen.append(f"loss of {lost.number}"),
        lambda *call: reports_seen.append(f"{call}"),
    )


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[tuple[WorkerClient, Scripted, list[str]]]:
    """A link to a worker whose responses do not end, and what it tells of: changes, losses and calls."""
    reports_seen: list[str] = []
    async with scripted(folder, endless) as worker:
        link = link_to(worker.socket, reports_seen)
        following = asyncio.create_task(link.follow())
        worker.report(ready=True)
        assert await until(lambda: link.alive)
        yield link, worker, reports_seen
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_a_worker_that_has_not_reported_is_down() -> None:
    link = link_to("", [])
    assert (link.number, link.state, link.free, link.exclusive) == (0, "down", False, True)
    assert (link.alive, link.ready, link.proved, link.scoring) == (False, False, False, False)
    assert (link.servers, link.broken, link.starting) == ([], {}, "")
    assert (link.sessions, link.bodies) == (set(), set())
    link.alive = link.ready = True  # it takes no session before it has said how many
    assert (link.state, link.free) == ("ready", False)


async def test_a_response_comes_as_it_was_sent_and_is_closed_where_it_is_not_read(tmp_path: Path) -> None:
    packed = gzip.compress(b"x" * 100_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await endless(request)
        assert request.headers["Accept"] == "text/odd"
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async with scripted(tmp_path, answer) as worker:
        link = link_to(worker.socket, [])
        async with link.request("GET", "/mcp", headers={**HEADERS, "Accept": "text/odd"}) as response:
            assert await response.read() == packed
            assert link.bodies == {response.content}
        async with link.request("POST", "/mcp", headers=HEADERS, data=b"{}") as unread:
            assert unread.connection is not None
        assert unread.connection is None and link.bodies == set()
        await link.reset()


@pytest.mark.parametrize("is_genuine", [True, False])
async def test_a_websocket_is_used_where_the_worker_has_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_genuine: bool
) -> None:
    channel = Channel(derive_secret(SECRET, 0) if is_genuine else "a guess")

    async def echo(request: web.Request) -> web.StreamResponse:
        assert Channel(derive_secret(SECRET, 0)).is_gateway(request.headers)
        websocket = web.WebSocketResponse(protocols=("binary",))
        websocket.headers.update(channel.response_headers(request.headers))
        await websocket.prepare(request)
        async for message in websocket:
            await websocket.send_bytes(message.data)
        return websocket

    app = web.Application()
    app.router.add_get("/desktop", echo)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "worker.sock")).start()
    link = link_to(str(tmp_path / "worker.sock"), [])
    client = link.http
    if is_genuine:
        websocket = await link.connect("/desktop", ("binary",))
        await websocket.send_bytes(b"picture")
        assert (websocket.protocol, await websocket.receive_bytes()) == ("binary", b"picture")
        await websocket.close()
    else:
        with pytest.raises(module.NotTheWorker, match="worker 0 was replaced by something else"):
            await link.connect("/desktop", ("binary",))
        assert f"What answers at {link.socket} is not worker 0" in capsys.readouterr().err
    assert client.closed is not is_genuine
    await link.reset()
    await runner.cleanup()


async def test_what_answers_in_a_workers_place_is_disconnected_with_all_that_it_sends(tmp_path: Path) -> None:
    async with scripted(tmp_path, endless, "a guess") as impostor:
        link = link_to(impostor.socket, [])
        client, body = link.http, aiohttp.StreamReader(BaseProtocol(asyncio.get_running_loop()), 1)
        link.bodies.add(body)
        with pytest.raises(module.NotTheWorker):
            async with link.request("GET", "/mcp", headers=HEADERS):
                pass
        assert client.closed and link.http is not client and link.bodies == set()
        error = body.exception()
        assert isinstance(error, aiohttp.ClientConnectionError) and "worker 0" in str(error)
        await link.reset()


@pytest.mark.parametrize("by", ["reset", "silence"])
async def test_a_response_ends_where_its_worker_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(module, "_SILENCE_SECONDS", 60.0)
    async with followed(tmp_path) as (link, worker, reports_seen):
        with pytest.raises(aiohttp.ClientConnectionError):
            async with link.request("GET", "/mcp", headers=HEADERS) as response:
                assert await response.content.readline() == b"begun\n"
                if by == "reset":
                    await link.reset(link.http)
                else:
                    monkeypatch.setattr(module, "_SILENCE_SECONDS", 0.05)
                    worker.report(ready=True)  # the last one
                async with asyncio.timeout(20):
                    await response.content.readline()
        monkeypatch.setattr(module, "_SILENCE_SECONDS", 60.0)
        assert await until(lambda: worker.connections == 2)
        assert (reports_seen.pop(), link.alive) == ("loss of 0", False)
        reports = reports_seen.count("change")
        worker.report(ready=True)
        assert await until(lambda: link.free)
        assert link.bodies and reports_seen == ["change"] * (reports + 1)


async def test_a_failure_of_an_earlier_connection_resets_no_later_one(tmp_path: Path) -> None:
    async with followed(tmp_path) as (link, _, reports_seen):
        current = link.http
        async with aiohttp.ClientSession() as earlier:
            await link.reset(earlier)
        assert link.http is current and not current.closed and reports_seen == ["change"]


async def test_a_report_tells_of_a_call_or_of_the_worker(tmp_path: Path) -> None:
    async with followed(tmp_path) as (link, worker, reports_seen):
        worker.report_call("odd", "ok", 1.5)
        worker.report(ready=False, slots=3, starting="browser", broken={"a": "no key"})
        assert await until(lambda: link.starting)
        assert reports_seen == ["change", "('odd', 'ok', 1.5)", "change"]
        assert (link.ready, link.proved, link.exclusive, link.state) == (False, True, False, "cleaning")
        assert (link.servers, link.broken, link.free) == (["odd"], {"a": "no key"}, False)
        worker.report(ready=True, slots=2)
        assert await until(lambda: link.ready)
        assert (link.starting, link.state, link.free) == ("", "ready", True)
        link.sessions.update({"one", "two"})
        assert (link.state, link.free) == ("busy", False)
        worker.end()
        assert await until(lambda: reports_seen[-1] == "loss of 0")
        assert (link.alive, link.ready, link.proved, link.state) == (False, False, False, "down")
