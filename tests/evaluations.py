"""Folders of evaluations, made without a model: what an evaluation leaves, with episodes of several kinds."""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aworld_train.episode.figures import figures_of
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.store.content import (
    EpisodeContent,
    ModelCall,
    StoredAgent,
    StoredNode,
    encoded,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.database import Database
from aworld_train.store.loading import close_running, load
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import store_location

BEGAN = 1_800_000_000.0
Score = Callable[[int, int], float | None]
"""The score of a task's attempt by the task's index and the attempt's number; None for an error."""


def by_difficulty(index: int, attempt: int) -> float | None:
    """Tasks of all difficulties, the same at each call; one attempt in forty is an error."""
    rng = random.Random(f"{index} {attempt}")
    if rng.random() < 0.025:
        return None
    return float(rng.random() < 0.15 + 0.8 * ((index * 37) % 100) / 100)


def make_evaluation(
    runs: Path,
    name: str = "eval-one",
    *,
    tasks: int = 6,
    attempts: int = 2,
    score: Score = by_difficulty,
    extra_text: str = "",
    outside: bool = True,
    paragraphs: int = 1,
    keep: str = "all",
    leave_out: Callable[[int, int], bool] = lambda index, attempt: False,
    confidence: Callable[[int, int], float] | None = None,
    **settings: Any,
) -> Path:
    """An evaluation.

    Args:
        runs: Where its folder is made.
        name: The folder's name.
        tasks: How many; they are products of two numbers, of three levels and two sources.
        attempts: k.
        score: The scores.
        extra_text: Added to whatever user, model and tool write.
        outside: Whether the model was behind an endpoint, which gives no token ids.
        paragraphs: How long a thought is, in some 90 characters.
        keep: Of which episodes the content is kept.
        leave_out: Which attempts were not made.
        confidence: The confidence that the model states; None for none.
        **settings: Changes of the settings.
    """
    folder = runs / name
    folder.mkdir(parents=True)
    made = {
        "model": "solver-7b",
        "model_url": "http://127.0.0.1:8000/v1",
        "dataset": ["data/products.jsonl"],
        "tasks": tasks,
        "attempts": attempts,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": -1,
        "seed": 1,
        "concurrency": 8,
        "agent": "recipe",
        "prices": {"input": 0.5, "output": 1.5},
    } | settings
    manifest = {
        "eval": made,
        "attempts": [{"started": "2026-11-02T03:04:05Z"}],
        "model": {"name": made["model"]},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "recipe.yaml").write_text(json.dumps({"name": name}))
    (folder / "summary.json").write_text(json.dumps({"status": "completed", "seconds": 321.5}))
    recorder = StoreRecorder(folder, parse_keep(keep), Redactor(()))
    for index in range(tasks):
        row = task_row(index, extra_text)
        task = recorder.task(row)
        for attempt in range(attempts):
            if not leave_out(index, attempt):
                stated = confidence(index, attempt) if confidence else None
                _Episode(
                    recorder, made, index, attempt, score(index, attempt), extra_text, paragraphs, stated
                ).record(row, task, outside)
    recorder.close()
    place = store_location(folder, make=True)
    assert place is not None
    database = Database(place)
    load(database, final=True)
    close_running(database)
    database.close()
    return folder


def task_row(index: int, extra_text: str = "") -> dict[str, Any]:
    """A row of the dataset; its id depends on nothing but the index and the extra text."""
    first, second = index + 12, 3 * index + 7
    question = f"A crate holds {first} boxes, each of {second} parts. How many parts are in it? {extra_text}"
    return {
        "data_source": ("crates", "warehouse")[index % 2],
        "ability": ("arithmetic", "word problem", "estimation")[index % 3],
        "prompt": [{"role": "user", "content": question.strip()}],
        "reward_model": {"style": "rule", "ground_truth": str(first * second)},
        "extra_info": {
            "index": index,
            "id": f"crate-{index:04}",
            "level": str(1 + index % 3),
            "scorer": "number",
        },
    }


class _Episode:
    """One attempt: it computes with a tool if its number is even, and then answers."""

    def __init__(
        self,
        recorder: StoreRecorder,
        settings: dict[str, Any],
        index: int,
        attempt: int,
        score: float | None,
        extra_text: str,
        paragraphs: int,
        confidence: float | None,
    ):
        self._recorder, self._settings = recorder, settings
        self._index, self._attempt, self._score = index, attempt, score
        self._text, self._paragraphs, self._confidence = extra_text, paragraphs, confidence
        self._random = random.Random(f"episode {index} {attempt}")
        self._nodes: list[StoredNode] = []
        self._calls: list[ModelCall] = []
        self._uses: list[ToolCallRecord] = []

    def record(self, row: dict[str, Any], task: str, outside: bool) -> None:
        key = f"{self._recorder} {self._index} {self._attempt}"
        episode = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._recorder.begin(episode, task, step=0, phase="eval", attempt=self._attempt, key="")
        right = int(row["reward_model"]["ground_truth"])
        answer = right if self._score else right + 10 * self._random.choice([1, 1, 2, -3])
        shared = StoredNode(-1, (Message("user", row["prompt"][0]["content"]),), b"")
        self._nodes.append(StoredNode(-1, token_count=40, shared=self._recorder.blob(encoded(shared))))
        uses_tool = self._attempt % 2 == 0
        if uses_tool:
            self._use_tool(right, outside)
        if self._score is not None:
            self._sample(f"The crate holds **{answer}** parts. {self._text}", (), outside)
        figures, content = figures_of(self._figures(str(answer))), self._content(str(answer))
        kept = self._recorder.keep.content_of(episode, figures)
        self._recorder.end(episode, figures, content if kept else None)

    def _use_tool(self, right: int, outside: bool) -> None:
        arguments = json.dumps({"expression": f"{self._index + 12} * {3 * self._index + 7}"})
        self._sample("", (ToolCall("calculator", arguments, "call_1"),), outside)
        failed = self._score is None or self._random.random() < 0.1
        result = f"{'Error: the calculator is out of order' if failed else right} {self._text}".strip()
        self._uses.append(
            ToolCallRecord(
                "calculator", arguments, result, failed, BEGAN + 2, 0.2, server="local", call_id="call_1"
            )
        )
        message = Message("tool", result, call_id="call_1", name="calculator")
        self._nodes.append(StoredNode(len(self._nodes) - 1, (message,), token_count=9))

    def _sample(self, content: str, calls: Sequence[ToolCall], outside: bool) -> None:
        thought = "I multiply the boxes of a crate by the parts of a box, and check the units of the result. "
        reasoning = f"{thought * self._paragraphs}{self._text}".strip()
        count = 20 * self._paragraphs + self._random.randrange(30)
        ids = [] if outside else [self._random.randrange(1000) for _ in range(count)]
        self._calls.append(
            ModelCall(
                len(self._nodes),
                BEGAN + len(self._nodes),
                self._random.lognormvariate(0.5, 0.6),
                "tool_calls" if calls else "stop",
                40 + 30 * len(self._calls),
                self._settings["temperature"],
                self._settings["top_p"],
            )
        )
        self._nodes.append(
            StoredNode(
                len(self._nodes) - 1,
                (Message("assistant", content, tuple(calls), reasoning=reasoning),),
                packed_tokens(ids) if ids else b"",
                count,
                packed_floats([-0.1] * count) if ids else b"",
            )
        )

    def _parts(self) -> dict[str, float]:
        return {"format": 1.0} | ({} if self._confidence is None else {"confidence": self._confidence})

    def _content(self, answer: str) -> EpisodeContent:
        score = None
        if self._score is not None:
            steps = (f"found the number {answer} {self._text}".strip(), "compared it with the right answer")
            score = ScoreResult(self._score, answer, parts=self._parts(), steps=steps, scorer="number")
        text = "" if score is None else f"The crate holds {answer} parts. {self._text}".strip()
        agent = StoredAgent("agent", tuple(self._nodes), tuple(self._calls))
        return EpisodeContent((agent,), tuple(self._uses), (), score, text)

    def _figures(self, answer: str) -> dict[str, Any]:
        given = sum(call.prompt_tokens for call in self._calls)
        sampled = sum(node.token_count for node in self._nodes if node.sampled)
        model = sum(call.seconds for call in self._calls)
        tool = sum(use.seconds for use in self._uses)
        figures: dict[str, Any] = {
            "step": 0,
            "index": self._index,
            "attempt": self._attempt,
            "seed": 1000 * self._index + self._attempt,
            "outcome": "answered" if self._score is not None else "provider",
            "treatment": "trained" if self._score is not None else "dropped",
            "cause": None if self._score is not None else "the endpoint answered 500 five times",
            "turns": len(self._calls),
            "tool_calls": len(self._uses),
            "tool_errors": sum(use.is_error for use in self._uses),
            "prompt_tokens": 40,
            "response_tokens": sampled,
            "given_tokens": given,
            "sampled_tokens": sampled,
            "seconds": model + tool + 0.05,
            "generate_seconds": model,
            "tool_seconds": tool,
        }
        prices = self._settings["prices"]
        if prices:
            figures["cost"] = (given * prices["input"] + sampled * prices["output"]) / 1e6
        if self._random.random() < 0.05:
            figures["faults"] = {"429": 1 + self._random.randrange(3)}
        if self._score is not None:
            figures |= {
                "reward": self._score,
                "scorer": "number",
                "scoring": "scored",
                "extracted": answer,
                "parts": self._parts(),
                "scores": {"acc": self._score},
            }
            if self._index % 50 == 3 and self._attempt == 0:
                figures["suspicions"] = ["answer_in_query"]
        return figures
