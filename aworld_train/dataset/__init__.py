"""Datasets: sources of tasks become checked parquet files in verl's row schema.

A *record* is one piece of input, such as a line of a file. A *task* is what a source makes of a record (GSM8K's
annotations give several of one), and a *row* is what a task becomes in a parquet file.

Names are looked up on first use, because the command line imports the options of sources and must not load pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aworld_train.dataset.build_report import BuildReport as BuildReport
    from aworld_train.dataset.builder import build as build
    from aworld_train.dataset.builder import carry_out as carry_out
    from aworld_train.dataset.check import FileSummary as FileSummary
    from aworld_train.dataset.check import check_file as check_file
    from aworld_train.dataset.check import check_files as check_files
    from aworld_train.dataset.plan import BuildPlan as BuildPlan
    from aworld_train.dataset.plan import PlannedSource as PlannedSource

_MODULES = {
    "BuildPlan": "plan",
    "BuildReport": "build_report",
    "FileSummary": "check",
    "PlannedSource": "plan",
    "build": "builder",
    "carry_out": "builder",
    "check_file": "check",
    "check_files": "check",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
