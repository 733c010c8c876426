"""The ``README.md`` of an exported model: how it was measured, with intervals, and the data and recipe behind it.

The form is the hub's: https://huggingface.co/docs/hub/model-cards
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.adapter.base import StoredCheckpoint
from aworld_train.errors import AworldTrainError
from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.results import evaluation_of
from aworld_train.evaluation.statistics import wilson_interval
from aworld_train.model.files import is_hub_name
from aworld_train.recipe.tree import map_values, put
from aworld_train.training.checkpoint_export import CARD_MARK
from aworld_train.training.recorded_run import RecordedRun, find_runs


def model_card(run: RecordedRun, checkpoint: StoredCheckpoint, runs: Path, *, adapter: bool) -> str:
    """The card of a checkpoint, or of its adapter, with the evaluations below ``runs`` that measured it."""
    return "\n".join(
        [*_head(run, adapter), "", *_origin(run, checkpoint), "", *_figures(run, checkpoint, runs), ""]
    )


def _head(run: RecordedRun, adapter: bool) -> Iterator[str]:
    model = run.subject
    yield "---"
    yield f"library_name: {'peft' if adapter else 'transformers'}"
    yield "pipeline_tag: text-generation"
    if is_hub_name(model) and not Path(model).expanduser().exists():
        yield f"base_model: {model}"
    yield "tags: [aworld-train]"
    yield "---"
    yield CARD_MARK


def _origin(run: RecordedRun, checkpoint: StoredCheckpoint) -> Iterator[str]:
    manifest = run.manifest
    identity: Mapping[str, Any] = manifest.get("model") or {}
    state = identity.get("revision") or str(identity.get("fingerprint") or "")[:12]
    packages: Mapping[str, str] = manifest.get("packages") or {}
    versions = ", ".join(f"{name} {packages[name]}" for name in ("verl", "torch") if name in packages)
    yield f"# {run.name}, step {checkpoint.step}"
    yield ""
    yield (
        f"`{run.subject}`{f' ({state})' if state else ''}, trained for {checkpoint.step} steps with "
        f"aworld-train {manifest.get('aworld_train', '')}{f' ({versions})' if versions else ''}."
    )


def _figures(run: RecordedRun, checkpoint: StoredCheckpoint, runs: Path) -> Iterator[str]:
    yield from ("## Evaluation", "", "| measured on | tasks | attempts at each | accuracy | 95 % interval |")
    yield "|---|---|---|---|---|"
    rows = [*_validations(run, checkpoint), *_evaluations(checkpoint, runs)]
    yield from rows or ["| nothing | | | | |"]
    yield ""
    yield "Attempts that failed for reasons outside of the agent are in no figure."
    yield from ("", "## Data", "", "| file | SHA-256 |", "|---|---|")
    for file, digest in (run.manifest.get("data_sha256") or {}).items():
        yield f"| `{file}` | `{digest}` |"
    changed: dict[str, Any] = {}
    defaults = dict(map_values(recipes.to_source(recipes.Recipe())))
    for path, value in map_values(recipes.masked(dict(run.recipe))):
        if value != defaults.get(path):
            put(changed, path, value)
    yield from ("", "## Recipe", "", "```yaml", recipes.dump(changed).rstrip(), "```")


def _validations(run: RecordedRun, checkpoint: StoredCheckpoint) -> Iterator[str]:
    for row in run.rows:
        accuracy, n = row.get("val_accuracy"), row.get("val_n")
        if row["step"] in (0, checkpoint.step) and accuracy is not None and n:
            name = f"the run's validation, step {row['step']}"
            yield _row(name, n, 1, accuracy, wilson_interval(accuracy * n, n))


def _evaluations(checkpoint: StoredCheckpoint, runs: Path) -> Iterator[str]:
    for run in find_runs(runs):
        model = run.evaluation.get("model")
        if not model or not Path(model).resolve().is_relative_to(checkpoint.path.resolve()):
            continue
        try:
            figures = figures_of(evaluation_of(run))
        except AworldTrainError:  # its store is gone
            continue
        if figures.accuracy is not None and figures.interval is not None:
            name = f"{run.name}: {figures.dataset}"
            yield _row(name, figures.n, figures.attempts_per_task, figures.accuracy, figures.interval)


def _row(name: str, tasks: int, attempts: int, accuracy: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"| {name} | {tasks} | {attempts} | {accuracy:.1%} | {low:.1%} to {high:.1%} |"
