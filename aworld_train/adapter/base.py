"""The interface of a training framework, and the lookup of a framework by its name.

The rest of the package uses a framework through ``TrainingFramework`` alone. A framework is a class whose constructor
takes no arguments; an entry point in the group ``aworld_train.frameworks``, or ``register``, makes it known.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aworld_train.errors import ModelError, ModelNotFound, RecipeError, UsageError, suggestion
from aworld_train.recipe.faults import refuse
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import KeyPath, dotted, map_values
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.model import LanguageModel

ENTRY_POINTS = "aworld_train.frameworks"


SAVE_REQUEST = "save-request"
"""A file in the run folder: while it exists, the framework writes a checkpoint after every step."""
SAMPLERS_REQUEST = "samplers-request"
"""A file in the run folder with the number of samplers that somebody asked for; a run begins without it."""
MAX_SAMPLERS = 16


@dataclass(frozen=True)
class Nodes:
    """The machines that a run uses together; the framework is started on the first.

    ``command`` takes a program with arguments and runs it once on every other node, with its own environment variables
    and standard input, and ends when they all end; ``name_variable`` holds the node's name there. ``addresses`` are IP
    addresses by node, ``shared`` is a folder with mode 0700 that every node can reach, and no other run prefers
    ``port``.
    """

    addresses: Mapping[str, str]
    command: Sequence[str]
    name_variable: str
    shared: Path
    port: int


@dataclass(frozen=True)
class StartFiles:
    """The files, and the machines, that belong to one start of a plan.

    ``private`` is a folder with mode 0700 and a short, unguessable path outside the run folder, removed when the start
    ends. The framework appends its metrics to ``metrics``, which exists. ``nodes`` is None for this machine alone.
    """

    private: Path
    metrics: Path
    nodes: Nodes | None = None


@dataclass(frozen=True)
class RunPlan:
    """How a recipe is run in a folder, which is the command's working directory.

    ``environment`` fills the private folder of a start and returns the variables to add to this process's own;
    ``config`` is the file among ``files`` that a person reads; ``remarks`` are sentences on what the framework chose.
    """

    files: Mapping[str, str]
    config: str
    command: Sequence[str]
    environment: Callable[[StartFiles], Mapping[str, str]]
    without_first_validation: Sequence[str] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """What a run on GPUs holds, by estimate, in bytes: of each GPU by phase and part, and of each machine's memory.

    ``waits`` is there while not used, ``copy`` while the first machine loads and saves; others wait ``max_wait`` s.
    """

    parameters: int
    phases: Mapping[str, Mapping[str, int]]
    waits: int
    copy: int
    max_wait: int

    def total(self, phase: str) -> int:
        return sum(self.phases[phase].values())

    @property
    def fullest(self) -> str:
        return max(self.phases, key=self.total)


class StepRow(NamedTuple):
    """What a framework reports about one training step, or about the validation after it.

    ``step`` 0 is the validation before training. ``figures`` have the names of ``metrics.jsonl``, as
    docs/reference/run-folder.md explains them, and are left out where a framework has none: also ``loss`` (only where
    weights were updated), ``entropy``, ``grad_norm``, ``kl``, ``lr``, ``max_staleness`` and ``memory_gb``.
    """

    step: int
    figures: Mapping[str, Any]
    raw: Mapping[str, Any]
    validated: bool


def val_quality(row: Mapping[str, Any]) -> float | None:
    """How good the validation of a row of ``metrics.jsonl`` is: its accuracy, or its loss with the sign turned."""
    if row.get("val_accuracy") is not None:
        return float(row["val_accuracy"])
    return None if row.get("val_loss") is None else -float(row["val_loss"])


class StepReader(Protocol):
    def read(self) -> list[StepRow]:
        """The rows added since the last call; a step that is not over may get more rows later."""


class Checkpoint(NamedTuple):
    """A complete checkpoint: the step after which it was written, and its model in Hugging Face's format."""

    step: int
    model: Path


class StoredCheckpoint(NamedTuple):
    """A checkpoint in its folder, and why it is not whole; empty if it is."""

    step: int
    path: Path
    fault: str


class ExtractedModel(NamedTuple):
    """A checkpoint's model in Hugging Face's format, and of a LoRA run also the adapter that is merged into it."""

    model: Path
    adapter: Path | None


class EpisodeModel(Protocol):
    """A model that plays episodes outside a training run; its tokenizer is None for a model at an outside endpoint."""

    name: str
    tokenizer: Any

    def for_episode(self) -> LanguageModel | ChatModel: ...

    async def close(self) -> None: ...


class LoadedModel(EpisodeModel, Protocol):
    def for_episode(self) -> LanguageModel: ...


