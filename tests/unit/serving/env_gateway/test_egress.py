"""The counts of the egress container, as health and metrics show them, also while it does not answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from aworld_train.serving.env_gateway import metrics
from aworld_train.serving.env_gateway.metrics import EgressCounts
from tests.unit.serving.env_gateway.test_app import agreeing, gateway, scripted

COUNTS = {
    "requests": {"web": {"ok": 5, "refused_host": 2}, "-": {"refused_credentials": 1, "failed": 4}},
    "bytes": {"web": {"received": 700, "sent": 30}},
    "restarts": 2,
}


class Container:
    """What answers at the socket of an egress container: ``body``, or nothing where that is None."""

    def __init__(self, socket: str):
        self.socket = socket
        self.body: Any = COUNTS
        self.status = 200
        self.requests = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        if isinstance(self.body, str):
            return web.Response(text=self.body, content_type="application/json", status=self.status)
        return web.json_response(self.body, status=self.status)


@pytest.fixture
async def container(tmp_path: Path) -> AsyncIterator[Container]:
    made = Container(str(tmp_path / "egress.sock"))
    application = web.Application()
    application.router.add_get("/counts", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, made.socket).start()
    yield made
    await runner.cleanup()


def lines(counts: EgressCounts) -> set[str]:
    return {line for line in counts.text().decode().splitlines() if not line.startswith("#")}


async def test_counts_are_shown_by_server_and_outcome(container: Container) -> None:
    counts = EgressCounts(container.socket)
    assert counts.described() == {"status": "down", "refused": 0}
    assert lines(counts) == {"aworld_egress_up 0.0", "aworld_egress_restarts_total 0.0"}
    await counts.refresh()
    assert counts.described() == {"status": "ok", "refused": 3}
    assert lines(counts) == {
        "aworld_egress_up 1.0",
        "aworld_egress_restarts_total 2.0",
        'aworld_egress_requests_total{outcome="ok",server="web"} 5.0',
        'aworld_egress_requests_total{outcome="refused_host",server="web"} 2.0',
        'aworld_egress_requests_total{outcome="refused_credentials",server="-"} 1.0',
        'aworld_egress_requests_total{outcome="failed",server="-"} 4.0',
        'aworld_egress_bytes_total{direction="received",server="web"} 700.0',
        'aworld_egress_bytes_total{direction="sent",server="web"} 30.0',
    }


@pytest.mark.parametrize(("status", "body"), [(500, COUNTS), (200, "not JSON")])
async def test_the_last_counts_stay_while_it_does_not_answer_and_it_is_asked_once_a_second(
    container: Container, monkeypatch: pytest.MonkeyPatch, status: int, body: Any
) -> None:
    now = 100.0
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now))
    counts = EgressCounts(container.socket)
    await counts.refresh()
    container.status, container.body = status, body
    now += 0.9
    await counts.refresh()
    assert (container.requests, counts.described()["status"]) == (1, "ok")
    now += 0.1
    await counts.refresh()
    assert (container.requests, counts.described()) == (2, {"status": "down", "refused": 3})
    assert "aworld_egress_up 0.0" in lines(counts) and len(lines(counts)) == 8
    container.status, container.body = 200, COUNTS
    now += 1.0
    await counts.refresh()
    assert counts.described()["status"] == "ok"


async def test_a_socket_that_is_not_there_is_an_egress_that_is_down(tmp_path: Path) -> None:
    counts = EgressCounts(str(tmp_path / "none.sock"))
    await counts.refresh()
    assert counts.described() == {"status": "down", "refused": 0}


async def test_a_gateway_shows_them_with_its_own(container: Container, tmp_path: Path) -> None:
    async with scripted(tmp_path, agreeing) as worker, gateway(worker.socket) as (http, url, served):
        async with http.get(url.replace("/mcp", "/health")) as response:
            assert (await response.json())["egress"] is None
        async with http.get(url.replace("/mcp", "/metrics")) as response:
            assert "aworld_egress" not in await response.text()
        for page in ("/health", "/metrics"):
            served._egress = EgressCounts(container.socket)
            async with http.get(url.replace("/mcp", page)) as response:
                text = await response.text()
                if page == "/health":
                    assert (await response.json())["egress"] == {"status": "ok", "refused": 3}
                else:
                    assert "aworld_egress_up 1.0" in text and "aworld_held_bytes" in text
