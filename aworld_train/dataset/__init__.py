"""Datasets: sources of tasks become checked parquet files in verl's row schema.

`build` makes a dataset directory from a source and accounts for every piece of input; `carry_out` does so for a whole
`BuildPlan`, with several sources; `check_file` sees that a parquet file, made here or elsewhere, can be trained on.
"""

from aworld_train.dataset.builder import BuildReport, build, carry_out
from aworld_train.dataset.check import FileSummary, check_file
from aworld_train.dataset.plan import BuildPlan, PlannedSource

__all__ = ["BuildPlan", "BuildReport", "FileSummary", "PlannedSource", "build", "carry_out", "check_file"]
