"""``python -m aworld_train.serving.egress``: settings as one JSON object in ``AWORLD_EGRESS`` (see ``settings``).

Runs Squid and Unbound, leads the workers' sockets to Squid, counts what Squid logs, and writes a line for each
refusal. When one of the two ends, so does this: whoever runs it starts it anew, and workers connect to it again.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

from aiohttp import web

from aworld_train.errors import EnvironmentFailure
from aworld_train.serving.egress.config import write_files
from aworld_train.serving.egress.counts import Counts, outcome, parse_line
from aworld_train.serving.egress.forwarding import Forwarder
from aworld_train.serving.egress.programs import Program, give_folder, ordinary_user
from aworld_train.serving.egress.settings import Settings, read_settings

_DNS_PORT = 53
_BACKLOG = 1024
_MAX_CONNECTIONS = 512  # of one worker
_LINE_BYTES = 1 << 17
_RESOLV_CONF = Path("/etc/resolv.conf")


def main() -> NoReturn:
    """Serve until SIGTERM or SIGINT, or until what it needs has ended."""
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
            log_port = await stack.enter_async_context(_log(counts))
            write_files(settings, folder, log_port, _nameservers(settings), ordinary_user() or "")
            give_folder(folder)
            # Unbound needs a port that may be root's alone, and becomes another user by itself.
            unbound = Program(["unbound", "-d", "-c", str(folder / "unbound.conf")], None)
            squid = Program(["squid", "-N", "-d", "0", "-f", str(folder / "squid.conf")], ordinary_user())
            for program, host, port in (
                (unbound, settings.resolver, _DNS_PORT),
                (squid, "127.0.0.1", settings.squid_port),
            ):
                stack.push_async_callback(program.stop)
                await program.start(host, port)
            for path in settings.sockets:
                await stack.enter_async_context(_forwarded(path, settings.squid_port))
            await stack.enter_async_context(_answered(settings.counts, counts))
            sys.stderr.write(
                f"{len(settings.accounts)} servers have a way out, by {len(settings.sockets)} sockets.\n"
            )
            return await _until_the_end(stopped, (unbound, squid))


async def _until_the_end(stopped: asyncio.Event, programs: tuple[Program, ...]) -> int:
    """The exit code: 0 if this was stopped, 1 if one of the programs ended."""
    stopping = asyncio.ensure_future(stopped.wait())
    endings = [asyncio.ensure_future(program.ended()) for program in programs]
    await asyncio.wait([stopping, *endings], return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        return 0
    for ending in endings:
        if ending.done():
            sys.stderr.write(f"The egress ends: {ending.result()}.\n")
    return 1


def _nameservers(settings: Settings) -> tuple[str, ...]:
    if settings.nameservers:
        return settings.nameservers
    lines = [line.split() for line in _RESOLV_CONF.read_text(encoding="utf-8").splitlines()]
    found = tuple(line[1] for line in lines if len(line) > 1 and line[0] == "nameserver")
    if not found:
        raise EnvironmentFailure(f"{_RESOLV_CONF} names no name server, and the settings name none.")
    return found


@contextlib.asynccontextmanager
async def _log(counts: Counts) -> AsyncIterator[int]:
    """Takes the lines that Squid writes, at the port that is given."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, OSError):
            while line := await reader.readline():
                _count(counts, line.decode("ascii", errors="replace").rstrip("\r\n"))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, limit=_LINE_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _count(counts: Counts, line: str) -> None:
    request = parse_line(line)
    if request is None:
        return
    counts.add(request)
    if (found := outcome(request)).startswith("refused"):
        sys.stderr.write(f"{found} {request.server or '-'} {request.host}:{request.port}\n")


@contextlib.asynccontextmanager
async def _forwarded(path: str, port: int) -> AsyncIterator[None]:
    """A worker's socket, which leads to Squid."""
    forwarder = Forwarder(lambda: asyncio.open_connection("127.0.0.1", port), _MAX_CONNECTIONS)
    with _own_socket(path):
        server = await asyncio.start_unix_server(forwarder.serve, path, backlog=_BACKLOG)
    try:
        yield
    finally:
        server.close()
        await forwarder.close()


@contextlib.asynccontextmanager
async def _answered(path: str, counts: Counts) -> AsyncIterator[None]:
    """The socket where the gateway asks for the counts."""

    async def show(_: web.Request) -> web.Response:
        return web.json_response(counts.to_json())

    app = web.Application()
    app.router.add_get("/counts", show)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    with _own_socket(path):
        await web.UnixSite(runner, path).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def _own_socket(path: str) -> Iterator[None]:
    """Sockets made in this block are for this user alone, and take the place of those of a former run."""
    Path(path).unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


if __name__ == "__main__":
    main()
