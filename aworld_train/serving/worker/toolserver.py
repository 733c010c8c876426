"""One tool server: a process that speaks MCP, JSON-RPC in lines, on its standard input and output.

Any number of sessions send it requests at the same time. If the process dies or writes too long a line, its open
requests get a typed failure, and the next request starts it again. A request beyond its time limit is cancelled, and
the process is ended unless it answers a ping.
"""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aworld_train.serving.manifest import ServerEntry
from aworld_train.serving.mcp_messages import HELLO, reply_to_server
from aworld_train.serving.tool_results import valid_error
from aworld_train.serving.worker.failures import CallFailure, RemoteError
from aworld_train.serving.worker.launcher import Spawner

_MESSAGE_BYTES = 32 << 20  # longest line; a picture is some megabytes, in base64
_START_SECONDS = 60.0
_PING_SECONDS = 10.0
_BEGINNING = re.compile(r'\{\s*"(?:jsonrpc|id|result|error|method)"\s*:')  # of a message within a line
_MAX_BEGINNINGS = 100
_MAX_DIGITS = 18
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)  # NaN is not JSON, and clients refuse it


Notify = Callable[[dict[str, Any]], None]


@dataclass
class _Call:
    answer: asyncio.Future[dict[str, Any]]
    on_progress: Notify | None
    progress_token: Any = None


@dataclass
class _Process:
    """A running server process and its open requests; its successor gets an object of its own."""

    pid: int
    writer: asyncio.StreamWriter
    capabilities: dict[str, Any] = field(default_factory=dict)
    calls: dict[int, _Call] = field(default_factory=dict)
    failure: CallFailure | None = None
    reader_task: asyncio.Task[None] | None = None
    stuck_check: asyncio.Task[None] | None = None  # referenced, so that it is not collected


