"""Exports the episodes of a run that meet a condition into one file, which is there whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from aworld_train.errors import DiskFull, ExportError, UsageError
from aworld_train.store.export.formats import ExportFormat
from aworld_train.store.export.writer import ExportedRun, ExportWriter
from aworld_train.store.reading import Store

_WRITERS = {
    ExportFormat.parquet: ("parquet", "ParquetWriter"),
    ExportFormat.messages: ("messages", "MessagesWriter"),
    ExportFormat.atif: ("atif", "AtifWriter"),
    ExportFormat.inspect: ("inspect_log", "InspectWriter"),
}
INSPECT_SUFFIX = ".eval"


@dataclass(frozen=True)
class ExportCounts:
    """What an export holds: ``entries`` are model calls, conversations or samples; of episodes ``without_content`` that
    meet the condition no texts are kept.
    """

    episodes: int
    entries: int
    without_content: int
    bytes: int


def export(
    store: Store,
    run: ExportedRun,
    form: ExportFormat,
    file: Path,
    *,
    condition: str = "",
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExportCounts:
    _check_file(file, form, force)
    episodes = store.ids(condition)
    entries = exported = 0
    with _replacing(file, force) as temporary:
        module, name = _WRITERS[form]
        writer: ExportWriter = getattr(import_module(f"{__package__}.{module}"), name)(temporary, run)
        try:
            for number, episode in enumerate(store.whole_episodes(episodes), 1):
                if episode.content is not None:
                    written = writer.add(episode)
                    entries += written
                    exported += bool(written)
                progress(number, len(episodes))
            if not entries:
                raise ExportError(_empty_message(store, len(episodes), condition))
            writer.finish()
        except BaseException:
            # What is left to write when a file is closed may not fit on a full disk either.
            with contextlib.suppress(OSError, ValueError):
                writer.abandon()
            raise
    return ExportCounts(exported, entries, len(episodes) - exported, file.stat().st_size)


def _check_file(file: Path, form: ExportFormat, force: bool) -> None:
    if form is ExportFormat.inspect and file.suffix != INSPECT_SUFFIX:
        raise UsageError(f"{file} has to end with {INSPECT_SUFFIX}, by which Inspect AI knows its logs.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder; --out names a file.")
    if not file.parent.is_dir():
        raise UsageError(f"No such folder: {file.parent}.")
    if file.exists() and not force:
        raise UsageError(f"{file} exists. Name another file with --out, or give --force.")


@contextlib.contextmanager
def _replacing(file: Path, force: bool) -> Iterator[Path]:
    """A file beside ``file`` that takes its place when the block ends without an error."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=file.suffix)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        if force:
            temporary.replace(file)
        else:
            # Unlike a replacement, this fails if another process has made the file meanwhile.
            os.link(temporary, file)
    except FileExistsError:
        raise UsageError(f"{file} exists. Name another file with --out, or give --force.") from None
    except OSError as error:
        raise DiskFull(f"{file} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _empty_message(store: Store, count: int, condition: str) -> str:
    name = store.location.name
    if not count:
        clause = f" that meets {condition!r}" if condition.strip() else ""
        return f"There is nothing to export: {name} has no episode{clause}."
    clause = f" that meet {condition!r}" if condition.strip() else ""
    return (
        f"There is nothing to export: of the {count} episodes of {name}{clause}, the texts of none are kept."
    )
