"""The errors that users see, each reported once and in one paragraph.

The command line prints ``message``, which says what was wrong, where, and what to do next, and exits with
``exit_code``; ``kind`` names the error for machines (``--json``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from aworld_train.masking import mask

TRAINING_PROFILE = (
    "pip install 'aworld-train[cpu]' on a machine without a GPU, or 'aworld-train[gpu]' with one"
)
"""How to install what trains and what loads models; the base installation has neither."""
NO_SPACE = "No space left on device"
"""How the system words a full disk."""


class AworldTrainError(Exception):
    """Something failed that the user can understand and act on."""

    kind: ClassVar[str] = "failure"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, kind: str | None = None, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        cls.kind = kind or cls.kind
        cls.exit_code = exit_code or cls.exit_code

    def __init__(self, message: str):
        # A message may quote a value that a recipe took from the environment.
        super().__init__(mask(message))

    @property
    def message(self) -> str:
        return str(self)


class UsageError(AworldTrainError, kind="usage", exit_code=2):
    """The request itself cannot be carried out as written: wrong option, missing file, bad value."""


class RecipeError(UsageError, kind="recipe"):
    """A recipe that cannot be read, has an unknown key or a value of the wrong type."""


class DatasetError(AworldTrainError, kind="dataset"):
    """Data that cannot be read, is empty, or does not fit the row schema."""


class DatasetNotFound(DatasetError, exit_code=UsageError.exit_code):
    """Data that the request names and that do not exist, or are of another kind."""


class RewardError(AworldTrainError, kind="reward"):
    """A reward function that cannot be loaded or called."""


class ScorerNotFound(RewardError, exit_code=UsageError.exit_code):
    """A scorer that the request names and that does not exist."""


class ModelError(AworldTrainError, kind="model"):
    """A model directory that cannot be used, or a model that could not be made."""


class ModelNotFound(ModelError, exit_code=UsageError.exit_code):
    """A model or an endpoint that the request names and that does not exist."""


class EnvironmentFailure(AworldTrainError, kind="environment"):
    """A tool environment that cannot be started, reached, or has gone away."""


class CassetteError(AworldTrainError, kind="cassette"):
    """A record of tool calls that cannot be read, written, or replayed from."""


class TrainingFailure(AworldTrainError, kind="training"):
    """A training run that ended before it was complete."""


class TransientFailure(TrainingFailure):
    """A training run that lost a process, a machine or its environment, which may not happen a second time."""


class Preempted(AworldTrainError, kind="preempted"):
    """A training run that was asked to save and stop (SIGUSR1), and did."""


class EvaluationFailure(AworldTrainError, kind="evaluation"):
    """An evaluation that is not complete, or whose attempts could not be scored."""


class StoreFailure(AworldTrainError, kind="store"):
    """The database of a run's store does not answer."""


class ExportError(AworldTrainError, kind="export"):
    """An export that would hold nothing, does not load, or is not taken by the hub."""


class DiskFull(AworldTrainError, kind="disk"):
    """The disk was full during a write."""


class DependencyMissing(AworldTrainError, kind="dependency"):
    """A part of the installation that this command needs is missing."""


@contextmanager
def options_as_arguments(arguments: Mapping[str, str]) -> Iterator[None]:
    """Note on an error of the block what each option in its message is in Python; only a traceback shows notes."""
    try:
        yield
    except AworldTrainError as error:
        options = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]*", error.message))
        if named := [f"{option} is {arguments[option]}" for option in options if option in arguments]:
            error.add_note(f"In Python, {', '.join(named)}.")
        raise


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name closest to ``name``, or None where nothing is close enough to suggest (1: the same)."""
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`` Did you mean 'X'?`` for the known name closest to ``name``; ``otherwise`` where none is close."""
    close = nearest(name, known)
    return f" Did you mean {close!r}?" if close else otherwise


def one_line(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
