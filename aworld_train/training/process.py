"""Runs one supervised process: watches it, ends it within a time limit, and leaves none of its children running."""

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

from aworld_train import process_supervisor
from aworld_train.masking import mask

_CHUNK = 1 << 16
_MAX_LINE_BYTES = 1 << 20
"""Most bytes of an unfinished line that are held back, so that a value in the line is masked as a whole."""
_OUTPUT_END_SECONDS = 5.0
_STOP_SECONDS = 2 * process_supervisor.GRACE + 2.0


@dataclass(frozen=True)
class ProcessEnd:
    """The exit code of a process, and the reason if ``watch`` ended it."""

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
    """Run a command to its end, or until ``watch``, called every ``every`` seconds, returns why it must stop.

    The command runs in a session of its own, so that Ctrl-C reaches only this process. When this process dies, even by
    SIGKILL, the process supervisor ends the command with all its children and removes the folder ``remove``. ``log``
    gets the output with values of environment variables masked.
    """
    log.touch(mode=0o600)
    output = log.open("ab", buffering=0)
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                process_supervisor.__file__,
                f"--owner={process_supervisor.ProcessIdentity.of(os.getpid())}",
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
            with suppress(subprocess.TimeoutExpired):
                process.wait(every)
    finally:
        _stop(process)
        # Only if the supervisor itself was killed, another process may hold the pipe open for longer.
        copying.join(_OUTPUT_END_SECONDS)
    return ProcessEnd(process.returncode, reason)


def _copy(output: IO[bytes], log: IO[bytes]) -> None:
    """Copy the output into the log, masked, line by line; lines that a full disk does not take are lost."""
    held = b""
    with output, log:
        while chunk := os.read(output.fileno(), _CHUNK):
            whole, newline, held = (held + chunk).rpartition(b"\n")
            if len(held) > _MAX_LINE_BYTES:
                whole, held = held, b""
            _write(log, whole + newline)
        _write(log, held)


def _write(log: IO[bytes], lines: bytes) -> None:
    with suppress(OSError):
        log.write(mask(lines.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, and so all processes below it; a second Ctrl-C meanwhile does not interrupt this."""
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
