"""A tool server over its pipes: whatever it writes, and however it ends, each request gets a result or a failure."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from aworld_train.serving.manifest import ServerEntry
from aworld_train.serving.worker import toolserver
from aworld_train.serving.worker.failures import CallFailure, RemoteError
from aworld_train.serving.worker.toolserver import ToolServerProcess
from tests.open_files import open_files

WITHIN = 10.0
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Server:
    """The starter of a tool server that is this test: what the worker writes to it, and what it answers."""

    def __init__(self) -> None:
        self.started: list[tuple[str, Mapping[str, str] | None]] = []
        self.ended: list[int] = []
        self.failure: BaseException | None = None
        self.notifications: list[Any] = []
        self._is_started = asyncio.Event()
        entry = ServerEntry(command=("none",), timeout=WITHIN)
        self.process = ToolServerProcess("s", entry, self, self.notifications.append, {"KEY": "value"})

    async def spawn(
        self,
        name: str,
        entry: ServerEntry,
        standard_input: int,
        standard_output: int,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        if self.failure is not None:
            raise self.failure
        self.started.append((name, environment))
        self.output = os.dup(standard_output)
        self._reader = reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(standard_input), "rb")
        )
        self._is_started.set()
        return len(self.started)

    def kill(self, pid: int, then: Callable[[], None]) -> None:
        self.ended.append(pid)
        then()

    async def next_message(self) -> Any:
        """What the worker writes next, once the server is started; None when it has closed its end."""
        async with asyncio.timeout(WITHIN):
            await self._is_started.wait()
            if line := await self._reader.readline():
                return json.loads(line)
        self._is_started.clear()
        return None

    def write(self, *messages: Any) -> None:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in messages]
        os.write(self.output, "".join(f"{line}\n" for line in lines).encode())

    async def greet(self) -> None:
        """Start it."""
        starting = asyncio.create_task(self.process.capabilities())
        hello = await self.next_message()
        self.write({"id": hello["id"], "result": {"capabilities": {"tools": {}}}})
        assert await starting == {"tools": {}}
        assert await self.next_message() == INITIALIZED

    async def request(self, *arguments: Any, **options: Any) -> tuple["asyncio.Task[Any]", int]:
        """A request that the server has got, and its number."""
        requesting = asyncio.create_task(self.process.request(*arguments, **options))
        return requesting, (await self.next_message())["id"]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    yield one
    one.process.stop()
    with suppress(AttributeError, OSError):
        os.close(one.output)


async def failure_of(work: Any) -> tuple[str, str]:
    with pytest.raises(CallFailure) as failed:
        await asyncio.wait_for(work, WITHIN)
    return failed.value.kind, failed.value.message


def open_calls(server: Server) -> list[int]:
    """The numbers of requests that wait for an answer, but for the greeting's."""
    assert server.process._process is not None
    return [number for number in server.process._process.calls if number > 1]


# Requests


async def test_a_server_is_started_once_and_gets_each_request_under_a_number_of_its_own(
    server: Server,
) -> None:
    process, before = server.process, open_files()
    assert not process.running
    first = asyncio.create_task(process.request("tools/call", {"name": "x", "_meta": {"more": 1}}))
    second = asyncio.create_task(process.request("tools/list"))
    assert await server.next_message() == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "aworld-train", "version": "1"},
        },
    }
    server.write({"id": 1, "result": {}})
    call = {"method": "tools/call", "params": {"name": "x", "_meta": {"more": 1}}}
    assert [await server.next_message() for _ in range(3)] == [
        INITIALIZED,
        {"jsonrpc": "2.0", "id": 2, **call},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/list"},
    ]
    server.write({"id": 3, "result": None}, {"id": 2, "result": {"n": 1}})
    assert (await first, await second) == ({"n": 1}, {})
    assert (process.running, await process.capabilities()) == (True, {})
    assert server.started == [("s", {"KEY": "value"})]
    assert open_calls(server) == []
    assert len(open_files() - before) == 4  # two of the worker, and two of this server


