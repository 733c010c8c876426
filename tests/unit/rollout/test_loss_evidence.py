"""A session that is lost blames the environment only by what its tools cannot make up."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aworld_train.rollout import loss_evidence
from aworld_train.rollout.loss_evidence import LostSession, failure_of
from aworld_train.rollout.outcome import EnvironmentLost, ToolsBroken

OURS = {"gateway": "env", "uptime": 100.0}
OPEN = OURS | {"session": "open"}
LOST = OURS | {"session": "worker_lost", "worker": 3, "others": False}


@asynccontextmanager
async def saying(*words: Any) -> AsyncIterator[str]:
    """A gateway that says this of a session, one after the other; after the last one it is gone."""
    left = list(words)

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Mcp-Session-Id"] == "mine"
        if not left:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        word = left.pop(0)
        return word if isinstance(word, web.Response) else web.json_response(word)

    app = web.Application()
    app.router.add_get("/session", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def blamed(url: str, status: int | None = None) -> type[EnvironmentLost] | None:
    opened = time.monotonic() - 10.0
    failure = await failure_of(LostSession(url, {"a": "b"}, "mine", opened, status, "gone"))
    assert failure is None or str(failure) == f"{url}: gone"
    return None if failure is None else type(failure)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[Any]]:
    """Sets what the engine says; by default it has seen nothing."""
    questions: list[Any] = []
    monkeypatch.setattr(loss_evidence, "_SECOND_LOOK_SECONDS", 0.0)

    def says(word: bool) -> list[Any]:
        def killed_from_outside(*arguments: Any) -> bool:
            questions.append(arguments)
            return word

        monkeypatch.setattr(loss_evidence, "killed_from_outside", killed_from_outside)
        return questions

    says(False)
    return says


@pytest.mark.parametrize(
    ("words", "status", "blame"),
    [
        ([OPEN, OPEN], None, None),
        ([OPEN, OPEN], 500, None),
        ([OPEN, LOST], None, ToolsBroken),
        ([OPEN, LOST | {"others": True}], None, EnvironmentLost),
        ([], None, EnvironmentLost),
        ([OPEN], 401, EnvironmentLost),
        ([OURS | {"session": "unknown", "uptime": 9.0}], 404, EnvironmentLost),
        ([OURS | {"session": "unknown"}], 404, ToolsBroken),
        *(
            ([OURS | {"session": end}], 404, EnvironmentLost)
            for end in ("expired", "revoked", "idle", "stopped")
        ),
        *(([OURS | {"session": end}], 404, ToolsBroken) for end in ("closed", "vanished")),
        ([LOST | {"others": True}], 404, EnvironmentLost),
        ([LOST, LOST], 404, ToolsBroken),
        ([LOST, LOST], None, ToolsBroken),
        ([LOST, LOST | {"others": True}], None, EnvironmentLost),
        ([LOST, OURS | {"session": "unknown", "uptime": 1.0}], None, EnvironmentLost),
        ([LOST], None, EnvironmentLost),
        ([web.Response(text="no JSON")], None, None),
        ([web.Response(text=json.dumps([OURS]))], 500, None),
        ([web.Response(status=404)], 404, ToolsBroken),
    ],
    ids=str,
)
async def test_the_environment_is_blamed_for_what_is_evident_alone(
    words: list[Any], status: int | None, blame: type[EnvironmentLost] | None
) -> None:
    async with saying(*words) as url:
        assert await blamed(url, status) is blame


async def test_the_engine_is_asked_for_the_worker_of_that_gateway(
    engine: Callable[[bool], list[Any]],
) -> None:
    questions = engine(True)
    async with saying(OPEN, LOST) as url:
        assert await blamed(url) is EnvironmentLost
        port = int(url.removesuffix("/mcp").rpartition(":")[2])
    assert questions == [("env", port, 3, pytest.approx(10.0, abs=5.0))]
