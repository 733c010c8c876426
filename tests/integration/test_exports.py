"""Exports are read by the programs that they are for: Inspect AI and its viewer, Harbor, `datasets`."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.store.content import EpisodeContent, ModelCall, StoredAgent
from aworld_train.store.export.atif import AtifWriter
from aworld_train.store.export.exporting import ExportCounts, export
from aworld_train.store.export.formats import ExportFormat
from aworld_train.store.export.messages import MessagesWriter
from aworld_train.store.export.writer import ExportedRun
from aworld_train.store.reading import StoredEpisode
from tests.aworld_environment import harbor_python, inspect_python, run_with
from tests.browser import open_page
from tests.stored_episodes import (
    branching_episode,
    context_node,
    exported_run,
    sampled_node,
    stored_episode,
)
from tests.stored_runs import make_stored_run, open_store

# The first run installs what reads the exports.
pytestmark = pytest.mark.timeout(900)
HOSTILE = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'> \u202eabc \x1b[31m"

READ_LOG = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
header = read_eval_log(sys.argv[1], header_only=True)
print(json.dumps({
    "status": log.status,
    "mean": header.results.scores[0].metrics["mean"].value,
    "model": header.eval.model,
    "trusted": header.eval.viewer.trust_content,
    "summaries": len(read_eval_log_sample_summaries(sys.argv[1])),
    "samples": [{
        "key": [sample.id, sample.epoch],
        "target": sample.target,
        "error": sample.error and sample.error.message,
        "limit": sample.limit and sample.limit.type,
        "score": {name: score.value for name, score in (sample.scores or {}).items()},
        "step": sample.metadata["step"],
        "messages": [message.role for message in sample.messages],
        "calls": [{
            "input": [[m.role, m.text, [c.arguments for c in getattr(m, "tool_calls", None) or []]]
                      for m in event.input],
            "output": event.output.completion,
            "stop": event.output.stop_reason,
            "tools": [tool.name for tool in event.tools],
            "tokens": event.output.usage.output_tokens,
        } for event in sample.events if event.event == "model"],
        "tools": [[event.function, event.arguments, event.result, bool(event.error)]
                  for event in sample.events if event.event == "tool"],
    } for sample in log.samples],
}))
"""
READ_TRAJECTORIES = """
import json, sys
from harbor.models.trajectories import Trajectory
found = []
for line in open(sys.argv[1], encoding="utf-8"):
    trajectory = Trajectory.model_validate_json(line)
    written = trajectory.to_json_dict()
    found.append([trajectory.session_id, len(trajectory.steps),
        [len(step.metrics.completion_token_ids) for step in trajectory.steps if step.metrics],
        [len(step.metrics.logprobs) for step in trajectory.steps if step.metrics]])
print(json.dumps(found))
"""


def write(folder: Path, form: ExportFormat, file: Path, **options: Any) -> ExportCounts:
    """Export a run."""
    store = open_store(folder)
    assert store is not None
    with store:
        run = ExportedRun(
            folder.name, store.location.run, "models/tiny", store.blob, "1.2.3", {"name": "one"}
        )
        return export(store, run, form, file, **options)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a run of three steps and four tasks."""
    folder = tmp_path_factory.mktemp("inspect")
    run = make_stored_run(folder / "runs", "hostile", say=HOSTILE)
    (folder / "logs").mkdir()
    file = folder / "logs/hostile.eval"
    assert write(run, ExportFormat.inspect, file).episodes == 64
    return file


def test_inspect_reads_every_call_with_its_messages(log: Path) -> None:
    read = json.loads(run_with(inspect_python(), "-c", READ_LOG, str(log)).stdout)
    assert (read["status"], read["model"], read["summaries"], read["trusted"]) == (
        "success",
        "models/tiny",
        64,
        False,
    )
    assert read["mean"] == pytest.approx(2 / 3)
    samples = read["samples"]
    assert len({tuple(sample["key"]) for sample in samples}) == 64
    with_tool = [sample for sample in samples if len(sample["calls"]) == 2]
    assert len(with_tool) == 32
    for sample in with_tool:
        first, second = sample["calls"]
        assert [author for author, _, _ in first["input"]] == ["user"]
        assert [author for author, _, _ in second["input"]] == ["user", "assistant", "tool"]
        (arguments,) = second["input"][1][2]
        assert (first["stop"], second["stop"]) == ("tool_calls", "stop")
        assert first["tools"] == ["calculator"] and first["tokens"] == 5
        ((name, sent, result, failed),) = sample["tools"]
        assert (name, sent) == ("calculator", arguments)
        assert result == second["input"][2][1] and failed == ("Error" in result)
        assert HOSTILE in second["output"]
        assert sample["messages"] == ["user", "assistant", "tool", "assistant"]
    assert {str(sample["score"]) for sample in samples} == {"{'number': 1.0}", "{'number': 0.0}", "{}"}
    assert sum(sample["limit"] == "time" for sample in samples) == 16
    assert {sample["step"] for sample in samples} == {0, 1, 2, 3}


@contextmanager
def inspect_view(folder: Path) -> Iterator[str]:
    """The address of the viewer of the logs in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(inspect_python(), "-m", "inspect_ai", "view", "start", "--display", "none"),
            *("--log-dir", folder, "--port", str(port)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("INSPECT_")},
    )
    try:
        url = f"http://127.0.0.1:{port}/"
        deadline = time.monotonic() + 120
        while True:
            try:
                if httpx.get(url, timeout=5, trust_env=False).is_success:
                    break
            except httpx.HTTPError:
                pass
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def test_inspect_view_shows_the_log_and_nothing_in_it_runs(log: Path) -> None:
    with inspect_view(log.parent) as url, open_page() as page:
        page.set_default_timeout(60_000)
        page.goto(url)
        page.get_by_text("hostile", exact=True).first.click()
        page.get_by_text("What is 2 times 3?").first.click()
        page.get_by_text("I had better compute it.").first.wait_for()
        text = page.inner_text("body")
        assert "TOOL: CALCULATOR" in text.upper()
        assert "<img src=x" in text
        assert page.evaluate("window.hurt") is None
        if artefacts := os.environ.get("AWORLD_TRAIN_TEST_ARTEFACTS"):
            page.screenshot(path=Path(artefacts) / "inspect-view.png")


