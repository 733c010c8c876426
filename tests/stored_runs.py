"""Runs with a store, made without a model: episodes with all that the store can hold."""

import json
import random
import uuid
from collections.abc import Sequence
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
    StoredRow,
    encoded,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.database import Database
from aworld_train.store.event_files import event_files, read_events
from aworld_train.store.events import Event, TrainedRow
from aworld_train.store.loading import close_running, load
from aworld_train.store.reading import Store
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import EVENTS_FOLDER, STORE_FOLDER, store_location

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Computes a product.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        },
    }
]
BEGAN = 1_800_000_000.0


def make_stored_run(
    runs: Path,
    name: str = "one",
    *,
    steps: int = 3,
    tasks: int = 4,
    attempts: int = 4,
    say: str = "",
    seed: int = 0,
    url: str | None = None,
    keep: str = "all",
    patterns: Sequence[str] = (),
) -> Path:
    """A finished run whose tasks are products; ``say`` is added to what the model, the tool and the user write.

    Of each task, attempt 0 uses the tool and is right, 1 is right without it, 2 is wrong after a tool's error, and the
    others ran out of time in their second turn and are dropped.
    """
    folder = runs / name
    folder.mkdir(parents=True, exist_ok=True)
    write_run_files(folder, name, steps)
    recorder = StoreRecorder(folder, parse_keep(keep), Redactor(patterns))
    rng = random.Random(seed)
    for step in range(steps + 1):
        phase = "val" if step in (0,) else "train"
        trained: list[TrainedRow] = []
        for index in range(tasks):
            a, b = index + 2, step + 3
            row = task_row(index, a, b, say)
            task = recorder.task(row)
            for attempt in range(attempts):
                record_episode(recorder, rng, task, row, a, b, step, phase, index, attempt, say)
                if phase == "train" and attempt < 3:
                    key = f"uid{step}-{index}_{attempt}_0"
                    trained.append(TrainedRow(key, (0.5, 0.5, -1.0)[attempt], 10))
        if trained:
            rng.shuffle(trained)
            recorder.trained(step, trained)
    recorder.close()
    place = store_location(folder, url=url, make=True)
    assert place is not None
    database = Database(place)
    load(database, final=True)
    close_running(database)
    database.close()
    return folder


