"""The tasks of another dataset, which a build leaves out: a test set stays unseen in training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from aworld_train.dataset.arrays import binaries
from aworld_train.dataset.check import open_parquet, read_batches
from aworld_train.dataset.columns import FamilyIndex
from aworld_train.dataset.expressions import ExpressionError, normalize
from aworld_train.dataset.tasks import DIGEST_BYTES, TaskKind, digest, question_key
from aworld_train.errors import DatasetError


@dataclass
class Reference:
    """The tasks that a build must not contain; ``digests`` are made with the build's seed."""

    files: Sequence[Path] = ()
    digests: set[bytes] = field(default_factory=set)
    kinds: set[TaskKind] = field(default_factory=set)

    def digests_array(self) -> pa.Array:
        return binaries(sorted(self.digests), DIGEST_BYTES)

    def check_comparable(self, families: FamilyIndex) -> None:
        """Check that the reference has tasks of every kind that the build has; otherwise none could be found."""
        if not self.files:
            return
        built = {
            TaskKind.question if f.shared.is_question else TaskKind.expression for f in families.listed()
        }
        for kind in TaskKind:
            if kind in built - self.kinds:
                raise DatasetError(
                    f"{self.files[0]} does not record extra_info.{kind.value} in any row, so it cannot be seen "
                    f"which {kind.value}s to leave out (--against). Build it with the same --tasks."
                )


def reference_files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        parquet_files = sorted(path.glob("*.parquet"))
        if not parquet_files:
            raise DatasetError(f"{path} holds no parquet file, so nothing of it can be left out (--against).")
        files += parquet_files
    return files


def read_reference(files: Sequence[Path], seed: int) -> Reference:
    reference = Reference(files)
    for subject in subjects(files):
        reference.kinds.add(subject.kind)
        reference.digests.add(digest(_key(subject).encode(), seed))
    return reference


class Subject(NamedTuple):
    """What a row asks: its expression, its question, or else its last message."""

    kind: TaskKind
    text: str
    path: Path
    row: int


def subjects(files: Iterable[Path]) -> Iterator[Subject]:
    for path in files:
        with open_parquet(path) as file:
            columns = [name for name in ("prompt", "extra_info") if name in file.schema_arrow.names]
            number = 0
            for batch in read_batches(file, path, columns):
                for row in batch.to_pylist():
                    yield Subject(*_subject(row, number, path), path, number)
                    number += 1


def _subject(row: dict[str, Any], number: int, path: Path) -> tuple[TaskKind, str]:
    info = row.get("extra_info")
    for kind in TaskKind:
        if isinstance(info, dict) and isinstance(subject := info.get(kind.value), str):
            return kind, subject
    messages = row.get("prompt")
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        content = messages[-1].get("content")
        if isinstance(content, str) and content.strip():
            return TaskKind.question, content
    raise DatasetError(
        f"{path}, row {number}: there is no extra_info.expression, extra_info.question or prompt to compare with "
        "(--against). Give a dataset file of `aworld-train dataset build`, or one in verl's row schema."
    )


def _key(subject: Subject) -> str:
    if subject.kind is TaskKind.question:
        return question_key(subject.text)
    try:
        return normalize(subject.text)
    except ExpressionError as error:
        raise DatasetError(
            f"{subject.path} cannot be left out (--against): its expression {subject.text!r} is unusable, "
            f"{error.message}."
        ) from error
