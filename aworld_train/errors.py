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

    def __init__(self, message: str):
        # A message may quote a value that a recipe took from the environment.
        super().__init__(mask(message))

    @property
    def message(self) -> str:
        return str(self)


class UsageError(AworldTrainError):
    """The request itself cannot be carried out as written: wrong option, missing file, bad value."""

    kind = "usage"
    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be read, has an unknown key or a value of the wrong type."""

    kind = "recipe"


class DatasetError(AworldTrainError):
    """Data that cannot be read, is empty, or does not fit the row schema."""

    kind = "dataset"


class DatasetNotFound(DatasetError):
    """Data that the request names and that do not exist, or are of another kind."""

    exit_code = UsageError.exit_code


class RewardError(AworldTrainError):
    """A reward function that cannot be loaded or called."""

    kind = "reward"


class ScorerNotFound(RewardError):
    """A scorer that the request names and that does not exist."""

    exit_code = UsageError.exit_code


class ModelError(AworldTrainError):
    """A model directory that cannot be used, or a model that could not be made."""

    kind = "model"


class ModelNotFound(ModelError):
    """A model or an endpoint that the request names and that does not exist."""

    exit_code = UsageError.exit_code


class EnvironmentFailure(AworldTrainError):
    """A tool environment that cannot be started, reached, or has gone away."""

    kind = "environment"


class CassetteError(AworldTrainError):
    """A record of tool calls that cannot be read, written, or replayed from."""

    kind = "cassette"


class TrainingFailure(AworldTrainError):
    """A training run that ended before it was complete."""

    kind = "training"


class TransientFailure(TrainingFailure):
    """A training run that lost a process, a machine or its environment, which may not happen a second time."""


class Preempted(AworldTrainError):
    """A training run that was asked to save and stop (SIGUSR1), and did."""

    kind = "preempted"


class EvaluationFailure(AworldTrainError):
    """An evaluation that is not complete, or whose attempts could not be scored."""

    kind = "evaluation"


class StoreFailure(AworldTrainError):
    """The database of a run's store does not answer."""

    kind = "store"


class ExportError(AworldTrainError):
    """An export that would hold nothing, does not load, or is not taken by the hub."""

    kind = "export"


class DiskFull(AworldTrainError):
    """The disk was full during a write."""

    kind = "disk"


class DependencyMissing(AworldTrainError):
    """A part of the installation that this command needs is missing."""

    kind = "dependency"


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