class TrainingFramework(Protocol):
    """A training framework; a class that inherits from this one may leave out the last ten methods.

    ``packages`` are the distributions whose versions a run's manifest records. ``owned_keys`` are raw keys, with all
    below them, or patterns of keys, that a recipe may not set, each with the reason as a part of a sentence.
    """

    name: str
    packages: Sequence[str]
    owned_keys: Mapping[str, str]

    @abstractmethod
    def compile(self, recipe: Recipe, folder: Path) -> RunPlan:
        """The plan by which the framework runs a recipe in ``folder``; writes nothing.

        Raises RecipeError for a raw key that the framework does not know, and DependencyMissing if it is not installed.
        """

    @abstractmethod
    def composed(self, recipe: Recipe, folder: Path) -> dict[str, Any]: ...

    @abstractmethod
    def errors_in(self, log: str) -> list[str]:
        """The lines of a log's end that name an error, in order, without colours and prefixes."""

    @abstractmethod
    def step_rows(self, file: Path) -> StepReader:
        """A reader of the metrics that a start appends to ``file``."""

    @abstractmethod
    def last_checkpoint(self, folder: Path) -> Checkpoint | None: ...

    @abstractmethod
    def model_in(self, checkpoint: Path) -> Path | None:
        """The model, in Hugging Face's format, that a folder of the framework's checkpoints holds."""

    @abstractmethod
    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> LoadedModel:
        """The recipe's model with training's engine in this process or at a server, to play single episodes."""

    def faults(self, recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
        """What the framework cannot use in a checked recipe: the recipe's key, and one sentence for each."""
        return iter(())

    def trained_logprobs(
        self, recipe: Recipe, folder: Path, samples: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        """The log-probabilities that training computes for sampled tokens, with the recipe's model in float32.

        Each sample is the tokens of a prompt, and those that were sampled at ``rollout.temperature`` after it.
        """
        raise UsageError(f"The framework {self.name} computes no probabilities outside a run.")

    def recipe_from(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """A configuration in the framework's own form as the mapping of a recipe; None for another file."""
        return None

    def memory_plan(self, recipe: Recipe, gpu_bytes: int) -> MemoryPlan | None:
        """Where the memory of GPUs goes; None on processors, and if the model is not on this machine or not known.

        ``gpu_bytes`` is what each GPU has; 0 leaves out the engine's share of it.
        """
        return None

    def template_options(self, composed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Further arguments of the model's chat template, in a configuration that `composed` returned."""
        return {}

    def start_failed(self, log: str) -> bool:
        """Whether the end of a log says that the framework could not start its processes, so that nothing was done."""
        return False

    def is_transient(self, error: str) -> bool:
        """Whether an error of ``errors_in`` says that a process or a machine was lost, which may not happen again."""
        return False

    def prepare_resume(self, folder: Path, checkpoint: Checkpoint | None) -> list[str]:
        """Have the framework continue from a checkpoint, or start anew; returns what is wrong with newer ones."""
        return []

    def checkpoints(self, folder: Path) -> list[StoredCheckpoint]:
        last = self.last_checkpoint(folder)
        return [StoredCheckpoint(last.step, last.model, "")] if last else []

    def extract_model(self, checkpoint: Path, into: Path) -> ExtractedModel:
        """A checkpoint's model, as other programs load it: the one in it, or one that is made in ``into``."""
        model = self.model_in(checkpoint)
        if model is None:
            raise ModelError(f"{checkpoint} holds no model in Hugging Face's format.")
        return ExtractedModel(model, None)


def model_directory(folder: Path, framework: TrainingFramework) -> Path:
    """The Hugging Face directory that a folder is or has: a checkpoint's, or that of a run's last whole checkpoint."""
    if (folder / "config.json").is_file():
        return folder
    if model := framework.model_in(folder):
        return model
    if last := framework.last_checkpoint(folder / "checkpoints"):
        return last.model
    raise ModelNotFound(
        f"{folder} is neither a Hugging Face model directory, nor a checkpoint of a run "
        "(RUNS/<name>/checkpoints/global_step_N), nor the folder of a run that has a whole checkpoint."
    )


_registered: dict[str, type[TrainingFramework]] = {}


def register(name: str, framework: type[TrainingFramework]) -> None:
    """Make a framework known in this process; it takes precedence over an installed one of the same name."""
    _registered[name] = framework


def unregister(name: str) -> None:
    _registered.pop(name, None)


def framework_names() -> list[str]:
    return sorted({*_registered, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def find(name: str) -> TrainingFramework:
    if name in _registered:
        return _registered[name]()
    for point in entry_points(group=ENTRY_POINTS, name=name):
        framework: type[TrainingFramework] = point.load()
        return framework()
    names = framework_names()
    hint = suggestion(name, names, f" There are {', '.join(names)}.")
    raise RecipeError(
        f"Unknown training framework {name!r} (trainer.framework).{hint} Others are found by an "
        f"entry point in the group {ENTRY_POINTS}, or registered with aworld_train.adapter.base.register."
    )


def recipe_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """What a recipe's framework cannot use in it; the composed configuration is not checked: ``composed`` does that."""
    return _faults(recipe, find(recipe.trainer.framework))


def framework_of(recipe: Recipe) -> TrainingFramework:
    """The framework that a recipe names; raises one RecipeError with everything that it cannot use in the recipe."""
    framework = find(recipe.trainer.framework)
    refuse([sentence for _, sentence in _faults(recipe, framework)])
    return framework


def _faults(recipe: Recipe, framework: TrainingFramework) -> Iterator[tuple[KeyPath, str]]:
    owned = dict(owned_faults(framework.name, framework.owned_keys, recipe.raw))
    yield from owned.items()
    yield from ((key, text) for key, text in framework.faults(recipe) if key not in owned)


def owned_faults(
    framework: str, owned: Mapping[str, str], raw: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """The raw keys of a recipe that are ``owned_keys``: the recipe's key, and one sentence for each."""
    for path, value in map_values(raw):
        key = dotted(path)
        reason = _reason(path, owned)
        if reason is not None:
            yield (framework, *path), f"{framework}.{key} cannot be set: {reason.removesuffix('.')}."
        elif not isinstance(value, Mapping) and (
            part := next((pattern for pattern in owned if pattern.startswith(f"{key}.")), None)
        ):
            yield (
                (framework, *path),
                f"{framework}.{key} cannot be set as a whole, because {part} is part of it: "
                f"{owned[part].removesuffix('.')}.",
            )


def _reason(path: KeyPath, owned: Mapping[str, str]) -> str | None:
    for length in range(len(path), 0, -1):
        covering = dotted(path[:length])
        if covering in owned:
            return owned[covering]
        for pattern, reason in owned.items():
            if "*" in pattern and fnmatchcase(covering, pattern):
                return reason
    return None
