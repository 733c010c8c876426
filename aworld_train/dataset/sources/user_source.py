"""A user-defined source, named ``module:function`` or ``path/to/file.py:function``.

The function takes the `SourceOptions`, or nothing, and yields tasks, or mappings with the fields of a JSON line
(``id``, ``query``, ``answer``, ``scorer``, ``answer_schema``), which become tasks in the same way.
"""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aworld_train.dataset.sources.answers import right_answers
from aworld_train.dataset.sources.columns import Columns, FileColumns
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader, printable
from aworld_train.dataset.sources.values import UnusableRecord, check_encodable, read_query
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import AworldTrainError, DatasetError, UsageError
from aworld_train.user_code import load_user_code


def load_source(spec: str) -> Callable[[SourceOptions], Iterator[Task | Dropped]]:
    function = load_user_code(spec, "source")
    takes_options = _takes_options(spec, function)

    def source(options: SourceOptions) -> Iterator[Task | Dropped]:
        columns = Columns(options.columns)
        origin = Path(spec.rpartition(":")[0]).name
        file_columns = FileColumns(columns.plan)
        reader = RecordReader(options, origin.removesuffix(".py").rpartition(".")[2])
        for number, item in enumerate(_items(spec, function, (options,) if takes_options else ()), 1):
            if isinstance(item, Mapping):
                plan = file_columns.plan(tuple(map(str, item)), f"{spec}, item {number}")
                record: Record = (number, dict(item), plan.fields(item))
                yield from (_checked(item, origin, number) for item in reader.tasks(iter([record]), origin))
            elif isinstance(item, Task | Dropped):
                yield _checked(item, origin, number)
            else:
                raise DatasetError(
                    f"The source {spec!r}: its item {number} is of type {type(item).__name__}. It yields tasks "
                    "(aworld_train.dataset.tasks.Task), or mappings such as {'query': ..., 'answer': ...}."
                )
        columns.check_columns_found(f"The source {spec!r}")
        options.left_unused(origin, file_columns.unused)

    return source


def _items(spec: str, function: Callable[..., Any], arguments: tuple[SourceOptions, ...]) -> Iterator[object]:
    number = 0
    try:
        items = function(*arguments)
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
            raise DatasetError(
                f"The source {spec!r} returned {type(items).__name__}, not tasks: write it with `yield`, or return "
                "a list of them."
            )
        for item in items:
            number += 1
            yield item
    except AworldTrainError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise DatasetError(
            f"The source {spec!r} failed after {number} items, in {frame.filename}, line {frame.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _checked(item: Task | Dropped, origin: str, number: int) -> Task | Dropped:
    """The item if training can use it, else a dropped one: a user-defined source can yield invalid tasks."""
    if isinstance(item, Dropped):
        return Dropped(item.file or origin, item.line or number, printable(item.text), str(item.reason))
    try:
        check_encodable(
            (
                *(item.subject, item.message, item.answer, item.id, item.system, item.level, item.earlier),
                *(*item.attachments, *item.images, *item.ground_truths, *item.tags),
            )
        )
        read_query(item.message)
        _, several = right_answers(item.answer, item.ground_truths or None)
    except UnusableRecord as reason:
        return Dropped(item.file or origin, item.line or number, printable(item.message), str(reason))
    return item if several == item.ground_truths else replace(item, ground_truths=several)


def _takes_options(spec: str, function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    for arguments in ((SourceOptions(),), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise UsageError(
        f"The source {spec!r} takes {signature}: write it with one parameter, for the options, or without any."
    )
