"""Has every other training step of a run go without its store: Python imports this file when a process starts.

Steps go with, without, without, with, and so on, so that neither side has the later step of each pair of steps.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def has_store(step: int) -> bool:
    """Whether the episodes of a step are kept."""
    return step % 4 in (1, 2)


def keep_every_other_step(module: ModuleType) -> None:
    """For the processes that play: an episode of a step without the store is not begun in it."""
    begin = module.EpisodeRecord.begin

    def begin_or_not(self: Any, settings: Any, task: Any, **options: Any) -> None:
        if has_store(self.figures.step):
            begin(self, settings, task, **options)
        else:
            self._has_tools = settings.env["has_tools"]

    module.EpisodeRecord.begin = begin_or_not


def report_every_other_step(module: ModuleType) -> None:
    """For the process that trains: the rows of a step without the store are not reported."""
    report = module.report_trained

    def report_or_not(step: int, *arguments: Any) -> None:
        if has_store(step):
            report(step, *arguments)

    module.report_trained = report_or_not  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "aworld_train.adapter.episodes.record": keep_every_other_step,
    "aworld_train.adapter.verl.trained_rows": report_every_other_step,
}


class ChangedModules(MetaPathFinder):
    """Finds modules as they are, and changes two of them once they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in CHANGES:
            return None
        change = CHANGES.pop(name)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


if __name__ == "sitecustomize":  # not where the benchmark imports this module
    sys.meta_path.insert(0, ChangedModules())
