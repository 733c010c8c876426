"""A worker that is disconnected is lost at once, with every response that it was still sending."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.env_gateway import link as module
from aworld_train.serving.env_gateway.link import WorkerLink
from tests.unit.serving.env_gateway.test_app import Scripted, scripted, until
from tests.unit.serving.worker.test_app import SECRET

HEADERS = {"Mcp-Session-Id": "one"}


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun\n")
    await asyncio.Event().wait()
    return response


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[tuple[WorkerLink, Scripted, list[str]]]:
    """A link to a worker whose responses do not end, and what it tells of: changes, losses and calls."""
    reports_seen: list[str] = []
    async with scripted(folder, endless) as worker:
        link = WorkerLink(
            0,
            worker.socket,
            Channel(derive_secret(SECRET, 0)),
            False,
            lambda: reports_seen.append("change"),
            lambda lost: reports_seen.append(f"loss of {lost.number}"),
            lambda *call: reports_seen.append(f"{call}"),
        )
        following = asyncio.create_task(link.follow())
        worker.report(ready=True)
        assert await until(lambda: link.alive)
        yield link, worker, reports_seen
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


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
        assert await until(lambda: not link.alive)
        assert (link.ready, link.proved, link.state, reports_seen[-1]) == (False, False, "down", "loss of 0")