def write_run_files(folder: Path, name: str, steps: int) -> None:
    """What a run folder has beside its store."""
    (folder / "recipe.yaml").write_text(f"name: {name}\ntrainer:\n  steps: {steps}\n")
    rows: list[dict[str, Any]] = [{"step": 0, "val_accuracy": 0.5, "val_n": 4}]
    rows += [
        {
            "step": step,
            "reward": 0.25 + step / 10,
            "loss": 1 / step,
            "kl": 0.01 * step,
            "seconds": 2.0,
            "staleness": 0,
            **{"rows": 20, "padding_rows": 4, "updates": 2, "clipped_updates": 1},
            **{"groups": 4, "equal_groups": step - 1},
        }
        for step in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {
        "status": "completed",
        "steps_done": steps,
        "steps_planned": steps,
        "val": {
            "before": {"accuracy": 0.5, "n": 4, "errors": 0},
            "after": {"accuracy": 0.75, "n": 4, "errors": 0},
        },
        "seconds": 12.0,
        "reward": rows[-1].get("reward"),
        "rewards": [row["reward"] for row in rows[1:]],
        "alarms": [{"step": steps, "text": "the reward has fallen"}],
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    manifest = {"attempts": [{"started": "2026-01-02T03:04:05Z", "from_step": 0}], "model": {"name": "tiny"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def written_events(run: Path) -> list[Event]:
    """The events that the processes of a run have written and nobody has loaded."""
    return [
        event
        for file in event_files(run / STORE_FOLDER / EVENTS_FOLDER)
        for frame, _ in read_events(file, 0, 1 << 20)
        for event in frame
    ]


def task_row(index: int, a: int, b: int, say: str = "") -> dict[str, Any]:
    """A row of a dataset."""
    return {
        "data_source": "products",
        "agent_name": "mcp_agent",
        "prompt": [{"role": "user", "content": f"What is {a} times {b}? {say}".strip()}],
        "reward_model": {"style": "rule", "ground_truth": str(a * b)},
        "extra_info": {"index": index, "scorer": "number"},
    }


def record_episode(
    recorder: StoreRecorder,
    rng: random.Random,
    task: str,
    row: dict[str, Any],
    a: int,
    b: int,
    step: int,
    phase: str,
    index: int,
    attempt: int,
    say: str,
) -> str:
    """Report one episode from its begin to its end; returns its id."""
    episode = uuid.uuid4().hex[:16]
    key = f"uid{step}-{index}_{attempt}" if phase == "train" else ""
    recorder.begin(episode, task, step=step, phase=phase, attempt=attempt, key=key)
    timed_out, with_tool = attempt > 2, attempt in (0, 2)
    right = attempt < 2
    text = recorder.redactor.text

    def sampled(
        parent: int, content: str, reasoning: str = "", calls: tuple[ToolCall, ...] = ()
    ) -> StoredNode:
        tokens = [rng.randrange(1000) for _ in range(5)]
        return StoredNode(
            parent,
            (Message("assistant", text(content), calls, reasoning=text(reasoning)),),
            packed_tokens(tokens),
            len(tokens),
            packed_floats([-rng.random() for _ in tokens]),
            versions=(max(0, step - 1), max(0, step - 1)),
        )

    prompt = packed_tokens(range(100, 108))
    shared = StoredNode(-1, (Message("user", text(row["prompt"][0]["content"])),), prompt)
    tools = recorder.blob(json.dumps(TOOLS).encode())
    nodes = [StoredNode(-1, token_count=8, shared=recorder.blob(encoded(shared)))]
    calls = []
    uses = []
    if with_tool:
        arguments = json.dumps({"a": a, "b": b})
        call = ToolCall("calculator", arguments, "call00001")
        nodes.append(sampled(0, "", f"I had better compute it. {say}", (call,)))
        result = f"{a * b} {say}".strip() if right else f"Error: out of order {say}".strip()
        message = Message("tool", text(result), call_id="call00001", name="calculator")
        nodes.append(StoredNode(1, (message,), packed_tokens(range(200, 204)), 4))
        calls.append(ModelCall(1, BEGAN, 0.5, "tool_calls", 8, 1.0, tools=tools))
        uses.append(
            ToolCallRecord(
                "calculator",
                arguments,
                text(result),
                not right,
                BEGAN + 0.5,
                0.1,
                server="local",
                call_id="call00001",
            )
        )
    answer = f"The answer is {a * b if right else a + b}. {say}".strip()
    nodes.append(sampled(len(nodes) - 1, answer, f"Let me think. {say}"))
    calls.append(ModelCall(len(nodes) - 1, BEGAN + 0.7, 0.4, "stop", 8 + 9 * with_tool, 1.0, tools=tools))
    own = tuple(number for number, node in enumerate(nodes) if node.logprobs is not None)
    row_of = StoredRow(0, tuple(range(len(nodes))), own, 8)
    reward = None if timed_out else float(right)
    content = EpisodeContent(
        (StoredAgent("agent", tuple(nodes), tuple(calls)),),
        tuple(uses),
        (row_of,),
        None
        if timed_out
        else ScoreResult(
            reward,
            answer.split()[3].rstrip("."),
            parts={"format": 1.0},
            steps=("found a number",),
            scorer="number",
        ),
        text(answer),
    )
    figures: dict[str, Any] = {
        "step": step,
        "validate": phase == "val",
        "index": index,
        "outcome": "timeout" if timed_out else "answered",
        "treatment": "dropped" if timed_out else "trained",
        "cause": "not over after 5 seconds" if timed_out else None,
        "turns": len(calls),
        "tool_calls": len(uses),
        "tool_errors": sum(use.is_error for use in uses),
        "rows": 1,
        "prompt_tokens": 8,
        "response_tokens": 14 if with_tool else 5,
        "sampled_tokens": 10 if with_tool else 5,
        "seconds": 1.25,
        "generate_seconds": 0.9,
        "tool_seconds": 0.1 * with_tool,
        "weights": [max(0, step - 1), max(0, step - 1)],
    }
    if not timed_out:
        figures |= {
            "reward": reward,
            "scorer": "number",
            "scoring": "scored",
            "parts": {"format": 1.0},
            "scores": {"acc": reward},
        }
        if attempt == 1:
            figures["suspicions"] = ["answer_in_query"]
    typed = figures_of(figures)
    recorder.end(episode, typed, content if recorder.keep.content_of(episode, typed) else None)
    return episode


def open_store(run_folder: Path) -> Store | None:
    place = store_location(run_folder)
    return Store(place) if place is not None and place.file.exists() else None


def row_tokens(content: EpisodeContent, row: int) -> list[int]:
    """The token ids of a row, prompt first."""
    nodes = content.agents[content.rows[row].agent].nodes
    return [token for span in content.spans(row) for token in nodes[span.node].token_ids]


def row_mask(content: EpisodeContent, row: int) -> list[int]:
    """The mask of a row over all its tokens, as it is without the treatment of the episode."""
    return [int(span.own) for span in content.spans(row) for _ in range(span.end - span.begin)]
