"""Reports to the run's store which rows VeRL has trained on, which groups it has not, and which are played again.

VeRL's controller holds no tokens: rows are in its queue under ``{uid}_{session}_{index}``. After each update the
advantages and masks of the batch are read from there, which are what the update has used.
"""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.episodes.stored import recorder_of
from aworld_train.store.content import packed_floats
from aworld_train.store.events import TrainedRow
from aworld_train.store.recording import StoreRecorder


def report_trained(step: int, batch: Any, before: int) -> None:
    """Report the rows of an update, and how many others of its step were ``before`` them."""
    if (recorder := _recorder()) is not None:
        recorder.trained(step, trained_rows(batch), before)


def report_dropped(keys: Collection[str], reason: str) -> None:
    if keys and (recorder := _recorder()) is not None:
        recorder.dropped(sorted(keys), reason)


def report_replayed(keys: Collection[str]) -> None:
    if keys and (recorder := _recorder()) is not None:
        recorder.replayed(sorted(keys))


def wait_until_written() -> None:
    """Wait until what was reported is in files: what is lost by a kill must not be in a checkpoint."""
    if (recorder := _recorder()) is not None:
        asyncio.run(recorder.written())


def trained_rows(batch: Any) -> list[TrainedRow]:
    """The rows of a batch in its order, without those that only fill it up."""
    import transfer_queue as queue

    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    data = queue.kv_batch_get(
        keys=keys, partition_id=batch.partition_id, select_fields=["advantages", "response_mask"]
    )
    pairs = zip(data["advantages"].unbind(), data["response_mask"].unbind(), strict=True)
    return [trained_row(key, *pair) for key, pair in zip(keys, pairs, strict=True)]


def trained_row(key: str, advantages: torch.Tensor, mask: torch.Tensor) -> TrainedRow:
    """One row; both tensors have one number for each token of its response."""
    under = advantages[mask.bool()]
    if not len(under):
        return TrainedRow(key, None, 0)
    same = bool((under == under[0]).all())
    mean = float(under[0] if same else under.double().mean())
    return TrainedRow(key, mean, len(under), b"" if same else packed_floats(advantages.tolist()))


def _recorder() -> StoreRecorder | None:
    folder = os.environ.get(RUN_DIR_VARIABLE)
    return recorder_of(Path(folder)) if folder else None
