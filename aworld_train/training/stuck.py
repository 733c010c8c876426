"""Says which part of a run it waits for, by what its processes have written (see ``aworld_train.waits``).

Processes that play episodes know whether the model, a tool, a score or the agent's own code is missing; without
episodes the trainer works, and knows in which phase. A process that writes nothing does not run at all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aworld_train.waits import ProcessWaits, Wait, trainers

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
            "agent's own code goes on, or hangs.",
        )
    if open_episodes:
        return Stuck(
            "nothing",
            "Episodes go on and none of their calls is late; if they need that long, raise trainer.stall_timeout.",
        )
    return _trainer(trainers(processes))


def _call(oldest: Wait, waits: Sequence[Wait]) -> Stuck:
    alike = [wait for wait in waits if wait.kind == oldest.kind]
    names = [name for name, _ in Counter(wait.name for wait in alike if wait.name).most_common(_MAX_NAMES)]
    others = [
        part for kind, part in _PARTS.items() if kind != oldest.kind and any(w.kind == kind for w in waits)
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
