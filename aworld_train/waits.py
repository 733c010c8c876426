"""What a process of a run waits for, in a small file that whoever supervises the run can read.

A thread writes the open waits every few seconds, whatever the rest of the process does; so a file that is old belongs
to a process that does not run.
"""

import asyncio
import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

FOLDER = Path("logs", "waits")
WRITE_SECONDS = 2.0
_TRAINER_ROLES = ("trainer", "starter")
_MAX_LISTED = 8  # waits of one kind that are written, the oldest
_MAX_NAME_CHARS = 80  # a model makes names of tools up


@dataclass(frozen=True)
class Wait:
    """A wait: what for (``model``, ``tool``, ``score``, ``episode`` or ``phase``), its name, and its seconds so far."""

    kind: str
    name: str
    seconds: float


@dataclass(frozen=True)
class ProcessWaits:
    """The open waits of one process, the longest first; of each kind the oldest few."""

    role: str  # episodes, trainer, or starter (it starts the trainer)
    host: str
    pid: int
    waits: tuple[Wait, ...]
    newest: float  # seconds since a wait of any kind began or ended
    blocked: float  # seconds for which its event loop did nothing; 0 where none is watched
    age: float  # seconds since this was written
    loss: str = ""  # what it has lost, without which it cannot continue


_numbers = count()
_open: dict[int, tuple[str, str, float]] = {}
_changed = time.monotonic()
_last_beat: float | None = None
_loss = ""
_part = -1


def begin(kind: str, name: str = "") -> int:
    """Begin a wait; the returned number ends it."""
    global _changed
    number = next(_numbers)
    _changed = time.monotonic()
    _open[number] = (kind, name[:_MAX_NAME_CHARS], _changed)
    return number


def end(number: int) -> None:
    """End a wait; a second time does nothing."""
    global _changed
    if _open.pop(number, None) is not None:
        _changed = time.monotonic()


def begin_part(name: str = "") -> None:
    """Begin the next phase of a start, which ends the one before; without a name only end that."""
    global _part
    end(_part)
    _part = begin("phase", name) if name else -1


@contextlib.contextmanager
def waiting(kind: str, name: str = "") -> Iterator[None]:
    number = begin(kind, name)
    try:
        yield
    finally:
        end(number)


async def beat() -> None:
    """Show that the event loop runs; code that does not await blocks it, and every wait in it."""
    global _last_beat
    while True:
        _last_beat = time.monotonic()
        await asyncio.sleep(WRITE_SECONDS)


def report_loss(reason: str) -> None:
    global _loss
    _loss = reason


def report(run_dir: Path, role: str) -> None:
    """Write the open waits of this process below a run folder until the process ends."""
    folder = run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{role}-{platform.node()}-{os.getpid()}.json"
    _write(file, role)

    def write_always() -> None:
        while True:
            time.sleep(WRITE_SECONDS)
            # A disk that is full now may have room later.
            with contextlib.suppress(OSError):
                _write(file, role)

    threading.Thread(target=write_always, name="waits", daemon=True).start()


def read(run_dir: Path) -> list[ProcessWaits]:
    """The waits of the processes that report below a run folder, as each wrote them last."""
    processes = []
    for file in sorted((run_dir / FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(file.read_text())
            waits = tuple(Wait(**wait) for wait in content.pop("waits"))
            age = max(0.0, time.time() - content.pop("written"))
            processes.append(ProcessWaits(**content, waits=waits, age=age))
    return processes


def trainers(processes: Sequence[ProcessWaits]) -> list[ProcessWaits]:
    """Those of the processes that train; until one has reported, the process that starts them."""
    by_role = {role: [process for process in processes if process.role == role] for role in _TRAINER_ROLES}
    return next(filter(None, by_role.values()), [])


def forget(run_dir: Path) -> None:
    """Remove the files of an earlier start."""
    for file in (run_dir / FOLDER).glob("*"):
        with contextlib.suppress(OSError):
            file.unlink()


def _write(file: Path, role: str) -> None:
    # Other threads may begin and end waits meanwhile; a copy of a dict is made in one step.
    now, entries = time.monotonic(), sorted(_open.copy().values(), key=lambda entry: entry[2])
    waits: list[Wait] = []
    for kind in dict.fromkeys(entry[0] for entry in entries):
        of_kind = [Wait(kind, name, round(now - began, 1)) for _, name, began in entries if _ == kind]
        waits += of_kind[:_MAX_LISTED]
    content = {
        "role": role,
        "host": platform.node(),
        "pid": os.getpid(),
        "waits": [asdict(wait) for wait in waits],
        "blocked": round(now - _last_beat, 1) if _last_beat is not None else 0.0,
        "loss": _loss,
        "newest": round(now - _changed, 1),
        "written": time.time(),
    }
    partial = file.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_text(json.dumps(content))
    # Not `atomic.write_text`: nobody needs this file after the machine has failed, and a sync takes time.
    partial.replace(file)
