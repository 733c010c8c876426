"""What is reported to the store is redacted, in every text of it, before it is written."""

from pathlib import Path
from typing import Any

from aworld_train.store.event_files import event_files, read_events
from aworld_train.store.events import EpisodeEnded, Event, TaskSeen
from aworld_train.store.keep import parse_keep
from aworld_train.store.place import EVENTS_FOLDER, STORE_FOLDER
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from tests.stored_runs import task_row

SECRET = "key-12345"


def reported(run: Path) -> list[Event]:
    """The events that a run's processes have written."""
    return [
        event
        for file in event_files(run / STORE_FOLDER / EVENTS_FOLDER)
        for frame, _ in read_events(file, 0, 1 << 20)
        for event in frame
    ]


def recorder(run: Path) -> StoreRecorder:
    return StoreRecorder(run, parse_keep("all"), Redactor([r"key-[0-9]+"]))


def test_no_secret_is_among_an_episodes_figures(tmp_path: Path) -> None:
    figures: dict[str, Any] = {
        "outcome": "answered",
        "reward": 1.0,
        "cause": f"the server refused {SECRET}",
        "look": {"query": f"Is it {SECRET}?", "extracted": SECRET},
        "branch_points": [{"sent": f"x {SECRET}", "position": 7}],
    }
    writer = recorder(tmp_path)
    writer.end("abc", figures, None)
    writer.close()
    [event] = reported(tmp_path)
    assert isinstance(event, EpisodeEnded)
    assert event.figures == {
        "outcome": "answered",
        "reward": 1.0,
        "cause": "the server refused [redacted]",
        "look": {"query": "Is it [redacted]?", "extracted": "[redacted]"},
        "branch_points": [{"sent": "x [redacted]", "position": 7}],
    }


def test_no_secret_is_in_a_task(tmp_path: Path) -> None:
    row = task_row(0, 2, 3, say=f"Use {SECRET}.")
    row["data_source"] = f"source of {SECRET}"
    row["reward_model"] = {"style": "rule", "ground_truth": f"6 or {SECRET}"}
    row["extra_info"] |= {"scorer": f"{SECRET}.py:score", "hints": [SECRET]}
    writer = recorder(tmp_path)
    writer.task(row)
    writer.close()
    [event] = reported(tmp_path)
    assert isinstance(event, TaskSeen)
    assert SECRET not in repr(event)
    assert (event.source, event.scorer) == ("source of [redacted]", "[redacted].py:score")
    assert (event.question, event.answer) == ("What is 2 times 3? Use [redacted].", "6 or [redacted]")
