"""The worker's end of the spawner: tool servers are started through it, each with the variables that are its own."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
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
_OURS = "AWORLD_"
START_ANEW = 70
"""Exit code of a worker that has to be started anew."""


@dataclass(frozen=True)
class CommandPaths:
    """What ``{python}``, ``{here}`` and ``{workspace}`` mean in a command."""

    python: str
    here: Path
    workspace: Path

    def fill(self, part: str) -> str:
        for name in ("python", "here", "workspace"):
            part = part.replace(f"{{{name}}}", str(getattr(self, name)))
        return part


class Spawner:
    """A running spawner.

    Args:
        manifest: Says which functions are called and which variables are keys.
        places: What the placeholders in commands mean.
        variables: This worker's environment variables; servers get all of them but keys, and of these their own.
        chosen: The servers that may be started; what others need may not be here.
        proxies: By server, what it needs to know of its way out; those that have none are not there.
        user: Whom tool servers run as, as the spawner's ``ToolUser``; None: the user of this process.
    """

    def __init__(
        self,
        manifest: Manifest,
        places: CommandPaths,
        variables: Mapping[str, str],
        chosen: Collection[str],
        proxies: Mapping[str, Mapping[str, str]] | None = None,
        user: Mapping[str, int] | None = None,
    ):
        self._places = places
        self._proxies = proxies or {}
        keys = manifest.key_names()
        self._keys = {name: value for name, value in variables.items() if name in keys}
        self._common = {
            name: value
            for name, value in variables.items()
            if name not in keys and not name.startswith(_OURS) and name != "PYTHONPATH"
        } | {"WORKSPACE": str(places.workspace), "PYTHONUNBUFFERED": "1"}
        functions = [
            entry.function for name, entry in manifest.servers.items() if entry.function and name in chosen
        ]
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._turn = asyncio.Lock()
        self._killing: set[asyncio.Future[dict[str, Any]]] = set()
        with theirs:
            process = subprocess.Popen(
                [
                    *(places.python, "-P", spawner.__file__, str(theirs.fileno())),
                    *(json.dumps(user), *functions),
                ],
                pass_fds=[theirs.fileno()],
                env={**self._common, "PYTHONPATH": str(places.here)},  # their modules may be there
                cwd=places.here,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        self.pid = process.pid
        process.returncode = 0  # its end is seen by the socket, and its remains are buried with all others

    async def ready(self) -> None:
        """Wait until it has imported what servers share.

        Raises:
            CallFailure: It could not.
        """
        answer = await self._answer(_PRELOAD_SECONDS)
        if "error" in answer:
            raise CallFailure(
                "tool_unavailable", f"what servers share could not be imported: {answer['error']}"
            )

    async def spawn(self, name: str, entry: ServerEntry, standard_input: int, standard_output: int) -> int:
        """Start a server; see ``toolserver.Spawn``.

        Raises:
            CallFailure: It could not be started.
        """
        secrets = {key: self._keys[key] for key in (*entry.keys, *entry.optional_keys) if key in self._keys}
        secrets |= self._proxies.get(name, {})
        order = {
            "cwd": str(self._places.workspace),
            "private": bool(secrets),
            **(
                {"argv": [self._places.fill(part) for part in entry.command]}
                if entry.command
                else {"function": entry.function}
            ),
        }
        variables = _written({**self._common, **secrets})
        try:
            answer = await self._order(order, [standard_input, standard_output, variables])
        finally:
            os.close(variables)
        if "error" in answer:
            raise CallFailure("tool_unavailable", f"{name} could not be started: {answer['error']}")
        return int(answer["pid"])

    def kill(self, pid: int) -> None:
        """Have a server ended, with its process group, before any later order is carried out."""
        killing = asyncio.ensure_future(self._order({"kill": pid}, []))
        self._killing.add(killing)
        killing.add_done_callback(self._killing.discard)

    async def wipe(self) -> None:
        """End everything that was started, and empty the folders of this container.

        Raises:
            NotClean: Something is left.
        """
        answer = await self._order({"wipe": True}, [], _WIPE_SECONDS)
        if "error" in answer:
            raise NotClean(answer["error"])

    async def prove(self) -> None:
        """Return when it has answered, and so has carried out what was ordered before; end this worker if it does not.

        One that a tool has sent SIGKILL may be there for a while yet, but it answers nothing any more.
        """
        await self._order({}, [])

    async def _order(
        self, order: dict[str, Any], descriptors: list[int], seconds: float = _ORDER_SECONDS
    ) -> dict[str, Any]:
        async with self._turn:
            try:
                socket.send_fds(self._ours, [json.dumps(order).encode()], descriptors)
            except OSError:
                give_up()
            answering = asyncio.ensure_future(self._answer(seconds))
            try:
                return await asyncio.shield(answering)
            except asyncio.CancelledError:
                await answering  # or it would be taken for the answer to the next order
                raise

    async def _answer(self, seconds: float) -> dict[str, Any]:
        """What it says next."""
        try:
            async with asyncio.timeout(seconds):
                data = await asyncio.get_running_loop().sock_recv(self._ours, 1 << 16)
        except (TimeoutError, OSError):
            data = b""
        if not data:
            give_up()
        answer: dict[str, Any] = json.loads(data)
        return answer

    def close(self) -> None:
        """Let it end."""
        with contextlib.suppress(OSError):
            self._ours.close()


def _written(variables: Mapping[str, str]) -> int:
    """The descriptor of a file in memory that has the variables as JSON, to be read from its beginning."""
    descriptor = os.memfd_create("variables", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(variables).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def give_up() -> NoReturn:
    """End this worker: without a spawner there can be no tool server, and whoever runs it starts it anew, clean."""
    sys.stderr.write("The process that starts tool servers is gone, or does not answer; this worker ends.\n")
    os._exit(START_ANEW)
