"""Reports to the store of a run, from each of its processes: tasks, episodes, and the rows that were trained on."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from aworld_train.episode.figures import EpisodeFigures, figures_of
from aworld_train.store.content import EpisodeContent
from aworld_train.store.event_files import EventWriter
from aworld_train.store.events import (
    Blob,
    EpisodeBegun,
    EpisodeEnded,
    GroupsDropped,
    GroupsReplayed,
    RowsTrained,
    TaskSeen,
    TrainedRow,
)
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import Keep
from aworld_train.store.store_location import EVENTS_FOLDER, STORE_FOLDER

_MAX_REPORTED = 100_000
_ID_LENGTH = 16


class StoreRecorder:
    """Reports episodes to the store of a run; one object serves a process."""

    def __init__(self, run_folder: Path, keep: Keep, redactor: Redactor):
        self.keep = keep
        self.redactor = redactor
        self._writer = EventWriter(run_folder / STORE_FOLDER / EVENTS_FOLDER)
        # Tasks and blobs that this process has written. To write one again is harmless.
        self._reported: set[str] = set()

    def task(self, row: Mapping[str, Any]) -> str:
        """Report a task, a row of a dataset; returns its id."""
        messages = row.get("raw_prompt") if row.get("raw_prompt") is not None else row.get("prompt")
        stored_row = self.redactor.tree(
            _plain({key: value for key, value in row.items() if key in _ROW_KEYS} | {"prompt": messages})
        )
        text = json.dumps(stored_row, ensure_ascii=False, sort_keys=True)
        task = hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]
        if self._is_new(f"task {task}"):
            info = stored_row.get("extra_info") or {}
            question = "\n".join(
                str(message.get("content") or "")
                for message in stored_row["prompt"]
                if message.get("role") == "user"
            )
            self._writer.add(
                TaskSeen(
                    task,
                    int(info.get("index") or 0),
                    str(stored_row.get("data_source") or ""),
                    str(info.get("scorer") or ""),
                    question,
                    str((stored_row.get("reward_model") or {}).get("ground_truth") or ""),
                    text,
                )
            )
        return task

    def begin(self, episode: str, task: str, *, step: int, phase: str, attempt: int, key: str) -> None:
        self._writer.add(EpisodeBegun(episode, task, step, phase, attempt, key, time.time()))

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self._is_new(digest):
            self._writer.add(Blob(digest, data))
        return digest

    def end(self, episode: str, figures: EpisodeFigures, content: EpisodeContent | None) -> None:
        redacted = figures_of(self.redactor.tree(to_builtins(figures)))
        self._writer.add(EpisodeEnded(episode, time.time(), redacted, content))

    def trained(self, step: int, rows: Sequence[TrainedRow], before: int = 0) -> None:
        self._writer.add(RowsTrained(step, tuple(rows), before))

    def dropped(self, keys: Sequence[str], reason: str) -> None:
        """Report groups or episodes, by their keys, that are dropped; the first reason counts."""
        self._writer.add(GroupsDropped(tuple(keys), reason))

    def replayed(self, keys: Sequence[str]) -> None:
        """Report groups, by their keys, that are played again from now on."""
        self._writer.add(GroupsReplayed(tuple(keys), time.time()))

    async def written(self) -> None:
        await self._writer.written()

    def close(self) -> None:
        self._writer.close()

    def _is_new(self, name: str) -> bool:
        if name in self._reported:
            return False
        if len(self._reported) >= _MAX_REPORTED:
            self._reported.clear()
        self._reported.add(name)
        return True


_ROW_KEYS = ("data_source", "agent_name", "ability", "reward_model", "extra_info")


def _plain(value: Any) -> Any:
    """Values of a dataset's row as JSON has them: arrays as lists, numbers as Python's."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
