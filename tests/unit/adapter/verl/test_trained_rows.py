"""The store learns which rows an update has used, with which advantages, and nothing of one that failed."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transfer_queue import KVBatchMeta

from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl import trained_rows
from aworld_train.adapter.verl.trained_rows import (
    report_dropped,
    report_trained,
    trained_row,
    wait_until_written,
)
from aworld_train.store.content import packed_floats
from aworld_train.store.events import Event, GroupsDropped, RowsTrained, TrainedRow
from tests.agent_loops import settings_file
from tests.stored_runs import written_events

BATCH = KVBatchMeta(
    keys=["b_0_0", "filler", "a_1_0"],
    tags=[{}, {"is_padding": True}, {"is_padding": False}],
    partition_id="train",
)
ADVANTAGES = [[0.5, 0.5], [0.25, 0.0, 0.75]]
MASKS = [[1, 1], [1, 0, 1]]
ROWS = (TrainedRow("b_0_0", 0.5, 2), TrainedRow("a_1_0", 0.5, 2, packed_floats(ADVANTAGES[1])))


@pytest.fixture
def events(run_dir: Path) -> Callable[[], list[Event]]:
    """What this process has reported to the store of a run, which ends with it."""
    settings_file().rename(run_dir / EPISODES_FILE)

    def events() -> list[Event]:
        recorder = trained_rows._recorder()
        assert recorder is not None
        recorder.close()
        return written_events(run_dir)

    return events


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """The columns of VeRL's queue, which does not run here."""
    columns: dict[str, list[Any]] = {"advantages": [*ADVANTAGES], "response_mask": [*MASKS]}

    def kv_batch_get(*, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        assert (keys, partition_id) == (["b_0_0", "a_1_0"], "train")
        return {
            name: torch.nested.nested_tensor(
                [torch.tensor(row) for row in columns[name]], layout=torch.jagged
            )
            for name in select_fields
        }

    monkeypatch.setattr("transfer_queue.kv_batch_get", kv_batch_get)
    return columns


def test_an_update_is_reported_with_its_rows_in_their_order_and_none_that_fills_it_up(
    events: Callable[[], list[Event]],
) -> None:
    report_trained(7, BATCH, 0)
    assert events() == [RowsTrained(7, ROWS)]


def test_a_checkpoint_waits_for_what_was_reported(events: Callable[[], list[Event]], run_dir: Path) -> None:
    report_trained(7, BATCH, 0)
    wait_until_written()
    assert written_events(run_dir) == [RowsTrained(7, ROWS)] == events()


@pytest.mark.parametrize("part", ["tags", "mask", "rows"])
def test_a_batch_whose_parts_do_not_match_is_an_error(queue: dict[str, list[Any]], part: str) -> None:
    tags = list(BATCH.tags)
    if part == "tags":
        tags.append({})
    elif part == "mask":
        queue["response_mask"].append([1])
    else:
        queue |= {name: column[:1] for name, column in queue.items()}
    with pytest.raises(ValueError, match=r"zip\(\)"):
        trained_rows.trained_rows(SimpleNamespace(keys=BATCH.keys, tags=tags, partition_id="train"))


def test_groups_that_are_dropped_are_reported_with_the_reason(events: Callable[[], list[Event]]) -> None:
    report_dropped({"b", "a"}, "too few")
    report_dropped(set(), "none")
    assert events() == [GroupsDropped(("a", "b"), "too few")]


@pytest.mark.parametrize("folder", ["", None])
def test_outside_a_run_nothing_is_reported(folder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    if folder is not None:
        monkeypatch.setenv(RUN_DIR_VARIABLE, folder)
    report_trained(7, BATCH, 0)
    report_dropped({"a"}, "too few")
    assert trained_rows._recorder() is None


@pytest.mark.parametrize(("mask", "advantage"), [([0, 0], None), ([0, 1], 1.0)])
def test_only_tokens_under_the_mask_count(mask: list[int], advantage: float | None) -> None:
    row = trained_row("a", torch.tensor([0.5, 1.0]), torch.tensor(mask))
    assert row == TrainedRow("a", advantage, sum(mask))
