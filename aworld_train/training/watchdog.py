"""Detects that a run makes no progress, says which part is stuck, and writes where its processes are in their code.

The part is known by what the processes have written (see ``aworld_train.waits``): those that play episodes know whether
the model, a tool, a score or the agent's own code is missing; without episodes the trainer works, and knows in which
phase. A process that writes nothing does not run at all.
"""

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from aworld_train import process_supervisor, waits
from aworld_train.atomic import write_text
from aworld_train.masking import mask
from aworld_train.training.environment import RunEnvironment
from aworld_train.waits import ProcessWaits, Wait, trainers

_LOSS_SECONDS = 10.0
"""A process that has lost another one may end the run with a better error for this long."""


class StallWatch:
    def __init__(self, timeout: float, run_dir: Path):
        self._timeout = timeout
        self._run_dir = run_dir
        self._last = self._read = time.monotonic()
        self._phases: set[str] = set()
        self._loss = ""
        self._loss_since = 0.0
        self.environment: RunEnvironment | None = None
        self.stuck: Stuck | None = None

    def reset(self) -> None:
        self._last = time.monotonic()

    def reason(self, state: str) -> str | None:
        """The reason to end the run, with ``state`` (sentences); None while there is none.

        The stacks of the run's processes on this machine are written into its ``logs/`` then.
        """
        self._read_waits()
        now = time.monotonic()
        if self._loss and now - self._loss_since > _LOSS_SECONDS:
            self.stuck = Stuck("process", f"{self._loss}.")
            return f"{self._loss[:1].upper()}{self._loss[1:]}. {state}"
        silent = now - self._last
        if silent <= self._timeout:
            return None
        environment_answers = self.environment is None or self.environment.answers()
        self.stuck = stuck = find_stuck(
            waits.read(self._run_dir), silent, environment_answers=environment_answers
        )
        stopped = stopped_processes()
        stacks = write_stacks(self._run_dir / "logs")
        return " ".join(
            [
                f"No sign of progress for {silent:.0f} seconds (trainer.stall_timeout is {self._timeout:g}).",
                f"Stuck: {stuck.part}. {stuck.text}",
                *([f"Stopped by a signal: {', '.join(stopped)}."] if stopped else []),
                state,
                *([f"Where its processes were is in {stacks}."] if stacks else []),
            ]
        )

    def _read_waits(self) -> None:
        """Take another phase of the trainer for progress: with a large model one step has phases of many minutes."""
        now = time.monotonic()
        if now - self._read < waits.WRITE_SECONDS:
            return
        self._read = now
        processes = waits.read(self._run_dir)
        loss = next((process.loss for process in processes if process.loss), "")
        if loss and not self._loss:
            self._loss, self._loss_since = loss.rstrip("."), now
        open_waits = [wait for process in processes for wait in process.waits]
        phases = {wait.name or wait.kind for wait in open_waits if wait.kind in ("phase", "episode")}
        if phases != self._phases:
            self._phases = phases
            self.reset()


_MAX_AGE = 15.0
"""Seconds after which a process that writes every two seconds is taken for one that does not run."""
_MIN_SHARE = 0.5
"""A wait counts as stuck if it lasts for this share of the time in which nothing ended."""
_MAX_NAMES = 3
_PARTS = {"model": "engine", "tool": "tool", "score": "reward"}


@dataclass(frozen=True)
class Stuck:
    """What a run waits for, also in a sentence.

    ``part`` is ``engine``, ``tool``, ``reward``, ``environment``, ``agent``, ``trainer``, ``episodes`` (the process
    that plays them), ``process`` (one that died), ``nothing`` if everything moves, or ``unknown`` without a report.
    """

    part: str
    text: str

    @property
    def transient(self) -> bool:
        """Whether another start may help: not if the user's own code hangs, or if nothing does."""
        return self.part not in ("reward", "agent", "nothing")


def find_stuck(
    processes: Sequence[ProcessWaits], silent: float, *, environment_answers: bool = True
) -> Stuck:
    """What a run waits for in which nothing has ended for ``silent`` seconds."""
    if not environment_answers:
        return Stuck("environment", "The tool environment does not answer.")
    if not processes:
        return Stuck("unknown", "No process of the run has said yet what it waits for.")
    for process in processes:
        if process.age > _MAX_AGE and process.role == "episodes":
            return _not_running("episodes", "The process that plays episodes", process)
        if process.blocked > max(_MAX_AGE, silent * _MIN_SHARE):
            return Stuck(
                "agent",
                f"The process that plays episodes (process {process.pid} on {process.host}) has been busy in one place "
                f"for {process.blocked:.0f} seconds: code of the agent does not await, or never ends.",
            )
    episodes = [process for process in processes if process.role == "episodes"]
    calls = [wait for process in episodes for wait in process.waits if wait.kind in _PARTS]
    if old := [wait for wait in calls if wait.seconds >= silent * _MIN_SHARE]:
        return _call(max(old, key=lambda wait: wait.seconds), old)
    for process in processes:
        if process.age > _MAX_AGE:
            return _not_running("trainer", "The trainer", process)
    open_episodes = [wait for process in episodes for wait in process.waits if wait.kind == "episode"]
    if open_episodes and not calls and all(process.newest >= silent * _MIN_SHARE for process in episodes):
        seconds = max(wait.seconds for wait in open_episodes)
        return Stuck(
            "agent",
            f"Episodes are under way, for {seconds:.0f} seconds at most, and none waits for a call: the "
            "agent's own code is running, or hangs.",
        )
    if open_episodes:
        return Stuck(
            "nothing",
            "Episodes continue and none of their calls is late; if they need that long, raise trainer.stall_timeout.",
        )
    return _trainer(trainers(processes))


def _call(oldest: Wait, late: Sequence[Wait]) -> Stuck:
    alike = [wait for wait in late if wait.kind == oldest.kind]
    names = [name for name, _ in Counter(wait.name for wait in alike if wait.name).most_common(_MAX_NAMES)]
    others = [
        part
        for kind, part in _PARTS.items()
        if kind != oldest.kind and any(wait.kind == kind for wait in late)
    ]
    return Stuck(
        _PARTS[oldest.kind],
        f"Episodes wait for the {_PARTS[oldest.kind]}"
        + (f" ({', '.join(names)})" if names else "")
        + f", for {oldest.seconds:.0f} seconds at most"
        + (f"; others for the {' and the '.join(others)}." if others else "."),
    )


def _trainer(processes: Sequence[ProcessWaits]) -> Stuck:
    phases = [wait for process in processes for wait in process.waits if wait.kind == "phase"]
    if not phases:
        return Stuck(
            "trainer",
            "No episode was under way and no phase of a step: the framework starts, or is between two steps.",
        )
    phase = min(phases, key=lambda wait: wait.seconds)
    return Stuck(
        "trainer",
        f"No episode was under way: the trainer was in {phase.name} for {phase.seconds:.0f} seconds.",
    )


def _not_running(part: str, name: str, process: ProcessWaits) -> Stuck:
    return Stuck(
        part,
        f"{name} (process {process.pid} on {process.host}) gave no sign of life for {process.age:.0f} seconds: it is "
        "stopped, or its machine is.",
    )


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
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                stopped.append(f"{_title(process)} (process {process.pid})")
    return stopped


def _processes() -> list[psutil.Process]:
    """The processes below the run's supervisor, which is a child of this process."""
    processes = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if process_supervisor.__file__ in child.cmdline():
                processes += child.children(recursive=True)
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
        return f"{title}: py-spy is missing; it comes with aworld-train[cpu] and [gpu]\n"
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
