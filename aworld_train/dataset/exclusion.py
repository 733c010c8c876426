"""What another dataset holds, so that a build can leave it out: a test set stays unseen in training."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aworld_train.dataset.check import open_parquet, read_batches
from aworld_train.dataset.expressions import ExpressionError, normalize
from aworld_train.dataset.tasks import TaskKind, question_key
from aworld_train.errors import DatasetError


def excluded_files(paths: Iterable[str | Path]) -> list[Path]:
    """The parquet files that the given files and dataset directories stand for.

    Raises:
        DatasetError: A path is not there, or a directory holds no parquet file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(path.glob("*.parquet"))
        if not inside:
            raise DatasetError(f"{path} holds no parquet file, so nothing of it can be left out (--exclude).")
        files += inside
    return files


def excluded_keys(files: Iterable[Path], kind: TaskKind) -> set[str]:
    """Keys of all tasks in the files, comparable with ``Task.key`` for tasks of this kind.

    Raises:
        DatasetError: A file cannot be read, or has a row whose expression or question is not recorded, so
            that nothing could be compared.
    """
    keys: set[str] = set()
    for path in files:
        with open_parquet(path) as file:
            if "extra_info" not in file.schema_arrow.names:
                raise _not_comparable(path, kind)
            for batch in read_batches(file, path, columns=["extra_info"]):
                for info in batch.column(0).to_pylist():
                    keys.add(_key(info or {}, kind, path))
    return keys


def _key(info: dict[str, Any], kind: TaskKind, path: Path) -> str:
    subject = info.get(kind.value)
    if not isinstance(subject, str):
        raise _not_comparable(path, kind)
    if kind is TaskKind.question:
        return question_key(subject)
    try:
        return normalize(subject)
    except ExpressionError as error:
        raise DatasetError(
            f"{path} cannot be left out (--exclude): its expression {subject!r} is unusable, {error.message}."
        ) from error


def _not_comparable(path: Path, kind: TaskKind) -> DatasetError:
    return DatasetError(
        f"{path} does not record extra_info.{kind.value} in every row, so it cannot be seen which "
        f"{kind.value}s to leave out (--exclude). Build it with the same --tasks."
    )
