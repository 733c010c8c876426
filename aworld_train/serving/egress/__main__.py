"""``python -m aworld_train.serving.egress``: settings as one JSON object in ``AWORLD_EGRESS`` (see ``settings``).

Squid or Unbound is restarted when it ends, at most `_MAX_RESTARTS` times a minute; then this process ends, and the
engine restarts it with growing pauses.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from aiohttp import web

from aworld_train.errors import EnvironmentFailure
from aworld_train.serving.egress.config import write_files
from aworld_train.serving.egress.counts import Counts, outcome, parse_line
from aworld_train.serving.egress.forwarding import Forwarder
from aworld_train.serving.egress.programs import Program, restrict_folder, unprivileged_user
from aworld_train.serving.egress.settings import Settings, read_settings

_DNS_PORT = 53
_BACKLOG = 1024
_MAX_CONNECTIONS = 512  # of one worker
_LINE_BYTES = 1 << 17
_MAX_RESTARTS = 5
_RESTART_SECONDS = 60.0
_RESOLV_CONF = Path("/etc/resolv.conf")


def main() -> NoReturn:
    try:
        settings = read_settings(json.loads(os.environ.pop("AWORLD_EGRESS")))
    except (KeyError, ValueError) as error:
        sys.exit(f"AWORLD_EGRESS cannot be used: {type(error).__name__}: {error}")
    try:
        sys.exit(asyncio.run(_run(settings)))
    except EnvironmentFailure as error:
        sys.exit(f"The egress ends: {error.message}")


async def _run(settings: Settings) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    counts = Counts(tuple(account.server for account in settings.accounts))
    with tempfile.TemporaryDirectory(prefix="egress-") as name:
        folder = Path(name)
        async with contextlib.AsyncExitStack() as stack:
            log_port = await stack.enter_async_context(_receive_log(counts))
            write_files(settings, folder, log_port, _nameservers(settings), unprivileged_user() or "")
            restrict_folder(folder)
            # Unbound needs a port that may be reserved for root, and changes its user itself.
            unbound = Program(["unbound", "-d", "-c", str(folder / "unbound.conf")], None)
            squid = Program(["squid", "-N", "-d", "0", "-f", str(folder / "squid.conf")], unprivileged_user())
            addresses = {unbound: (settings.resolver, _DNS_PORT), squid: ("127.0.0.1", settings.squid_port)}
            for program, address in addresses.items():
                stack.push_async_callback(program.stop)
                await program.start(*address)
            for path in settings.sockets:
                await stack.enter_async_context(_forward_socket(path, settings.squid_port))
            await stack.enter_async_context(_serve_counts(settings.counts, counts))
            sys.stderr.write(
                f"{len(settings.accounts)} servers have egress, through {len(settings.sockets)} sockets.\n"
            )
            return await _keep_running(stopped, addresses, counts)


async def _keep_running(
    stopped: asyncio.Event, addresses: Mapping[Program, tuple[str, int]], counts: Counts
) -> int:
    """Start programs again that end; the exit code: 0 if this was stopped, 1 if they ended too often."""
    stopping = asyncio.ensure_future(stopped.wait())
    ends = {asyncio.ensure_future(program.wait_for_end()): program for program in addresses}
    recent: deque[float] = deque(maxlen=_MAX_RESTARTS)
    while True:
        await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return 0
        for end in [end for end in ends if end.done()]:
            now = asyncio.get_running_loop().time()
            if len(recent) == _MAX_RESTARTS and now - recent[0] < _RESTART_SECONDS:
                sys.stderr.write(
                    f"The egress ends: {end.result()}, after {_MAX_RESTARTS} restarts within a minute.\n"
                )
                return 1
            recent.append(now)
            counts.restarts += 1
            program = ends.pop(end)
            sys.stderr.write(f"{end.result()}; it is started again (restart {counts.restarts}).\n")
            try:
                await program.start(*addresses[program])
            except EnvironmentFailure as failure:  # counts as one more end
                sys.stderr.write(f"{failure.message}\n")
                await program.stop()
            ends[asyncio.ensure_future(program.wait_for_end())] = program


def _nameservers(settings: Settings) -> tuple[str, ...]:
    if settings.nameservers:
        return settings.nameservers
    lines = [line.split() for line in _RESOLV_CONF.read_text(encoding="utf-8").splitlines()]
    nameservers = tuple(line[1] for line in lines if len(line) > 1 and line[0] == "nameserver")
    if not nameservers:
        raise EnvironmentFailure(f"{_RESOLV_CONF} names no name server, and the settings name none.")
    return nameservers


@contextlib.asynccontextmanager
async def _receive_log(counts: Counts) -> AsyncIterator[int]:
    async def read_log(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, OSError):
            while line := await reader.readline():
                _count(counts, line.decode("ascii", errors="replace").rstrip("\r\n"))
        writer.close()

    server = await asyncio.start_server(read_log, "127.0.0.1", 0, limit=_LINE_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _count(counts: Counts, line: str) -> None:
    request = parse_line(line)
    if request is None:
        return
    counts.add(request)
    if (request_outcome := outcome(request)).startswith("refused"):
        sys.stderr.write(f"{request_outcome} {request.server or '-'} {request.host}:{request.port}\n")


@contextlib.asynccontextmanager
async def _forward_socket(path: str, port: int) -> AsyncIterator[None]:
    forwarder = Forwarder(lambda: asyncio.open_connection("127.0.0.1", port), _MAX_CONNECTIONS)
    with _private_socket(path):
        server = await asyncio.start_unix_server(forwarder.serve, path, backlog=_BACKLOG)
    try:
        yield
    finally:
        server.close()
        await forwarder.close()


@contextlib.asynccontextmanager
async def _serve_counts(path: str, counts: Counts) -> AsyncIterator[None]:
    async def show(_: web.Request) -> web.Response:
        return web.json_response(counts.to_json())

    app = web.Application()
    app.router.add_get("/counts", show)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    with _private_socket(path):
        await web.UnixSite(runner, path).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def _private_socket(path: str) -> Iterator[None]:
    """A socket for this user alone while the block runs; the file of an earlier run is removed first."""
    Path(path).unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


if __name__ == "__main__":
    main()
