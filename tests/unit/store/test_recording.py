"""What is reported to the store is redacted, in every text of it, before it is written."""

from pathlib import Path
from typing import Any

from aworld_train.episode.figures import figures_of
from aworld_train.store.events import Blob, EpisodeEnded, TaskSeen
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from tests.stored_runs import task_row, written_events

SECRET = "key-12345"


def recorder(run: Path) -> StoreRecorder:
    return StoreRecorder(run, parse_keep("all"), Redactor([r"key-[0-9]+"]))


def test_no_secret_is_among_an_episodes_figures(tmp_path: Path) -> None:
    figures: dict[str, Any] = {
        "outcome": "answered",
        "reward": 1.0,
        "cause": f"the server refused {SECRET}",
        "look": {"query": f"Is it {SECRET}?", "extracted": SECRET},
        "branch_points": [{"cause": "edited", "sent": f"x {SECRET}", "position": 7}],
    }
    writer = recorder(tmp_path)
    writer.end("abc", figures_of(figures), None)
    writer.close()
    [event] = written_events(tmp_path)
    assert isinstance(event, EpisodeEnded)
    assert event.figures.line() == {
        **{"step": -1, "validate": False, "index": -1},
        "outcome": "answered",
        "reward": 1.0,
        "cause": "the server refused [redacted]",
        "look": {"query": "Is it [redacted]?", "extracted": "[redacted]"},
        "branch_points": [
            {
                "agent": "",
                "cause": "edited",
                "message": 0,
                "role": "",
                "position": 7,
                "recorded": "",
                "sent": "x [redacted]",
            }
        ],
    }


def test_no_secret_is_in_a_task(tmp_path: Path) -> None:
    row = task_row(0, 2, 3, say=f"Use {SECRET}.")
    row["data_source"] = f"source of {SECRET}"
    row["reward_model"] = {"style": "rule", "ground_truth": f"6 or {SECRET}"}
    row["extra_info"] |= {"scorer": f"{SECRET}.py:score", "hints": [SECRET]}
    writer = recorder(tmp_path)
    writer.task(row)
    writer.close()
    [event] = written_events(tmp_path)
    assert isinstance(event, TaskSeen)
    assert SECRET not in repr(event)
    assert (event.source, event.scorer) == ("source of [redacted]", "[redacted].py:score")
    assert (event.question, event.answer) == ("What is 2 times 3? Use [redacted].", "6 or [redacted]")


def test_what_episodes_have_in_common_is_reported_once(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    tasks = [writer.task(task_row(index, 2, 3)) for index in (0, 0, 1)]
    digests = [writer.blob(data) for data in (b"tools", b"tools", b"others")]
    writer.close()
    assert (tasks[0] == tasks[1], tasks[0] == tasks[2]) == (True, False)
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
    events = written_events(tmp_path)
    assert [event.id for event in events if isinstance(event, TaskSeen)] == [tasks[0], tasks[2]]
    assert [event.data for event in events if isinstance(event, Blob)] == [b"tools", b"others"]
