"""Where tasks come from: each source is a function from options to tasks, found by name and loaded when used.

A source is ``def source(options: SourceOptions) -> Iterator[Task | Dropped]``; the sources of the table may also yield
a `TaskTable`, which stands for many tasks. A user-defined source is named ``module:function`` or
``path/to/file.py:function`` and is used like those of the table.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from aworld_train.dataset.sources.options import SourceOptions, default_value, user_options
from aworld_train.errors import UsageError, suggestion

if TYPE_CHECKING:
    from aworld_train.dataset.tasks import Dropped, Task, TaskTable

__all__ = ["SOURCES", "Source", "SourceEntry", "SourceOptions", "check_options", "find_source"]

Source = Callable[[SourceOptions], Iterator["Task | Dropped | TaskTable"]]


@dataclass(frozen=True)
class SourceEntry:
    """A source of this package; setting a field of `SourceOptions` that it does not use is refused."""

    uses: Set[str]
    about: str


_ALWAYS = {"scorer", "answer_schema", "system"}
_TABLE = {"files", "columns", "levels", "choices_prompt", "attachments_at"}
_TEXT = _TABLE | {"encoding"}


SOURCES: dict[str, SourceEntry] = {
    "gaia": SourceEntry(
        {"files", "part", "levels", "attachments_at"}, "a local snapshot of the GAIA dataset"
    ),
    "gsm8k": SourceEntry({"files", "tasks"}, "GSM8K's JSONL files"),
    "jsonl": SourceEntry(_TEXT, "JSON lines with id, query, answer, scorer, answer_schema"),
    "csv": SourceEntry(_TEXT, "CSV files with a header"),
    "parquet": SourceEntry(_TABLE, "parquet files"),
    "hf": SourceEntry(_TABLE | {"part", "config"}, "a Hugging Face dataset by name or directory"),
    "arithmetic": SourceEntry(set(), "made-up expressions, no file"),
    "files": SourceEntry(
        {"levels", "tags", "max_rows", "attachments_at"}, "documents that it makes, and asks about"
    ),
}
"""The sources of this package, each a function in the module of its name."""


def find_source(name: str) -> Source:
    if ":" in name:
        from aworld_train.dataset.sources.user_source import load_source

        return load_source(name)
    _find_entry(name)
    return getattr(import_module(f"{__name__}.{name}"), name)  # type: ignore[no-any-return]


def check_options(name: str, options: SourceOptions) -> None:
    """Check that the options that a source needs are set, and none that it ignores; a user-defined one may use any."""
    if "" in options.files:
        raise UsageError(
            f"The source {name} is given a file without a name (--file ''). Is a variable empty?"
        )
    if ":" in name:
        return
    entry = _find_entry(name)
    for option_field, option in user_options():
        field, value = option_field.name, getattr(options, option_field.name)
        if field == "files" and field in entry.uses and not value:
            raise UsageError(f"The source {name} reads {entry.about}: give it {option.flag}.")
        if field not in entry.uses | _ALWAYS and value != default_value(option_field):
            users = ", ".join(user for user, other in SOURCES.items() if field in other.uses)
            raise UsageError(
                f"The source {name} ({entry.about}) has no use for {option.flag}; leave it out. It is for {users}."
            )


def _find_entry(name: str) -> SourceEntry:
    if name in SOURCES:
        return SOURCES[name]
    raise UsageError(
        f"Unknown source {name!r}; there are {', '.join(SOURCES)}, and user-defined ones as module:function or "
        f"file.py:function.{suggestion(name, SOURCES)}"
    )
