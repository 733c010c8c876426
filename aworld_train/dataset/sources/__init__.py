"""Where tasks come from: each source is a function from options to tasks, found by name and loaded when used.

A source is ``def source(options: SourceOptions) -> Iterator[Task | Dropped]``; those of the table may yield a
`TaskTable` in place of many tasks. One's own is named ``module:function`` or ``path/to/file.py:function`` and is
used like those of the table.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields
from importlib import import_module

from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Dropped, Task, TaskTable
from aworld_train.errors import UsageError, nearest

__all__ = ["SOURCES", "Source", "SourceEntry", "SourceOptions", "check_options", "find_source", "given_flags"]

Source = Callable[[SourceOptions], Iterator[Task | Dropped | TaskTable]]


@dataclass(frozen=True)
class SourceEntry:
    """A source of this package.

    Attributes:
        function: Where it is, ``module:function``.
        uses: The fields of `SourceOptions` that change what it yields; giving another is refused.
        needs: Those of them that must be given.
        about: What it reads, in a few words.
    """

    function: str
    uses: frozenset[str]
    needs: frozenset[str]
    about: str


_HERE = "aworld_train.dataset.sources"
_ALWAYS = {"scorer", "answer_schema", "system"}
_TABLE = {"files", "columns", "levels", "attachments_at"}


def _entry(function: str, uses: set[str], about: str) -> SourceEntry:
    needs = frozenset({"files"} & uses)
    return SourceEntry(f"{_HERE}.{function}", frozenset(uses | _ALWAYS), needs, about)


SOURCES: dict[str, SourceEntry] = {
    "gaia": _entry(
        "gaia:gaia", {"files", "part", "levels", "attachments_at"}, "a local snapshot of the GAIA dataset"
    ),
    "gsm8k": _entry("gsm8k:gsm8k", {"files", "tasks"}, "GSM8K's JSONL files"),
    "jsonl": _entry("jsonl:jsonl", _TABLE, "JSON lines with id, query, answer, scorer, answer_schema"),
    "csv": _entry("csv:csv", _TABLE, "CSV files with a header"),
    "parquet": _entry("parquet:parquet", _TABLE, "parquet files"),
    "hf": _entry("hf:hf", _TABLE | {"part", "config"}, "a Hugging Face dataset by name or directory"),
    "arithmetic": _entry("arithmetic:arithmetic", set(), "made-up expressions, no file"),
}


def find_source(name: str) -> Source:
    """The function of a source, by its name in the table or as ``module:function``.

    Raises:
        UsageError: There is none of that name, or one's own cannot be loaded.
    """
    if ":" in name:
        from aworld_train.dataset.sources.user_source import load_source

        return load_source(name)
    module, _, function = _find_entry(name).function.partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


def check_options(name: str, options: SourceOptions) -> None:
    """See that a source is given what it needs and nothing that it would leave unused.

    One's own source may use whatever it likes.

    Raises:
        UsageError: There is no such source, an option is missing, or one would do nothing.
    """
    if "" in options.files:
        raise UsageError(
            f"The source {name} is given a file without a name (--file ''). Is a variable empty?"
        )
    if ":" in name:
        return
    entry = _find_entry(name)
    for field in fields(options):
        given = getattr(options, field.name)
        if field.name in entry.needs and not given:
            raise UsageError(f"The source {name} reads {entry.about}: give it --file.")
        if field.name in _TOLD_ALL or field.name in entry.uses or given == _default(field):
            continue
        users = ", ".join(other for other, its in SOURCES.items() if field.name in its.uses)
        raise UsageError(
            f"The source {name} ({entry.about}) has no use for {_FLAGS[field.name]}; leave it out. It is for {users}."
        )


def given_flags(options: SourceOptions) -> list[str]:
    """The options that differ from their defaults, as they are written at the command line."""
    return [
        flag
        for field in fields(options)
        if (flag := _FLAGS.get(field.name)) and getattr(options, field.name) != _default(field)
    ]


def _find_entry(name: str) -> SourceEntry:
    if name in SOURCES:
        return SOURCES[name]
    hint = nearest(name, set(SOURCES))
    meant = f" Did you mean {hint}?" if hint else ""
    raise UsageError(
        f"There is no source {name!r}; there are {', '.join(SOURCES)}, and one's own as module:function or "
        f"file.py:function.{meant}"
    )


def _default(field: Field[object]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


_TOLD_ALL = ("seed", "limit", "read")
_FLAGS = {
    "files": "--file",
    "columns": "--map",
    "part": "--part",
    "config": "--config",
    "levels": "--level",
    "attachments_at": "--attachments-at",
    "tasks": "--tasks",
    "scorer": "--scorer",
    "answer_schema": "--answer-schema",
    "system": "--system-prompt",
}
