"""An environment without containers: the gateway and the workers as processes of this machine, kept running.

Settings are one JSON object in ``AWORLD_LOCAL``: those of the gateway and of the workers, how many ``workers``, their
``folder`` (private, removed at the end), ``log`` and ``old_log`` (for its content when it is long). Only the gateway
gets ``AWORLD_SECRET``, only the workers get keys. A process that ends is started again, after what its tools left
running has been ended.
"""

import contextlib
import ctypes
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from aworld_train.process_supervisor import SignalWait
from aworld_train.serving.channel import VARIABLE as CHANNEL
from aworld_train.serving.channel import derive_secret
from aworld_train.serving.worker.wipe import empty

_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_PR_SET_PDEATHSIG = 1
_LOG_SECONDS = 5.0
_STOP_SECONDS = 3.0
_STRAY_SECONDS = 5.0
MAX_LOG_BYTES = 10 << 20
_BACKOFF_SECONDS = (0.0, 0.5, 2.0, 10.0)


class ManagedProcess:
    def __init__(self, module: str, variables: dict[str, str], folders: list[Path]):
        self._command = [sys.executable, "-P", "-m", module]
        self._variables, self._folders = variables, folders
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._next_start = 0.0
        self._started = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def seconds_to_start(self) -> float:
        """Until it is started; infinite while it runs."""
        return math.inf if self._process is not None else max(self._next_start - time.monotonic(), 0.0)

    def update(self) -> None:
        """Notice that it has ended; each time that it ends soon after a start, the next start waits longer."""
        if self._process is not None and self._process.poll() is not None:
            lasted = time.monotonic() - self._started
            self._failures = 1 if lasted > 2 * _BACKOFF_SECONDS[-1] else self._failures + 1
            self._next_start = (
                time.monotonic() + _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS)) - 1]
            )
            self._process = None

    def start_if_due(self) -> None:
        if self._process is None and time.monotonic() >= self._next_start:
            for folder in self._folders:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                empty(folder)
            self._started = time.monotonic()
            self._process = subprocess.Popen(
                self._command, env=self._variables, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    settings = json.loads(os.environ["AWORLD_LOCAL"])
    folder = Path(settings["folder"])
    processes = _processes(settings, folder)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signals = SignalWait(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    try:
        while not signals.received & {signal.SIGTERM, signal.SIGINT}:
            rotate_log(Path(settings["log"]), Path(settings["old_log"]))
            for process in processes:
                process.update()
            _end_strays({process.pid for process in processes})
            for process in processes:
                process.start_if_due()
            signals.wait(min(_LOG_SECONDS, *(process.seconds_to_start for process in processes)))
    finally:
        for process in processes:
            process.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            process.end(deadline)
        _end_strays(set())
        with contextlib.suppress(OSError):
            empty(folder)
            folder.rmdir()


def rotate_log(log: Path, old: Path) -> None:
    """Copy a long log to ``old``, and empty it, so that it stays the file that other processes have open."""
    with contextlib.suppress(OSError):
        size = log.stat().st_size
        if size <= MAX_LOG_BYTES:
            return
        descriptor = os.open(old, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with log.open("r+b") as file, os.fdopen(descriptor, "wb") as copy:
            file.seek(0 if size <= 2 * MAX_LOG_BYTES else size - MAX_LOG_BYTES)
            shutil.copyfileobj(file, copy)
            file.truncate(0)


def _processes(settings: dict[str, object], folder: Path) -> list[ManagedProcess]:
    secret = os.environ["AWORLD_SECRET"]
    common = {
        name: value for name, value in os.environ.items() if name not in ("AWORLD_LOCAL", "AWORLD_SECRET")
    }
    numbers = range(int(str(settings["workers"])))
    sockets = [folder / str(number) / "run" / "worker.sock" for number in numbers]
    gateway = {name: settings[name] for name in ("name", "host", "port", "limits", "scoring", "egress")}
    gateway["revoked"] = str(folder / "revoked.json")
    processes = [
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
        folders = {name: own / name for name in ("workspace", "home", "tmp")}
        worker = {
            **{name: settings[name] for name in ("manifest", "python", "here", "servers")},
            "socket": str(socket),
            "workspace": str(folders["workspace"]),
            "folders": [str(path) for path in folders.values()],
            "user": None,
            "own_user": None,
            "egress": None,
            "desktop": False,
        }
        variables = {
            **common,
            "HOME": str(folders["home"]),
            "TMPDIR": str(folders["tmp"]),
            "AWORLD_WORKER": json.dumps(worker),
            CHANNEL: derive_secret(secret, number),
        }
        processes.append(
            ManagedProcess("aworld_train.serving.worker", variables, [socket.parent, *folders.values()])
        )
    return processes


def _end_strays(spared: set[int | None]) -> None:
    """End the children that are not ``spared``: a worker that died left them, or their parents did."""
    deadline = time.monotonic() + _STRAY_SECONDS
    while time.monotonic() < deadline:
        strays = _children() - spared
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                child = psutil.Process(pid)
                child.kill()
                child.wait(1.0)


def _children() -> set[int]:
    """The children of this process, which only its first thread starts; psutil looks at every process for them."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    except FileNotFoundError:  # in kernels without CONFIG_PROC_CHILDREN
        return {child.pid for child in psutil.Process().children()}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
