"""Stores of any size, made by the project's own writers: episodes of many turns with tools, tokens and advantages."""

import json
import random
from pathlib import Path

import numpy as np

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
from aworld_train.store.events import TrainedRow
from aworld_train.store.loading import load
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import store_location
from tests.stored_runs import BEGAN, TOOLS, task_row, write_run_files

STEP_EPISODES, ATTEMPTS = 512, 8
PROMPT, SAMPLED, RESULT = 120, 60, 60  # tokens
WORDS = [f"word{number}" for number in range(3_000)]


def make_large_run(runs: Path, name: str, episodes: int, turns: int) -> Path:
    """A finished run of that many episodes, each of ``turns`` model calls with a tool's result between them."""
    folder = runs / name
    folder.mkdir(parents=True)
    write_run_files(folder, name, max(1, episodes // STEP_EPISODES))
    place = store_location(folder, make=True)
    assert place is not None
    database = Database(place)
    for begin in range(0, episodes, STEP_EPISODES):
        write_step(folder, begin, min(STEP_EPISODES, episodes - begin), turns)
        load(database, final=True)
    database.close()
    return folder


def write_step(folder: Path, first: int, episodes: int, turns: int) -> None:
    """The events of one step, as the processes of a run write them."""
    recorder = StoreRecorder(folder, parse_keep("all"), Redactor())
    rng, step = random.Random(first), first // STEP_EPISODES + 1
    texts = [" ".join(rng.choices(WORDS, k=SAMPLED * 2 // 3)) for _ in range(64)]
    tools = recorder.blob(json.dumps(TOOLS).encode())
    trained = []
    for number in range(first, first + episodes):
        index, attempt = divmod(number - first, ATTEMPTS)
        row = task_row(index, index + 2, step + 3)
        task, episode, key = recorder.task(row), f"{rng.getrandbits(64):016x}", f"uid{step}-{index}_{attempt}"
        recorder.begin(episode, task, step=step, phase="train", attempt=attempt, key=key)
        prompt = StoredNode(-1, (Message("user", row["prompt"][0]["content"]),), packed_tokens(range(PROMPT)))
        content = _content(rng, texts, recorder.blob(encoded(prompt)), tools, turns, step)
        reward = float(rng.random() < 0.6)
        figures = {
            "step": step,
            "index": index,
            "outcome": rng.choices(("answered", "timeout", "format"), (90, 6, 4))[0],
            "treatment": "trained",
            "reward": reward,
            "scores": {"acc": reward},
            "scorer": "number",
            "scoring": "scored",
            "turns": turns,
            "tool_calls": turns - 1,
            "tool_errors": sum(use.is_error for use in content.tool_calls),
            "rows": 1,
            "prompt_tokens": PROMPT,
            "response_tokens": turns * SAMPLED + (turns - 1) * RESULT,
            "sampled_tokens": turns * SAMPLED,
            "seconds": 20 * rng.random(),
            "weights": [step - 1, step - 1],
        }
        recorder.end(episode, figures_of(figures), content)
        trained.append(TrainedRow(f"{key}_0", reward - 0.6, turns * SAMPLED))
    recorder.trained(step, trained)
    recorder.close()


def _content(
    rng: random.Random, texts: list[str], prompt: str, tools: str, turns: int, step: int
) -> EpisodeContent:
    nodes, calls, uses = [StoredNode(-1, token_count=PROMPT, shared=prompt)], [], []
    numbers = np.random.default_rng(rng.getrandbits(32))

    def tokens(count: int) -> bytes:
        return packed_tokens(numbers.integers(100_000, size=count).tolist())

    for turn in range(turns):
        is_last, call_id = turn == turns - 1, f"call{turn:05d}"
        arguments = json.dumps({"a": turn, "b": rng.randrange(1_000)})
        use = () if is_last else (ToolCall("calculator", arguments, call_id),)
        message = Message("assistant", f"{rng.choice(texts)} é", use, reasoning=rng.choice(texts))
        logprobs = packed_floats(
            (-numbers.exponential(0.25, SAMPLED)).astype(np.float32).tolist()
        )  # as engines give
        versions = (step - 1, step - 1)
        calls.append(
            ModelCall(
                len(nodes), BEGAN + turn, 0.5, "stop", PROMPT + turn * (SAMPLED + RESULT), 1.0, tools=tools
            )
        )
        nodes.append(
            StoredNode(len(nodes) - 1, (message,), tokens(SAMPLED), SAMPLED, logprobs, versions=versions)
        )
        if not is_last:
            result, failed = f"{rng.choice(texts)} {rng.random()}", rng.random() < 0.1
            uses.append(
                ToolCallRecord(
                    "calculator",
                    arguments,
                    result,
                    failed,
                    BEGAN + turn,
                    0.1,
                    server="local",
                    call_id=call_id,
                )
            )
            shown = Message("tool", result, call_id=call_id, name="calculator")
            nodes.append(StoredNode(len(nodes) - 1, (shown,), tokens(RESULT), RESULT))
    sampled = tuple(call.node for call in calls)
    return EpisodeContent(
        (StoredAgent("agent", tuple(nodes), tuple(calls)),),
        tuple(uses),
        (StoredRow(0, tuple(range(len(nodes))), sampled, PROMPT),),
        ScoreResult(1.0, "6", steps=("found 6",), scorer="number"),
        rng.choice(texts),
    )