async def test_what_is_no_answer_is_passed_over_and_an_error_is_passed_on(server: Server) -> None:
    await server.greet()
    wrong: list[dict[str, Any]]
    for _ in range(2):
        requesting, number = await server.request("tools/call", {"_meta": None})
        error = {"code": -5, "message": "a fault", "data": 1}
        other: list[Any] = [number + 1, f"{number}x", None, [], True, 1e300]
        wrong = [{"id": one, "result": {}} for one in other]
        server.write(
            "printed",
            "[1]",
            "[" * 10_000,
            *wrong,
            {"id": number, "error": error},
            {"id": number, "result": {}},
        )
        with pytest.raises(RemoteError, match=r"^a fault$") as failed:
            await requesting
        assert failed.value.error == error
    requesting, number = await server.request("tools/call")
    server.write({"id": number, "error": None, "result": {"n": 1}})
    assert await requesting == {"n": 1}


async def test_a_server_gets_an_answer_to_what_it_asks_and_its_notifications_arrive(server: Server) -> None:
    await server.greet()
    message = {"method": "notifications/message", "params": {"data": "x"}}
    server.write({"id": "p", "method": "ping"}, {"id": 9, "method": "roots/list"}, message)
    assert await server.next_message() == {"jsonrpc": "2.0", "id": "p", "result": {}}
    error = {"code": -32601, "message": "roots/list is not offered"}
    assert await server.next_message() == {"jsonrpc": "2.0", "id": 9, "error": error}
    progress: list[Any] = []
    meta = {"progressToken": "mine", "more": 1}
    requesting, number = await server.request("tools/call", {"_meta": meta}, progress.append)
    silent, silent_number = await server.request("tools/list")
    tokens: list[Any] = [number, silent_number, 99, "mine", []]
    params = [{"progressToken": token} for token in tokens]
    messages = [{"method": "notifications/progress", "params": one} for one in [*params, {}, None, [1]]]
    server.write(*messages, {"id": number, "result": {}}, {"id": silent_number, "result": {}})
    assert (await requesting, await silent) == ({}, {})
    assert progress == [{"method": "notifications/progress", "params": {"progressToken": "mine"}}]
    assert server.notifications == [message]


# Time


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"message": "what?"}}])
async def test_a_server_that_is_only_slow_is_told_and_kept(server: Server, answer: dict[str, Any]) -> None:
    await server.greet()
    requesting, number = await server.request("tools/call", seconds=0.01)
    assert await failure_of(requesting) == ("tool_timeout", "s did not answer within 0.01 seconds")
    params = {"requestId": number, "reason": "no answer within 0.01 seconds"}
    assert await server.next_message() == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": params,
    }
    ping = await server.next_message()
    assert ping == {"jsonrpc": "2.0", "id": number + 1, "method": "ping"}
    server.write({"id": number, "result": {}}, {"id": ping["id"], **answer})
    requesting, number = await server.request("tools/list")
    server.write({"id": number, "result": {}})
    assert (await requesting, server.ended) == ({}, [])
    assert open_calls(server) == []


async def test_a_server_that_hangs_is_ended_and_started_again_by_the_next_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.greet()
    monkeypatch.setattr(toolserver, "_PING_SECONDS", 0.01)
    waiting, _ = await server.request("tools/list")
    requesting, _ = await server.request("tools/call", seconds=0.01)
    assert (await failure_of(requesting))[0] == "tool_timeout"
    assert await failure_of(waiting) == ("tool_crashed", "s hung and was ended")
    assert (server.ended, server.process.running) == ([1], False)
    assert [(await server.next_message())["method"] for _ in range(2)] == ["notifications/cancelled", "ping"]
    assert await server.next_message() is None
    os.close(server.output)
    await server.greet()
    assert (len(server.started), server.ended, server.process.running) == (2, [1], True)


async def test_a_request_that_is_given_up_is_cancelled_at_the_server(server: Server) -> None:
    await server.greet()
    requesting, number = await server.request("tools/call")
    requesting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await requesting
    assert (await server.next_message())["params"] == {"requestId": number, "reason": "the client gave up"}
    assert server.process.running


# Ends


