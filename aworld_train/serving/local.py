"""An environment without containers: the gateway and the workers as processes of this machine, kept running.

    python -m aworld_train.serving.local

Settings are one JSON object in ``AWORLD_LOCAL``: ``name``, ``host``, ``port``, ``limits`` (the gateway's), ``workers``
(how many), ``scoring`` (how many of them, the last, are for scoring), ``egress`` (null: processes have the machine's
network), ``manifest``, ``python``, ``here``, ``servers`` (the workers'), ``folder`` (private; made, and removed at the
end), ``log`` and ``old_log`` (the file that all of this writes to, and where its content goes when it is long).
``AWORLD_SECRET`` is given to the gateway alone, keys to the workers alone. A process that ends is started again, and
what its tools left running is ended first.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import psutil

from aworld_train.serving.channel import VARIABLE as CHANNEL
from aworld_train.serving.channel import derive_secret
from aworld_train.serving.worker.wipe import empty

_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_PR_SET_PDEATHSIG = 1
_INTERVAL = 0.2
_PATIENCE = 3.0
_STRAY_SECONDS = 5.0
MAX_LOG_BYTES = 10 << 20
_BACK_OFF = (0.0, 0.5, 2.0, 10.0)
"""Seconds before a process that keeps ending is started again."""


class ManagedProcess:
    """One process of the environment, started again when it ends."""

    def __init__(self, module: str, variables: dict[str, str], folders: list[Path]):
        self._command = [sys.executable, "-P", "-m", module]
        self._variables, self._folders = variables, folders
        self._process: subprocess.Popen[bytes] | None = None
        self._ends = 0
        self._again = 0.0
        self._began = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def look(self) -> None:
        """Take note if it has ended; one that ends again and again has to wait longer each time."""
        if self._process is not None and self._process.poll() is not None:
            lasted = time.monotonic() - self._began
            self._ends = 1 if lasted > 2 * _BACK_OFF[-1] else self._ends + 1
            self._again = time.monotonic() + _BACK_OFF[min(self._ends, len(_BACK_OFF)) - 1]
            self._process = None

    def keep(self) -> None:
        """Start it, in empty folders, if it does not run and has waited long enough."""
        if self._process is None and time.monotonic() >= self._again:
            for folder in self._folders:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                empty(folder)
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                self._command, env=self._variables, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
            )

    def stop(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """Wait until it has ended, and end it at the deadline."""
        if self._process is None:
            return
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = json.loads(os.environ["AWORLD_LOCAL"])
    folder = Path(settings["folder"])
    parts = _parts(settings, folder)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        while not stopping:
            bound_log(Path(settings["log"]), Path(settings["old_log"]))
            for part in parts:
                part.look()
            _end_strays({part.pid for part in parts})
            for part in parts:
                part.keep()
            time.sleep(_INTERVAL)
    finally:
        for part in parts:
            part.stop()
        deadline = time.monotonic() + _PATIENCE
        for part in parts:
            part.end(deadline)
        _end_strays(set())
        with contextlib.suppress(OSError):
            empty(folder)
            folder.rmdir()


def bound_log(log: Path, old: Path) -> None:
    """Put a log that has become long aside, in the place of the one before, and begin it anew.

    It stays the same file, because others have it open. What is written between the two steps is lost.
    """
    with contextlib.suppress(OSError):
        size = log.stat().st_size
        if size <= MAX_LOG_BYTES:
            return
        descriptor = os.open(old, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with log.open("r+b") as file, os.fdopen(descriptor, "wb") as copy:
            file.seek(0 if size <= 2 * MAX_LOG_BYTES else size - MAX_LOG_BYTES)
            shutil.copyfileobj(file, copy)
            file.truncate(0)


def _parts(settings: dict[str, object], folder: Path) -> list[ManagedProcess]:
    secret = os.environ["AWORLD_SECRET"]
    common = {
        name: value for name, value in os.environ.items() if name not in ("AWORLD_LOCAL", "AWORLD_SECRET")
    }
    numbers = range(int(str(settings["workers"])))
    sockets = [folder / str(number) / "run" / "worker.sock" for number in numbers]
    gateway = {name: settings[name] for name in ("name", "host", "port", "limits", "scoring", "egress")}
    gateway["revoked"] = str(folder / "revoked.json")
    parts = [
        ManagedProcess(
            "aworld_train.serving.env_gateway",
            {
                **{name: common[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in common},
                "AWORLD_GATEWAY": json.dumps({**gateway, "sockets": [str(socket) for socket in sockets]}),
                "AWORLD_SECRET": secret,
            },
            [],
        )
    ]
    for number, socket in zip(numbers, sockets, strict=True):
        own = folder / str(number)
        places = {name: own / name for name in ("workspace", "home", "tmp")}
        worker = {
            **{name: settings[name] for name in ("manifest", "python", "here", "servers")},
            "socket": str(socket),
            "workspace": str(places["workspace"]),
            "folders": [str(place) for place in places.values()],
            "user": None,
            "own_user": None,
            "egress": None,
            "desktop": False,
        }
        variables = {
            **common,
            "HOME": str(places["home"]),
            "TMPDIR": str(places["tmp"]),
            "AWORLD_WORKER": json.dumps(worker),
            CHANNEL: derive_secret(secret, number),
        }
        parts.append(
            ManagedProcess("aworld_train.serving.worker", variables, [socket.parent, *places.values()])
        )
    return parts


def _end_strays(parts: set[int | None]) -> None:
    """End the children that are no part: what a worker that died left behind, and then what these leave behind."""
    deadline = time.monotonic() + _STRAY_SECONDS
    while time.monotonic() < deadline:
        strays = [child for child in psutil.Process().children() if child.pid not in parts]
        if not strays:
            return
        for child in strays:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                child.kill()
                child.wait(1)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
