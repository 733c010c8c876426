"""The interface of a training framework, and the lookup of a framework by its name.

The rest of the package uses a framework through ``TrainingFramework`` alone: the framework compiles a recipe into a
``RunPlan``; the package writes the plan's files, starts its command, reads its log and its metrics, and keeps the run's
folder, record and summary. A recipe names its framework in ``trainer.framework``.

A framework is a class whose constructor takes no arguments. An entry point in the group ``aworld_train.frameworks``
makes a framework of another package known; ``register`` makes one of this process known.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aworld_train.adapter.owned_keys import owned_faults
from aworld_train.errors import ModelError, RecipeError, UsageError, nearest
from aworld_train.recipe.faults import refuse
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import KeyPath
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.model import LanguageModel

ENTRY_POINTS = "aworld_train.frameworks"


SAVE_REQUEST = "save-request"
"""A file in the run folder: while it exists, the framework writes a checkpoint after every step."""


@dataclass(frozen=True)
class Nodes:
    """The machines that a run uses together; the framework is started on the first.

    Attributes:
        addresses: The IP address of each on their common network, by name, in order.
        command: A command to which a program and its arguments are appended. It runs the program once on every other
            node, with the environment variables and the standard input of the command, and ends when they all end.
        name_variable: The environment variable in which such a program finds the name of its node.
        shared: A folder with mode 0700 that every node can reach.
        port: A port on the first node that no other run prefers.
    """

    addresses: Mapping[str, str]
    command: Sequence[str]
    name_variable: str
    shared: Path
    port: int


@dataclass(frozen=True)
class StartFiles:
    """The files, and the machines, that belong to one start of a plan.

    Attributes:
        private: A folder with mode 0700 and a short, unguessable path outside the run folder: for secrets, sockets and
            temporary files. It exists when the start begins and is removed when the start ends.
        metrics: The file to which the framework appends its metrics; it exists and is empty.
        nodes: The machines of a recipe whose launcher is not ``local``; None is this one.
    """

    private: Path
    metrics: Path
    nodes: Nodes | None = None


@dataclass(frozen=True)
class RunPlan:
    """How a recipe is run in a folder.

    Attributes:
        files: Text of the files that the framework reads, by name in the run folder.
        config: Name of the file among them that a person reads.
        command: Program and arguments; its working directory is the run folder.
        environment: Fills the private folder of a start and returns the variables to add to this process's own.
        without_first_validation: Arguments that switch off the validation before the first step.
        template_options: Further arguments of the model's chat template.
        remarks: Sentences on what the framework chose, for whoever starts the run.
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
    """What a run on GPUs holds, by estimate.

    Attributes:
        parameters: Of the model.
        phases: Bytes on each GPU by phase (``sample``, ``backward``, ...) and by part (``weights``, ...).
        waits: Bytes that wait in the memory of each machine while they are not used (``trainer.offload``).
        copy: Bytes of a whole copy of the weights, which the first machine has while it loads and saves.
        max_wait: Seconds that the other ranks wait while the first one writes its copy.
    """

    parameters: int
    phases: Mapping[str, Mapping[str, int]]
    waits: int
    copy: int
    max_wait: int

    def total(self, phase: str) -> int:
        """Bytes on each GPU in a phase."""
        return sum(self.phases[phase].values())

    @property
    def fullest(self) -> str:
        """The phase in which a GPU holds most."""
        return max(self.phases, key=self.total)


class StepRow(NamedTuple):
    """What a framework reports about one training step, or about the validation after it.

    Attributes:
        step: Counted from 1; 0 is the validation before training.
        figures: The available figures under the names of ``metrics.jsonl``: ``loss`` (only of steps in
            which weights were updated), ``entropy``, ``grad_norm``, ``kl``, ``lr``,
            ``tokens_per_second`` (of each GPU), ``seconds`` (of the step, without its validation), ``val_seconds`` (of
            the validation after it), ``staleness`` and ``max_staleness`` (mean and maximum over the episodes: steps by
            which the weights that an episode was begun with were older than those that it trained), ``memory_gb``,
            ``trained_episodes``, ``padding_rows`` (which fill updates up and weigh nothing), ``updates`` of the
            optimizer, ``clipped_updates`` (whose gradient was longer than the recipe allows), ``clip_fraction`` (the
            share of tokens whose ratio was clipped), ``groups`` with several samples to compare, ``equal_groups``
            (whose rewards are all equal), ``rejected_tokens`` and ``rejected_episodes`` (which the correction for the
            engine's rounding leaves out).
        raw: Everything that the framework reported, under its own names.
        validated: Whether a validation ended.
    """

    step: int
    figures: Mapping[str, Any]
    raw: Mapping[str, Any]
    validated: bool


class StepReader(Protocol):
    """Reads a growing file of metrics."""

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
    """A model that plays episodes outside a training run.

    Attributes:
        name: What agents call it.
        tokenizer: A Hugging Face tokenizer; None for a model at an outside endpoint.
    """

    name: str
    tokenizer: Any

    def for_episode(self) -> LanguageModel | ChatModel:
        """The model as one episode sees it."""

    async def close(self) -> None:
        """Free the model's memory and connections."""


class LoadedModel(EpisodeModel, Protocol):
    """A model with training's engine, of which the tokens are known."""

    def for_episode(self) -> LanguageModel:
        """The model as one episode sees it."""