async def test_a_server_that_is_stopped_ends_once_and_its_requests_fail(server: Server) -> None:
    server.process.stop()
    assert server.ended == []
    await server.greet()
    running = server.process._process
    assert running is not None and running.reader_task is not None
    requesting, _ = await server.request("tools/call")
    late, _ = await server.request("tools/list", seconds=0.01)
    for _ in range(2):
        server.process.stop()
    assert await failure_of(requesting) == await failure_of(late) == ("worker_lost", "s was stopped")
    assert (server.ended, server.process.running, await server.next_message()) == ([1], False, None)
    assert running.reader_task.cancelled()


async def write_too_much(server: Server) -> None:
    await asyncio.to_thread(os.write, server.output, b"x" * (1 << 20) + b"x")


async def end(server: Server) -> None:
    os.close(server.output)


async def test_whatever_a_server_sends_its_requests_do_not_wait_for_ever(server: Server) -> None:
    """At some depth, which depends on the interpreter, a message can be read and its answer not be written."""
    await server.greet()
    requesting, number = await server.request("tools/call")
    deep = [f'{{"method": "ping", "id": {"[" * depth}{"]" * depth}}}' for depth in range(900, 1000)]
    await asyncio.to_thread(server.write, *deep, {"id": number, "result": {}})
    try:
        assert await asyncio.wait_for(requesting, WITHIN) == {}
    except CallFailure as failure:
        assert (failure.kind, str(failure)) == ("tool_crashed", "s sent what cannot be read, and was ended")


@pytest.mark.parametrize(
    ("work", "kind", "message"),
    [
        (end, "tool_crashed", "s ended unexpectedly"),
        (write_too_much, "tool_output_too_large", "s wrote more than 1 MB in one message"),
    ],
)
async def test_a_server_that_ends_or_writes_too_much_is_ended_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch, work: Callable[[Server], Any], kind: str, message: str
) -> None:
    monkeypatch.setattr(toolserver, "_MESSAGE_BYTES", 1 << 20)
    await server.greet()
    requesting, _ = await server.request("tools/call")
    writing = asyncio.create_task(work(server))
    assert await failure_of(requesting) == (kind, message)
    assert (server.ended, server.process.running, await server.next_message()) == ([1], False, None)
    with suppress(BrokenPipeError):
        await writing


# Starts


async def test_a_server_that_cannot_be_started_leaves_nothing_open(server: Server) -> None:
    before = open_files()
    server.failure = CallFailure("tool_unavailable", "no new process")
    assert await failure_of(server.process.capabilities()) == ("tool_unavailable", "no new process")
    assert (open_files() - before, server.ended, server.process.running) == (set(), [], False)
    server.failure = None
    await server.greet()


def refuse(server: Server, number: int) -> None:
    server.write({"id": number, "error": {"message": "no such version"}})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refuse, "s could not be started: no such version"),
        (lambda server, _: os.close(server.output), "s ended unexpectedly"),
        (lambda *_: None, "s could not be started: no answer within 0.01 seconds"),
    ],
)
async def test_a_server_that_does_not_greet_is_ended_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Server, int], None], message: str
) -> None:
    if "0.01" in message:
        monkeypatch.setattr(toolserver, "_START_SECONDS", 0.01)
    starting = asyncio.create_task(server.process.capabilities())
    answer(server, (await server.next_message())["id"])
    assert await failure_of(starting) == ("tool_crashed", message)
    assert (server.ended, server.process.running, await server.next_message()) == ([1], False, None)


async def test_a_server_that_cannot_be_read_is_ended_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: asyncio.StreamReader) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(asyncio.StreamReader, "readline", fail)
    reason = ("tool_crashed", "s cannot be read: Input/output error")
    assert (await failure_of(server.process.capabilities()), server.ended) == (reason, [1])


async def test_a_server_that_nobody_waits_for_any_more_is_ended(server: Server) -> None:
    starting = asyncio.create_task(server.process.capabilities())
    assert (await server.next_message())["method"] == "initialize"
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (server.ended, server.process.running, await server.next_message()) == ([1], False, None)