@dataclass(eq=False)
class ToolServerProcess:
    """A tool server, running or not; ``environment`` replaces or joins the variables that it gets anyway."""

    name: str
    entry: ServerEntry
    spawner: Spawner
    on_notification: Notify
    environment: Mapping[str, str] | None = None
    _process: _Process | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _number: int = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.failure is None

    async def capabilities(self) -> dict[str, Any]:
        return (await self._running()).capabilities

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        on_progress: Notify | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """The result of a request, after at most ``seconds`` (default: the entry's); a cancelled one is cancelled at
        the server.

        Raises CallFailure if the server could not be started, died, wrote too much or was too slow, and RemoteError if
        it answered with an error.
        """
        seconds = self.entry.timeout if seconds is None else seconds
        process = await self._running()
        number, call = self._send(process, method, params, on_progress)
        try:
            return await asyncio.wait_for(asyncio.shield(call.answer), seconds)
        except TimeoutError:
            self._cancel(process, number, f"no answer within {seconds:g} seconds")
            process.stuck_check = asyncio.create_task(self._end_if_stuck(process))
            raise CallFailure(
                "tool_timeout", f"{self.name} did not answer within {seconds:g} seconds"
            ) from None
        except asyncio.CancelledError:
            self._cancel(process, number, "the client gave up")
            raise
        finally:
            process.calls.pop(number, None)

    def stop(self) -> None:
        if self._process is not None:
            self._end(self._process, CallFailure("worker_lost", f"{self.name} was stopped"))

    async def _running(self) -> _Process:
        async with self._starting:
            if self._process is None or self._process.failure is not None:
                self._process = await self._start()
            return self._process

    async def _start(self) -> _Process:
        server_in, worker_out = os.pipe()
        worker_in, server_out = os.pipe()
        try:
            pid = await self.spawner.spawn(self.name, self.entry, server_in, server_out, self.environment)
        except BaseException:
            os.close(worker_out)
            os.close(worker_in)
            raise
        finally:
            os.close(server_in)
            os.close(server_out)
        reader, writer = await _streams(worker_in, worker_out)
        process = _Process(pid, writer)
        process.reader_task = asyncio.create_task(self._read(process, reader))
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._initialize(process)
        except (TimeoutError, RemoteError, CallFailure) as error:
            reason = (
                f"no answer within {_START_SECONDS:g} seconds"
                if isinstance(error, TimeoutError)
                else str(error)
            )
            self._end(process, CallFailure("tool_crashed", f"{self.name} could not be started: {reason}"))
            raise process.failure or error from error
        except asyncio.CancelledError:
            self._end(process, CallFailure("tool_crashed", f"{self.name} was not waited for"))
            raise
        return process

    async def _initialize(self, process: _Process) -> None:
        _, call = self._send(process, "initialize", HELLO, None)
        answer = await call.answer
        capabilities = answer.get("capabilities")
        process.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self._write(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(
        self, process: _Process, method: str, params: Mapping[str, Any] | None, on_progress: Notify | None
    ) -> tuple[int, _Call]:
        self._number += 1
        number = self._number
        call = _Call(asyncio.get_running_loop().create_future(), on_progress)
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = dict(params)
            meta = params.get("_meta")
            if isinstance(meta, dict) and "progressToken" in meta:
                call.progress_token = meta["progressToken"]
                message["params"]["_meta"] = {**meta, "progressToken": number}
        process.calls[number] = call
        self._write(process, message)
        return number, call

    def _write(self, process: _Process, message: dict[str, Any]) -> None:
        process.writer.write(json.dumps(message).encode() + b"\n")

    def _cancel(self, process: _Process, number: int, reason: str) -> None:
        if process.failure is None:
            params = {"requestId": number, "reason": reason}
            self._write(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def _end_if_stuck(self, process: _Process) -> None:
        """End a server that does not answer a ping; one that does may only be slow."""
        if process.failure is not None:
            return
        number, call = self._send(process, "ping", None, None)
        try:
            await asyncio.wait_for(asyncio.shield(call.answer), _PING_SECONDS)
        except TimeoutError:
            self._end(process, CallFailure("tool_crashed", f"{self.name} hung and was ended"))
        except (CallFailure, RemoteError):
            pass
        finally:
            process.calls.pop(number, None)

    async def _read(self, process: _Process, reader: asyncio.StreamReader) -> None:
        reason = CallFailure("tool_crashed", f"{self.name} ended unexpectedly")
        try:
            while line := await reader.readline():
                for message in _messages(line):
                    self._handle_message(process, message)
        except ValueError:
            reason = CallFailure(
                "tool_output_too_large",
                f"{self.name} wrote more than {_MESSAGE_BYTES >> 20} MB in one message",
            )
        except OSError as error:
            reason = CallFailure("tool_crashed", f"{self.name} cannot be read: {error.strerror}")
        except Exception:  # whatever a server may send that its session has taken over
            reason = CallFailure("tool_crashed", f"{self.name} sent what cannot be read, and was ended")
        self._end(process, reason)

    def _handle_message(self, process: _Process, message: dict[str, Any]) -> None:
        if "method" in message:
            self._handle_server_message(process, message)
            return
        call = process.calls.get(_number(message.get("id")))
        if call is None or call.answer.done():
            return
        error, result = message.get("error"), message.get("result")
        if error is not None and (error or "result" not in message):
            call.answer.set_exception(RemoteError(valid_error(error)))
        else:
            result = {} if result is None else result
            call.answer.set_result(result if isinstance(result, dict) else {"content": result})

    def _handle_server_message(self, process: _Process, message: dict[str, Any]) -> None:
        if "id" in message:
            # No client behind the gateway offers sampling, roots or elicitation.
            self._write(process, {"jsonrpc": "2.0", **reply_to_server(message)})
        elif message["method"] == "notifications/progress":
            params = message["params"] if isinstance(message.get("params"), dict) else {}
            token = params.get("progressToken")
            call = process.calls.get(_number(token))
            if call is not None and call.on_progress is not None:
                call.on_progress({**message, "params": {**params, "progressToken": call.progress_token}})
        else:
            self.on_notification(message)

    def _end(self, process: _Process, reason: CallFailure) -> None:
        if process.failure is not None:
            return
        process.failure = reason
        # A server that saw the end of its input first would end on its own, and libraries write errors then.
        self.spawner.kill(process.pid, process.writer.close)
        if process.reader_task is not None:
            process.reader_task.cancel()  # also from its own task, as the last thing that it does
        for call in process.calls.values():
            if not call.answer.done():
                call.answer.set_exception(reason)


def _messages(line: bytes) -> Iterator[dict[str, Any]]:
    """The messages in a line; text around them was printed by mistake, and the protocol has no reply to it."""
    try:
        value = _DECODER.decode(line.decode("utf-8-sig"))
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))
        return
    except (ValueError, RecursionError):
        text, position = line.decode(errors="replace"), 0
    for _ in range(_MAX_BEGINNINGS):
        if (beginning := _BEGINNING.search(text, position)) is None:
            return
        position = beginning.end()
        with contextlib.suppress(ValueError, RecursionError):
            message, position = _DECODER.raw_decode(text, beginning.start())
            yield message


def _number(request_id: Any) -> int:
    """The number of the request that a message is about; some servers give it back as text."""
    if isinstance(request_id, str) and request_id.isascii() and request_id.isdigit():
        return int(request_id[:_MAX_DIGITS])
    return int(request_id) if isinstance(request_id, int | float) and abs(request_id) < 2**53 else -1


async def _streams(worker_in: int, worker_out: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MESSAGE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(worker_in, "rb"))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(worker_out, "wb")
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
