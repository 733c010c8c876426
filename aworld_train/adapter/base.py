"""What a training framework must offer, and how one is found by its name.

The rest of the package speaks to a framework through ``TrainingFramework`` alone: it has the framework compile a recipe
into a ``RunPlan``, writes the plan's files, starts its command, reads its log and its metrics, and keeps the run's
folder, record and summary itself. A recipe names its framework in ``trainer.framework``.

A framework is a class without arguments. One that ships in another package is found by an entry point in the group
``aworld_train.frameworks``; one that is made in this process is registered with ``register``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aworld_train.errors import RecipeError, nearest
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import dotted, leaves
from aworld_train.rollout.model import LanguageModel

ENTRY_POINTS = "aworld_train.frameworks"


class RunMode(Enum):
    """What a framework is started for: to train, or to play the validation tasks once, greedily."""

    train = "train"
    measure = "measure"


@dataclass(frozen=True)
class StartFiles:
    """What each start of a plan has of its own.

    Attributes:
        private: A folder with mode 0700 and a short, unguessable path outside the run folder: for secrets, sockets and
            temporary files. It is there when the start begins and removed when it ends.
        metrics: The file to which the framework appends its metrics; it is there and empty.
    """

    private: Path
    metrics: Path


@dataclass(frozen=True)
class RunPlan:
    """How a recipe is run in a folder.

    Attributes:
        files: Text of the files that the framework reads, by name in the run folder.
        config: The one of them that people look at.
        command: Program and arguments; it works in the run folder.
        environment: The variables laid over this process's own for a start; fills the start's private folder.
        without_first_validation: Arguments to add where validation before the first step is not wanted.
    """

    files: Mapping[str, str]
    config: str
    command: Sequence[str]
    environment: Callable[[StartFiles], Mapping[str, str]]
    without_first_validation: Sequence[str] = ()


class StepRow(NamedTuple):
    """What a framework says of one training step, or of the validation after it.

    Attributes:
        step: Counted from 1; 0 is the validation before training.
        figures: Under the names of ``metrics.jsonl``, as far as there are any: ``reward``, ``loss`` (only of steps in
            which weights were updated), ``response_tokens``, ``turns``, ``entropy``, ``grad_norm``, ``kl``, ``lr``,
            ``tokens_per_second``, ``seconds``, ``memory_gb``.
        raw: Everything that the framework said, under its own names.
        validated: Whether a validation ended.
    """

    step: int
    figures: Mapping[str, Any]
    raw: Mapping[str, Any]
    validated: bool


class StepReader(Protocol):
    """Reads a growing file of metrics."""

    def read(self) -> list[StepRow]:
        """The rows that came since the last call; of a step that is not over, there may be more later."""


class Checkpoint(NamedTuple):
    """A complete checkpoint: the step after which it was written, and its model in Hugging Face's format."""

    step: int
    model: Path


class LoadedModel(Protocol):
    """A model that samples outside a training run.

    Attributes:
        name: What agents call it.
        tokenizer: A Hugging Face tokenizer.
    """

    name: str
    tokenizer: Any

    def for_episode(self) -> LanguageModel:
        """The model as one episode sees it."""

    async def close(self) -> None:
        """Free what it holds."""


class TrainingFramework(Protocol):
    """A training framework.

    Attributes:
        name: As in ``trainer.framework``; a recipe's raw keys for the framework stand in a section of this name.
        packages: Distributions whose versions the manifest of a run records.
        owned_keys: Raw keys (dotted, without the framework's name) that a recipe may not set, and why.
    """

    name: str
    packages: Sequence[str]
    owned_keys: Mapping[str, str]

    def compile(self, recipe: Recipe, folder: Path, mode: RunMode) -> RunPlan:
        """How the framework runs a recipe in ``folder``; writes nothing.

        Raises:
            RecipeError: A raw key that the framework does not know, or a combination that cannot work.
            DependencyMissing: The framework is not installed.
        """

    def composed(self, recipe: Recipe, folder: Path) -> dict[str, Any]:
        """The framework's whole configuration for a recipe, for people; raises as ``compile`` does."""

    def errors_in(self, log: str) -> list[str]:
        """The lines of a log's end that name an error, in order, without colours and prefixes."""

    def step_rows(self, file: Path) -> StepReader:
        """A reader of the metrics that a start appends to ``file``."""

    def last_checkpoint(self, folder: Path) -> Checkpoint | None:
        """The last complete checkpoint below a run's ``checkpoints``."""

    def model_in(self, checkpoint: Path) -> Path | None:
        """The model, in Hugging Face's format, that a folder of the framework's checkpoints holds."""

    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> LoadedModel:
        """The recipe's model, to play single episodes in this process with what training samples with.

        Args:
            recipe: A recipe with a model.
            folder: For files of this process.
            model_url: An inference server to sample from; None loads the model into this process.

        Raises:
            ModelError: The model or the server cannot be used.
        """


_registered: dict[str, type[TrainingFramework]] = {}


def register(name: str, framework: type[TrainingFramework]) -> None:
    """Make a framework known in this process; it wins over an installed one of that name."""
    _registered[name] = framework


def unregister(name: str) -> None:
    """Forget a framework that was registered in this process."""
    _registered.pop(name, None)


def framework_names() -> list[str]:
    """The frameworks that a recipe can name."""
    return sorted({*_registered, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def find(name: str) -> TrainingFramework:
    """The framework of this name.

    Raises:
        RecipeError: There is none.
    """
    if name in _registered:
        return _registered[name]()
    for point in entry_points(group=ENTRY_POINTS, name=name):
        framework: type[TrainingFramework] = point.load()
        return framework()
    names = framework_names()
    hint = nearest(name, names)
    raise RecipeError(
        f"There is no training framework {name!r} (trainer.framework)"
        + (f"; did you mean {hint!r}?" if hint else f"; known: {', '.join(names)}.")
        + f" Others are found by an entry point in the group {ENTRY_POINTS}, or registered with "
        "aworld_train.adapter.base.register."
    )


def framework_of(recipe: Recipe) -> TrainingFramework:
    """The framework that a recipe names, for which the recipe sets no raw key that the framework owns.

    Raises:
        RecipeError: There is none of that name, or the recipe sets such a key.
    """
    framework = find(recipe.trainer.framework)
    for path, _ in leaves(recipe.raw):
        key = dotted(path)
        for owned, reason in framework.owned_keys.items():
            if f"{key}.".startswith(f"{owned}.") or owned.startswith(f"{key}."):
                raise RecipeError(f"{framework.name}.{key} cannot be set: {reason}")
    return framework
