"""The reports of an evaluation: one HTML file that needs no server, and files for other programs.

The HTML file has every task with its attempts, and as many conversations as some megabytes hold, packed by task.
"""

import base64
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from aworld_train import __version__
from aworld_train.atomic import write_text
from aworld_train.evaluation.metrics import Figures
from aworld_train.evaluation.report.attempts_table import NAME as TABLE
from aworld_train.evaluation.report.attempts_table import write_table
from aworld_train.evaluation.report.inspect_log import NAME as INSPECT_LOG
from aworld_train.evaluation.report.inspect_log import write_inspect_log
from aworld_train.evaluation.report.markdown import NAME as MARKDOWN
from aworld_train.evaluation.report.markdown import markdown_report
from aworld_train.evaluation.results import EvalTask, Evaluation, TaskAttempt
from aworld_train.store.reading import Store, StoredEpisode
from aworld_train.training.run_store import find_run_store
from aworld_train.view.episodes import episode_json
from aworld_train.view.folder import REPORT
from aworld_train.view.page_file import PageImages, page
from aworld_train.view.plain import shortened, to_json

MAX_CHARS = 10_000
MAX_PACKED = 24_000_000
"""The most characters that packed conversations take: those of some thousand attempts."""
_MAX_QUESTION = 1_000
_MAX_ANSWER = 200
_UNREADABLE = ("model_url",)  # what the page does not need; an address may be of an inner network


@dataclass(frozen=True)
class EvalReports:
    """What was written: ``inspect_log`` is None where no texts are kept, ``readable`` attempts are in the page."""

    html: Path
    markdown: Path
    table: Path
    inspect_log: Path | None
    attempts: int
    readable: int


def write_reports(evaluation: Evaluation, figures: Figures) -> EvalReports:
    folder = evaluation.run.path
    write_table(evaluation, folder / TABLE)
    readable = write_html(evaluation, figures, folder / REPORT)
    log = write_inspect_log(evaluation, folder / INSPECT_LOG)
    write_text(folder / MARKDOWN, markdown_report(evaluation, figures))  # at last: see `update_reports`
    return EvalReports(
        folder / REPORT,
        folder / MARKDOWN,
        folder / TABLE,
        folder / INSPECT_LOG if log else None,
        len(evaluation.attempts),
        readable,
    )


def update_reports(evaluation: Evaluation, figures: Figures) -> Path:
    """The page, written with the other reports unless these are of the same attempts and figures."""
    html, summary = evaluation.run.path / REPORT, evaluation.run.path / MARKDOWN
    ended = max((attempt.ended for attempt in evaluation.attempts), default=0.0)
    with suppress(OSError, ValueError):
        is_later = html.is_file() and summary.stat().st_mtime > ended
        if is_later and summary.read_text(encoding="utf-8") == markdown_report(evaluation, figures):
            return html
    return write_reports(evaluation, figures).html


def write_html(evaluation: Evaluation, figures: Figures, file: Path, *, max_packed: int = MAX_PACKED) -> int:
    """Write the page; returns how many attempts' conversations it has."""
    conversations = _Conversations(max_packed)
    store = find_run_store(evaluation.run)
    if store is not None:
        with store:
            conversations.add_all(store, evaluation)
    data = {
        "report": {
            "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "version": __version__,
            "episodes": len(conversations.kept),
            "of": len(evaluation.attempts),
        },
        "evaluation": {
            "name": evaluation.name,
            "started": evaluation.run.started,
            "settings": {
                name: value for name, value in evaluation.settings.items() if name not in _UNREADABLE
            },
        },
        "figures": figures.to_json(),
        "tasks": [_task(evaluation, task, conversations.kept) for task in evaluation.tasks.values()],
        "packed": conversations.packed,
        "images": conversations.images.addresses,
    }
    write_text(
        file, page(evaluation.name, to_json(data), entry="eval_report.js", styles=("view.css", "eval.css"))
    )
    return len(conversations.kept)


class _Conversations:
    def __init__(self, max_packed: int):
        self.packed: dict[str, str] = {}
        self.kept: set[str] = set()
        self.images = PageImages()
        self._left = max_packed

    def add_all(self, store: Store, evaluation: Evaluation) -> None:
        # The order of ids is that of digests, so what there is no room for is spread over the dataset.
        ids = [
            attempt.key.id
            for task in sorted(evaluation.tasks)
            for attempt in evaluation.attempts_by_task.get(task, ())
        ]
        for task, episodes in groupby(store.whole_episodes(ids), key=lambda episode: episode.head.task):
            self._add(store, task, episodes)
            if self._left <= 0:
                return

    def _add(self, store: Store, task: str, attempts: Iterable[StoredEpisode]) -> None:
        episodes = {}
        for episode in attempts:
            if episode.content is not None:
                episodes[episode.head.id] = episode_json(episode, max_chars=MAX_CHARS)
                self.images.add(store, episode.content)
        packed = base64.b64encode(zlib.compress(to_json(episodes).encode())).decode()
        self._left -= len(packed)
        if episodes and self._left >= 0:
            self.packed[task] = packed
            self.kept.update(episodes)


def _task(evaluation: Evaluation, task: EvalTask, kept: set[str]) -> dict[str, Any]:
    return {
        "id": task.id,
        "index": task.index,
        "name": task.name[:_MAX_ANSWER],
        "source": task.source,
        "level": task.level,
        "scorer": task.scorer,
        "tags": task.tags,
        "question": shortened(task.question, _MAX_QUESTION),
        "answer": task.correct_answer[:_MAX_ANSWER],
        "attempts": [
            _attempt(attempt, attempt.key.id in kept)
            for attempt in evaluation.attempts_by_task.get(task.id, ())
        ],
    }


def _attempt(attempt: TaskAttempt, kept: bool) -> dict[str, Any]:
    figures = attempt.figures
    return {
        "episode": attempt.key.id,
        "number": attempt.key.attempt,
        "score": attempt.score,
        "outcome": figures.outcome or "",
        "cause": figures.cause and figures.cause[:_MAX_ANSWER],
        "answer": figures.extracted and figures.extracted[:_MAX_ANSWER],
        "turns": figures.turns or 0,
        "tool_calls": figures.tool_calls or 0,
        "tool_errors": figures.tool_errors or 0,
        "tokens": figures.sampled_tokens or 0,
        "seconds": round(figures.seconds or 0.0, 3),
        "suspicions": figures.suspicions or [],
        "readable": kept,
    }