def test_harbor_takes_every_trajectory(tmp_path: Path) -> None:
    counts = write(
        make_stored_run(tmp_path / "runs", say=HOSTILE), ExportFormat.atif, tmp_path / "trajectories.jsonl"
    )
    found = json.loads(
        run_with(harbor_python(), "-c", READ_TRAJECTORIES, str(tmp_path / "trajectories.jsonl")).stdout
    )
    assert len(found) == counts.entries == 64
    assert {tuple(tokens) for _, _, tokens, _ in found} == {(5,), (5, 5)}
    assert all(tokens == logprobs for _, _, tokens, logprobs in found)
    branches = AtifWriter(tmp_path / "branches.jsonl", exported_run())
    assert branches.add(branching_episode()) == 2
    branches.finish()
    found = json.loads(
        run_with(harbor_python(), "-c", READ_TRAJECTORIES, str(tmp_path / "branches.jsonl")).stdout
    )
    assert [(steps, tokens) for _, steps, tokens, _ in found] == [(4, [2, 3]), (4, [2, 1])]


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    """The schema of a tool."""
    described = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "parameters": described}}


def conversation(
    arguments: str | None, *tools: dict[str, Any], images: tuple[Image, ...] = ()
) -> StoredEpisode:
    """An episode whose first turn calls a tool with these arguments."""
    called = () if arguments is None else (ToolCall("f", arguments, "c"),)
    nodes = (
        context_node(-1, [1], Message("user", "Go", images=images)),
        sampled_node(0, "12", [2], *called),
        context_node(1, [3], Message("tool", '{"x": 1}', call_id="c")),
        sampled_node(2, "34", [4]),
    )
    calls = tuple(ModelCall(node, 1.0, 1.0, "stop", 1, 1.0, tools="all") for node in (1, 3))
    return stored_episode(EpisodeContent((StoredAgent("a", nodes, calls),)), tools={"all": list(tools)})


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1, 0), (1, 1), (3, 1), (6, 0)])
def test_datasets_loads_messages_as_they_were_written(order: tuple[int, ...], tmp_path: Path) -> None:
    """Tools with other parameters, and arguments that are no object, stay what they are beside others."""
    datasets = pytest.importorskip("datasets")
    text, number = {"type": "string"}, {"type": "integer", "enum": [1, 2]}
    episodes = [
        conversation(None),
        conversation('{"q": "a"}', tool("f", q=text), tool("g", n=number)),
        conversation(
            '{"n": 3, "deep": {"z": [1, "a", null]}}', tool("f", z={"type": "array", "items": text})
        ),
        conversation("no json", tool("f")),
        conversation("[1]", tool("f", a={"type": ["string", "null"]})),
        conversation("{}"),
        conversation('{"q": 1.5}', tool("f"), images=(Image(0, "picture"),)),
    ]
    file = tmp_path / "messages.jsonl"
    writer = MessagesWriter(file, exported_run({"picture": b"\x89PNG"}.get))
    for number_of_episode in order:
        writer.add(episodes[number_of_episode])
    writer.finish()
    written = [json.loads(line) for line in file.read_text().splitlines()]
    loaded = datasets.load_dataset(
        "json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [row["messages"] for row in loaded] == [line["messages"] for line in written]
    assert [row["tools"] for row in loaded] == [line["tools"] for line in written]
