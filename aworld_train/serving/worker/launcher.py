"""The worker's side of the spawner: it starts tool servers, each with the environment variables of its own."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from aworld_train.serving.manifest import Manifest, ServerEntry
from aworld_train.serving.worker import spawner
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.wipe import NotClean

_ORDER_SECONDS = 10.0
_PRELOAD_SECONDS = 120.0
_WIPE_SECONDS = 60.0
_PRIVATE_PREFIX = "AWORLD_"
_MAX_ANSWER_BYTES = 1 << 16
EXIT_FOR_RESTART = 70


@dataclass(frozen=True)
class CommandPaths:
    python: str
    here: Path
    workspace: Path

    def fill(self, part: str) -> str:
        for name in ("python", "here", "workspace"):
            part = part.replace(f"{{{name}}}", str(getattr(self, name)))
        return part


class Spawner:
    """A running spawner process, which starts the ``chosen`` servers; the packages of others may be missing.

    Of ``variables``, each server gets all that are not keys, its own keys, and its ``proxies``.
    """

    def __init__(
        self,
        manifest: Manifest,
        paths: CommandPaths,
        variables: Mapping[str, str],
        chosen: Collection[str],
        proxies: Mapping[str, Mapping[str, str]] | None = None,
        user: Mapping[str, int] | None = None,
    ):
        self._paths = paths
        self._proxies = proxies or {}
        keys = manifest.key_names()
        self._keys = {name: value for name, value in variables.items() if name in keys}
        self._common = {
            name: value
            for name, value in variables.items()
            if name not in keys and not name.startswith(_PRIVATE_PREFIX) and name != "PYTHONPATH"
        } | {"WORKSPACE": str(paths.workspace), "PYTHONUNBUFFERED": "1"}
        functions = [
            entry.function for name, entry in manifest.servers.items() if entry.function and name in chosen
        ]
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._order_lock = asyncio.Lock()
        self._killing: set[asyncio.Future[dict[str, Any]]] = set()
        with child_socket:
            process = subprocess.Popen(
                [
                    *(paths.python, "-P", spawner.__file__, str(child_socket.fileno())),
                    *(json.dumps(user), *functions),
                ],
                pass_fds=[child_socket.fileno()],
                env={**self._common, "PYTHONPATH": str(paths.here)},  # the servers' modules may be there
                cwd=paths.here,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        self.pid = process.pid
        process.returncode = 0  # its end shows at the socket, and `reap_children` collects its exit status

    async def ready(self) -> None:
        answer = await self._answer(_PRELOAD_SECONDS)
        if "error" in answer:
            raise CallFailure(
                "tool_unavailable", f"what servers share could not be imported: {answer['error']}"
            )

    async def spawn(
        self,
        name: str,
        entry: ServerEntry,
        standard_input: int,
        standard_output: int,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        secrets = {**entry.own_variables(self._keys), **self._proxies.get(name, {}), **(environment or {})}
        order = {
            "cwd": str(self._paths.workspace),
            "private": bool(secrets),
            **(
                {"argv": [self._paths.fill(part) for part in entry.command]}
                if entry.command
                else {"function": entry.function}
            ),
        }
        variables = _write_variables({**self._common, **secrets})
        try:
            answer = await self._order(order, [standard_input, standard_output, variables])
        finally:
            os.close(variables)
        if "error" in answer:
            raise CallFailure("tool_unavailable", f"{name} could not be started: {answer['error']}")
        return int(answer["pid"])

    def kill(self, pid: int, then: Callable[[], None]) -> None:
        """Order the end of a server, with its process group, before any later order is carried out."""
        killing = asyncio.ensure_future(self._order({"kill": pid}, []))
        self._killing.add(killing)
        killing.add_done_callback(self._killing.discard)
        killing.add_done_callback(lambda _: then())

    async def wipe(self) -> None:
        answer = await self._order({"wipe": True}, [], _WIPE_SECONDS)
        if "error" in answer:
            raise NotClean(answer["error"])

    async def wait_until_idle(self) -> None:
        """Wait until all earlier orders have been carried out; end this worker if the spawner does not answer.

        A spawner to which a tool has sent SIGKILL may still exist for a while, but it does not answer.
        """
        await self._order({}, [])

    async def _order(
        self, order: dict[str, Any], descriptors: list[int], seconds: float = _ORDER_SECONDS
    ) -> dict[str, Any]:
        async with self._order_lock:
            try:
                socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors)
            except OSError:
                end_worker()
            answering = asyncio.ensure_future(self._answer(seconds))
            try:
                return await asyncio.shield(answering)
            finally:
                # However often this is cancelled: else the next order would receive this answer.
                while not answering.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.shield(answering)

    async def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                data = await asyncio.get_running_loop().sock_recv(self._socket, _MAX_ANSWER_BYTES)
        except (TimeoutError, OSError):
            data = b""
        if not data:
            end_worker()
        answer: dict[str, Any] = json.loads(data)
        return answer

    async def close(self) -> None:
        """Close the socket, on which the spawner ends; what `kill` ordered is done before."""
        await asyncio.gather(*self._killing)
        with contextlib.suppress(OSError):
            self._socket.close()


def _write_variables(variables: Mapping[str, str]) -> int:
    descriptor = os.memfd_create("variables", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(variables).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def end_worker() -> NoReturn:
    """End this worker, which needs its spawner to start tool servers; its supervisor starts it again, clean."""
    sys.stderr.write("The process that starts tool servers is gone, or does not answer; this worker ends.\n")
    os._exit(EXIT_FOR_RESTART)
