"""Writes where the processes of a run are in their code, by ``py-spy``: functions, files and lines, but no values."""

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from aworld_train import process_supervisor
from aworld_train.atomic import write_text
from aworld_train.masking import mask

_DUMP_SECONDS, _ALL_SECONDS = 10.0, 60.0
_MAX_PROCESSES = 64
_MAX_ERROR_CHARS = 300


def write_stacks(folder: Path) -> Path | None:
    """Write the stacks of this run's Python processes into a new file in ``folder``; None if it cannot be written."""
    processes = [process for process in _processes() if _is_python(process)]
    if not processes:
        return None
    file = folder / f"stacks-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.txt"
    deadline = time.monotonic() + _ALL_SECONDS
    parts = [_stack(process, deadline) for process in processes[:_MAX_PROCESSES]]
    try:
        write_text(file, mask("\n".join(parts)))
    except OSError:
        return None
    return file


def stopped_processes() -> list[str]:
    """The processes of this run that a signal has stopped, as ``name (process 123)``."""
    stopped = []
    for process in _processes():
        try:
            if process.status() == psutil.STATUS_STOPPED:
                stopped.append(f"{_title(process)} (process {process.pid})")
        except psutil.NoSuchProcess:
            continue
    return stopped


def _processes() -> list[psutil.Process]:
    """The processes below the run's supervisor, which is a child of this process."""
    processes = []
    for child in psutil.Process().children():
        try:
            if process_supervisor.__file__ in child.cmdline():
                processes += child.children(recursive=True)
        except psutil.Error:
            continue
    return processes


def _is_python(process: psutil.Process) -> bool:
    try:
        return Path(process.exe()).name.startswith("python") and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _title(process: psutil.Process) -> str:
    """What Ray names the process, or its program; arguments may hold secrets."""
    try:
        return Path(process.cmdline()[0]).name or str(process.name())
    except (psutil.Error, IndexError):
        return "a process"


def _stack(process: psutil.Process, deadline: float) -> str:
    title = f"== {_title(process)} (process {process.pid})"
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        return f"{title}: there is no py-spy; it comes with aworld-train[cpu] and [gpu]\n"
    if (seconds := min(_DUMP_SECONDS, deadline - time.monotonic())) <= 0:
        return f"{title}: left out, the others took {_ALL_SECONDS:.0f} seconds\n"
    # A process that hangs does not move, so it need not be stopped to be read, and one that is stopped cannot be.
    command: Sequence[str] = (program, "dump", "--nonblocking", "--pid", str(process.pid))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{title}: {type(error).__name__}\n"
    if done.returncode != 0:
        return f"{title}: {done.stderr.strip()[:_MAX_ERROR_CHARS]}\n"
    # Before the version comes the command line, whose arguments may hold secrets.
    _, _, stacks = done.stdout.partition("\nPython v")
    return f"{title}\nPython v{stacks}"
