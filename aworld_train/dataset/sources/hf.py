"""A Hugging Face dataset as tasks: one from the hub by its name, streamed, or a folder that `save_to_disk` wrote.

The library `datasets` is loaded when it is needed. One request checks first whether the hub can be reached, so that a
machine without network fails within seconds.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aworld_train.dataset.sources.columns import Columns, FileColumns
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.parquet import BATCH_RECORDS, batch_records
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import AworldTrainError, DatasetError, DependencyMissing, UsageError, suggestion

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SAVED = ("state.json", "dataset_dict.json")


def hf(options: SourceOptions) -> Iterator[Task | Dropped]:
    if find_spec("datasets") is None:
        raise DependencyMissing(
            "The source hf needs the library datasets, which is not installed: pip install datasets (it also comes "
            "with 'aworld-train[cpu]' and 'aworld-train[gpu]'). JSON lines, CSV and parquet files need none: "
            "use the sources jsonl, csv and parquet."
        )
    columns = Columns(options.columns)
    for name in options.files:
        # A name on the hub is `owner/name`.
        last_name = name.rstrip("/").rpartition("/")[2]
        reader = RecordReader(options, last_name)
        file_columns = FileColumns(columns.table_plan)
        yield from reader.tasks(_records(name, options, file_columns), name)
        options.left_unused(last_name, file_columns.unused)


def _records(name: str, options: SourceOptions, columns: FileColumns) -> Iterator[Record]:
    number = 0
    try:
        dataset = _load(name, options)
        plan = columns.plan(tuple(dataset.column_names), name)
        tables = dataset.select_columns(plan.columns).with_format("arrow").iter(BATCH_RECORDS)
        features = dataset.features.to_dict() if dataset.features else {}
        batches = (batch for table in tables for batch in table.to_batches())
        for record in batch_records(batches, plan, features, name):
            number = record[0]
            yield record
    except AworldTrainError:
        raise
    # The library, its file readers and the network raise errors of many types.
    except Exception as error:
        after = f" after {number} rows" if number else ""
        raise DatasetError(f"The dataset {name} cannot be read{after}: {_error_summary(error)}.") from error


def _load(name: str, options: SourceOptions) -> Any:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _load_folder(folder, options)
    if folder.exists() or not _HUB_NAME.fullmatch(name):
        raise UsageError(
            f"{name} (--file) is neither a folder nor the name of a dataset on the hub, such as openai/gsm8k. "
            "Single files are for the sources jsonl, csv and parquet."
        )
    return _load_hub(name, options)


def _load_folder(folder: Path, options: SourceOptions) -> Any:
    from datasets import load_from_disk

    if not any((folder / name).is_file() for name in _SAVED):
        raise UsageError(
            f"{folder} (--file) is not a folder that `save_to_disk` wrote: it has no {' or '.join(_SAVED)}. "
            "For a folder of parquet files use the source parquet."
        )
    if options.config is not None:
        raise UsageError(
            f"--config {options.config}: {folder} is one dataset, and configurations are the hub's."
        )
    dataset = _part(load_from_disk(str(folder)), options.part, str(folder))
    for file in dataset.cache_files:
        options.opened(file["filename"])
    return dataset


def _load_hub(name: str, options: SourceOptions) -> Any:
    from datasets import disable_progress_bars, load_dataset
    from huggingface_hub import HfApi, constants

    disable_progress_bars()
    try:
        if not constants.HF_HUB_OFFLINE:
            # The timeout is 10 seconds; the requests of `load_dataset` are retried many times.
            HfApi().dataset_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        # Offline there are only earlier downloads, which cannot be streamed.
        loaded = load_dataset(name, options.config, streaming=not constants.HF_HUB_OFFLINE)
    except Exception as error:
        raise DatasetError(
            f"{name} (--file) is not a folder here, and cannot be had from the hub: {_error_summary(error)}. "
            "Is the name right, --config given where it has several, `hf auth login` done where it is gated? Without "
            "network: download it elsewhere, `save_to_disk` it there, and give the folder; HF_HUB_OFFLINE=1 uses what "
            "was downloaded here before."
        ) from error
    return _part(loaded, options.part, name)


def _part(loaded: Any, part: str | None, name: str) -> Any:
    by_part = dict(loaded) if isinstance(loaded, dict) else {str(loaded.split or ""): loaded}
    if part is None and len(by_part) == 1:
        return next(iter(by_part.values()))
    if part in by_part:
        return by_part[part]
    parts_message = f"{name} has the parts {', '.join(by_part)}" if any(by_part) else f"{name} has no parts"
    if part is None:
        raise UsageError(f"{parts_message}. Say which: --part {next(iter(by_part))}.")
    raise UsageError(f"--part {part}: {parts_message}.{suggestion(part, by_part)}")


def _error_summary(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no more is known"]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}"
