"""One supervised process: started under a guard that leaves nothing running, watched, and ended within a time limit.

What it prints comes through this process, which masks values of environment variables before anything is written.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from aworld_train import process_supervisor
from aworld_train.masking import mask

_CHUNK = 1 << 16
_MAX_LINE = 1 << 20
"""Bytes of a line that has no end yet which are held back, so that a value in it is seen whole."""
_LAST_WORDS_SECONDS = 5.0
_STOP_SECONDS = 2 * process_supervisor.GRACE + 2.0


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
        log: file that gets everything the command prints, appended and masked; its owner alone may read it.
        watch: called every ``every`` seconds; a returned text is the reason to stop.
        remove: a folder that the guard removes at the end, also where this process was killed.

    Raises:
        KeyboardInterrupt: after the command has been ended.
    """
    me = psutil.Process()
    log.touch(mode=0o600)
    output = log.open("ab", buffering=0)
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                process_supervisor.__file__,
                f"--owner-pid={me.pid}",
                f"--owner-started={me.create_time()}",
                *([f"--remove={remove}"] if remove is not None else []),
                "--",
                *command,
            ],
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except BaseException:
        output.close()
        raise
    assert process.stdout is not None
    copying = threading.Thread(target=_copy, args=(process.stdout, output), daemon=True)
    copying.start()
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
        # Only where the guard itself was killed may something hold the other end for longer.
        copying.join(_LAST_WORDS_SECONDS)
    return ProcessEnd(process.returncode, reason)


def _copy(printed: IO[bytes], log: IO[bytes]) -> None:
    """Write what is printed into the log, masked, line by line; what a full disk does not take is lost."""
    held = b""
    with printed, log:
        while chunk := os.read(printed.fileno(), _CHUNK):
            whole, newline, held = (held + chunk).rpartition(b"\n")
            if len(held) > _MAX_LINE:
                whole, held = held, b""
            _write(log, whole + newline)
        _write(log, held)


def _write(log: IO[bytes], lines: bytes) -> None:
    with suppress(OSError):
        log.write(mask(lines.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))


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