class TrainingFramework(Protocol):
    """A training framework; a class that inherits from this one may leave out the last ten methods.

    Attributes:
        name: As in ``trainer.framework``; a recipe's raw keys for the framework stand in a section of this name.
        packages: Distributions whose versions a run's manifest records.
        owned_keys: Raw keys that a recipe may not set (dotted, without the framework's name, with everything below
            them, or patterns of them), and why, as a part of a sentence.
    """

    name: str
    packages: Sequence[str]
    owned_keys: Mapping[str, str]

    @abstractmethod
    def compile(self, recipe: Recipe, folder: Path) -> RunPlan:
        """The plan by which the framework runs a recipe in ``folder``; writes nothing.

        Raises:
            RecipeError: A raw key that the framework does not know, or a combination that cannot work.
            DependencyMissing: The framework is not installed.
        """

    @abstractmethod
    def composed(self, recipe: Recipe, folder: Path) -> dict[str, Any]:
        """The framework's whole configuration for a recipe, to be shown; raises the errors of ``compile``."""

    @abstractmethod
    def errors_in(self, log: str) -> list[str]:
        """The lines of a log's end that name an error, in order, without colours and prefixes."""

    @abstractmethod
    def step_rows(self, file: Path) -> StepReader:
        """A reader of the metrics that a start appends to ``file``."""

    @abstractmethod
    def last_checkpoint(self, folder: Path) -> Checkpoint | None:
        """The last complete checkpoint below a run's ``checkpoints``."""

    @abstractmethod
    def model_in(self, checkpoint: Path) -> Path | None:
        """The model, in Hugging Face's format, that a folder of the framework's checkpoints holds."""

    @abstractmethod
    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> LoadedModel:
        """The recipe's model with training's engine, to play single episodes in this process.

        Args:
            recipe: A recipe with a model.
            folder: For files of this process.
            model_url: An inference server to sample from; None loads the model into this process.

        Raises:
            ModelError: The model or the server cannot be used.
        """

    def faults(self, recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
        """What the framework cannot use in a checked recipe: the recipe's key, and one sentence for each.

        Raises:
            DependencyMissing: The framework is not installed.
        """
        return iter(())

    def trained_logprobs(
        self, recipe: Recipe, folder: Path, samples: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        """The log-probabilities that training computes for sampled tokens, with the recipe's model in float32.

        Args:
            recipe: A recipe with a model; ``rollout.temperature`` is the one of the samples.
            folder: For files of this process.
            samples: The tokens of a prompt, and those that were sampled after it.

        Returns:
            For each sample, those of its sampled tokens.

        Raises:
            ModelError: The model cannot be used.
            UsageError: The framework computes none outside a run.
        """
        raise UsageError(f"The framework {self.name} computes no probabilities outside a run.")

    def recipe_from(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """A configuration in the framework's own form as the mapping of a recipe; None if ``content`` is none.

        Raises:
            RecipeError: A value has no place in a recipe.
        """
        return None

    def memory_plan(self, recipe: Recipe, gpu_bytes: int) -> MemoryPlan | None:
        """Where the memory of GPUs goes; None on processors, and if the model is not on this machine or not known.

        Args:
            recipe: A checked recipe.
            gpu_bytes: What each GPU has; 0 if that is not known, and the engine's share of it with it.
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
        """Have the framework go on from a checkpoint below ``folder``, or from the beginning.

        Returns:
            What is wrong with newer checkpoints, in sentences.
        """
        return []

    def checkpoints(self, folder: Path) -> list[StoredCheckpoint]:
        """All checkpoints below a run's ``checkpoints``, in order."""
        last = self.last_checkpoint(folder)
        return [StoredCheckpoint(last.step, last.model, "")] if last else []

    def extract_model(self, checkpoint: Path, into: Path) -> ExtractedModel:
        """A checkpoint's model, as other programs load it: the one in it, or one that is made in ``into``.

        Raises:
            ModelError: There is none, or it cannot be made.
        """
        model = self.model_in(checkpoint)
        if model is None:
            raise ModelError(f"{checkpoint} holds no model in Hugging Face's format.")
        return ExtractedModel(model, None)


_registered: dict[str, type[TrainingFramework]] = {}


def register(name: str, framework: type[TrainingFramework]) -> None:
    """Make a framework known in this process; it takes precedence over an installed one of the same name."""
    _registered[name] = framework


def unregister(name: str) -> None:
    """Remove a framework that was registered in this process."""
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


def recipe_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """What a recipe's framework cannot use in it: the recipe's key, and one sentence for each; all of them.

    The configuration that the framework composes is not checked: ``composed`` does that.

    Raises:
        RecipeError: There is no framework of that name.
        DependencyMissing: The framework is not installed.
    """
    return _faults(recipe, find(recipe.trainer.framework))


def framework_of(recipe: Recipe) -> TrainingFramework:
    """The framework that a recipe names, after a check of the recipe.

    Raises:
        RecipeError: There is none of that name, or it cannot use the recipe; all faults are reported together.
        DependencyMissing: The framework is not installed.
    """
    framework = find(recipe.trainer.framework)
    refuse([sentence for _, sentence in _faults(recipe, framework)])
    return framework


def _faults(recipe: Recipe, framework: TrainingFramework) -> Iterator[tuple[KeyPath, str]]:
    owned = dict(owned_faults(framework.name, framework.owned_keys, recipe.raw))
    yield from owned.items()
    yield from ((key, text) for key, text in framework.faults(recipe) if key not in owned)
