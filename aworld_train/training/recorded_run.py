"""A run as its folder records it, also while it is running; the framework that trained it is not imported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from aworld_train.errors import UsageError, suggestion
from aworld_train.json_lines import read_json, split_lines
from aworld_train.recipe.schema import TrainerSection
from aworld_train.recipe.tree import dotted, map_values
from aworld_train.training.run_files import MANIFEST, METRICS, RECIPE, SETTINGS, SUMMARY, is_in_use

_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # fifteen times as fast, where PyYAML has it


@dataclass(frozen=True)
class RecordedRun:
    """One run folder; ``summary`` and ``manifest`` are empty where the file is missing."""

    path: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def framework(self) -> str:
        return (self.recipe.get("trainer") or {}).get("framework") or TrainerSection.framework

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        """The unresolved recipe; reading it takes longer than all else that a list shows."""
        try:
            recipe = yaml.load((self.path / RECIPE).read_text(encoding="utf-8"), _YAML_LOADER)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UsageError(f"{self.path / RECIPE} cannot be read: {error}") from error
        return recipe if isinstance(recipe, dict) else {}

    @cached_property
    def status(self) -> str:
        """The summary's status; ``killed`` if it is ``running`` and no process works on it."""
        status = str(self.summary.get("status", "unknown"))
        return "killed" if status == "running" and not is_in_use(self.path) else status

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        rows = [row for row in split_lines(self.path / METRICS)[0] if isinstance(row.get("step"), int)]
        return sorted(rows, key=lambda row: row["step"])

    def series(self, name: str) -> list[tuple[int, float]]:
        """A figure over the steps that have it; dots lead into nested figures (``verl.actor/grad_norm``)."""
        points = ((row["step"], _at(row, name)) for row in self.rows)
        return [(step, float(value)) for step, value in points if _is_number(value)]

    @property
    def started(self) -> str:
        """When its first attempt began, as UTC in ISO 8601; empty where that is not recorded."""
        return str(self.attempts[0].get("started", "")) if self.attempts else ""

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return self.manifest.get("attempts") or []

    @property
    def model(self) -> Mapping[str, Any]:
        """The model's name, with its revision or fingerprint; empty if not recorded."""
        model = self.manifest.get("model")
        return model if isinstance(model, dict) else {}

    @property
    def evaluation(self) -> Mapping[str, Any]:
        """The settings of an evaluation (see ``evaluation.plan``); empty for a training run."""
        settings = self.manifest.get(SETTINGS)
        return settings if isinstance(settings, dict) else {}

    @property
    def subject(self) -> str:
        """What is trained or measured: a model, a checkpoint, or an agent that needs none; empty if not recorded."""
        agent = self.evaluation.get("agent", "recipe")
        if agent != "recipe":
            return f"agent {agent}"
        if recorded := self.evaluation.get("model") or self.model.get("name"):
            return str(recorded)
        section = self.recipe.get("model")
        return str((section.get("path") if isinstance(section, dict) else None) or "")

    def validation(self, which: str) -> Mapping[str, Any]:
        value = (self.summary.get("val") or {}).get(which)
        return value if isinstance(value, dict) else {}

    def figure_names(self) -> list[str]:
        names: set[str] = set()
        for row in self.rows:
            for name, value in row.items():
                if _is_number(value):
                    names.add(name)
                elif isinstance(value, dict):
                    names |= {f"{name}.{inner}" for inner, each in value.items() if _is_number(each)}
        return sorted(names - {"step"})


def open_run(name: str, runs: Path) -> RecordedRun:
    """The run of this name below ``runs``, or the one in this folder."""
    for path in (runs / name, Path(name)):
        if (path / RECIPE).is_file():
            return _read(path.resolve())
    check_runs_folder(runs)
    names = [run.name for run in find_runs(runs)]
    hint = suggestion(name, names) or (f" There are {', '.join(names)}." if names else "")
    raise UsageError(
        f"Unknown run {name!r}: neither {runs / name} nor {name} holds a {RECIPE}.{hint} --runs names the folder "
        "in which runs are."
    )


def check_runs_folder(runs: Path) -> None:
    if runs.is_dir():
        return
    beside = [entry.name for entry in runs.parent.iterdir() if entry.is_dir()] if runs.parent.is_dir() else []
    hint = suggestion(str(runs), [str(runs.parent / name) for name in beside])
    raise UsageError(
        f"No such folder: {runs}.{hint} --runs names the folder in which runs are; `aworld-train train` makes it."
    )


def find_runs(runs: Path) -> list[RecordedRun]:
    """All runs below a folder, the one that began last first."""
    if not runs.is_dir():
        return []
    found = [_read(path) for path in sorted(runs.iterdir()) if (path / RECIPE).is_file()]
    return sorted(found, key=lambda run: run.started, reverse=True)


def recipe_differences(runs: Sequence[RecordedRun]) -> dict[str, list[Any]]:
    """The recipe's keys in which runs differ, each with the value of every run.

    References to other keys are resolved; those to the environment are not.
    """
    from aworld_train.recipe.interpolation import without_references

    resolved = (without_references(run.recipe, run.framework) for run in runs)
    flat = [{dotted(path): value for path, value in map_values(tree)} for tree in resolved]
    keys = sorted({key for leaves in flat for key in leaves})
    values = {key: [leaves.get(key) for leaves in flat] for key in keys if key != "name"}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def _read(path: Path) -> RecordedRun:
    return RecordedRun(path, read_json(path / SUMMARY), read_json(path / MANIFEST))


def _at(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    section, _, inner = name.partition(".")
    nested = row.get(section)
    return nested.get(inner) if isinstance(nested, dict) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
