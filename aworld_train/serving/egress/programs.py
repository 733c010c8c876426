"""Squid and Unbound as child processes, which run as another user where this process is root."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from aworld_train.errors import EnvironmentFailure

_UNPRIVILEGED_USER = "nobody"
_START_SECONDS = 30.0
_END_SECONDS = 5.0
_RETRY_SECONDS = 0.05


class Program:
    """A program from ``PATH`` or the folders of daemons, run as ``user`` (None: this process's own)."""

    def __init__(self, command: Sequence[str], user: str | None):
        self._command = [_executable(command[0]), *command[1:]]
        self._user = user
        self._process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        return Path(self._command[0]).name

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, host: str, port: int) -> None:
        user, group, groups = _ids(self._user)
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            user=user,
            group=group,
            extra_groups=groups,
        )
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while not await _takes_connections(host, port):
            if self._process.returncode is not None:
                raise EnvironmentFailure(
                    f"{self.name} ended with {self._process.returncode} when it was started."
                )
            if asyncio.get_running_loop().time() > deadline:
                raise EnvironmentFailure(
                    f"{self.name} does not listen on {host}:{port} after {_START_SECONDS:g} s."
                )
            await asyncio.sleep(_RETRY_SECONDS)

    async def wait_for_end(self) -> str:
        assert self._process is not None
        code = await self._process.wait()
        return f"{self.name} ended with {signal.Signals(-code).name if code < 0 else code}"

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
                    return


def unprivileged_user() -> str | None:
    return _UNPRIVILEGED_USER if os.geteuid() == 0 else None


def restrict_folder(folder: Path) -> None:
    user = unprivileged_user()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if user:
            shutil.chown(path, user)


def _executable(program: str) -> str:
    path = shutil.which(
        program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    )
    if path is None:
        raise EnvironmentFailure(
            f"{program} is not installed here (Debian: `apt-get install squid unbound`)."
        )
    return path


def _ids(user: str | None) -> tuple[int | None, int | None, list[int] | None]:
    if user is None:
        return None, None, None
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid, []


async def _takes_connections(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.transport.abort()
    return True
