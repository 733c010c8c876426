"""One supervised process: started under a guard that leaves nothing running, watched, and ended within a time limit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from aworld_train import guard

_STOP_SECONDS = 2 * guard.GRACE + 2.0


@dataclass(frozen=True)
class ProcessEnd:
    """How the process ended: its exit code, and the reason if we ended it."""

    code: int
    stopped_because: str | None = None


def run_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    log: Path,
    watch: Callable[[], str | None],
    every: float = 0.5,
    remove: Path | None = None,
) -> ProcessEnd:
    """Run a command to its end, or until ``watch`` says why it must stop.

    The command runs in a session of its own, so that Ctrl-C reaches this process alone; when this process dies, by
    SIGKILL too, the guard ends the command and all that it started.

    Args:
        command: program and arguments.
        environment: the whole environment.
        cwd: working directory.
        log: file that gets everything the command prints, appended.
        watch: called every ``every`` seconds; a returned text is the reason to stop.
        remove: a folder that the guard removes at the end, also where this process was killed.

    Raises:
        KeyboardInterrupt: after the command has been ended.
    """
    me = psutil.Process()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                guard.__file__,
                f"--owner-pid={me.pid}",
                f"--owner-started={me.create_time()}",
                *([f"--remove={remove}"] if remove is not None else []),
                "--",
                *command,
            ],
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    reason: str | None = None
    try:
        while process.poll() is None and reason is None:
            reason = watch()
            try:
                process.wait(every)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _stop(process)
    return ProcessEnd(process.returncode, reason)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the guard, and so everything below it; a second Ctrl-C meanwhile does not leave things running."""
    deadline = time.monotonic() + _STOP_SECONDS
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    while process.poll() is None:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
