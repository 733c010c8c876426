"""Datasets: sources of tasks become checked parquet files in verl's row schema.

`build` makes a dataset directory from a source and accounts for every piece of input; `check_file` sees that
a parquet file, made here or elsewhere, can be trained on.
"""

from aworld_train.dataset.builder import BuildReport, build
from aworld_train.dataset.check import FileSummary, check_file

__all__ = ["BuildReport", "FileSummary", "build", "check_file"]
