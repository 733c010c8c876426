"""What each format has of an episode with branches."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyarrow import parquet as pq

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.store.content import EpisodeContent, ModelCall, StoredAgent
from aworld_train.store.export.atif import AtifWriter
from aworld_train.store.export.inspect_log import InspectWriter
from aworld_train.store.export.messages import MessagesWriter
from aworld_train.store.export.parquet import SCHEMA, ParquetWriter
from aworld_train.store.export.writer import json_text
from aworld_train.store.reading import StoredEpisode
from tests.stored_episodes import (
    branching_content,
    branching_episode,
    context_node,
    exported_run,
    sampled_node,
    stored_episode,
)
from tests.stored_runs import TOOLS

PNG = b"\x89PNG\r\n\x1a\n"


def lines_of(writer: type[Any], tmp_path: Path, episode: StoredEpisode) -> list[dict[str, Any]]:
    file = tmp_path / "out"
    made = writer(file, exported_run({"picture": PNG}.get))
    count = made.add(episode)
    made.finish()
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert len(lines) == count
    return lines


def episode_with_picture() -> StoredEpisode:
    shown = Message("user", "What is this?", images=(Image(0, "picture"),))
    nodes = (context_node(-1, [1], shown), sampled_node(0, "A cat.", [2]))
    return stored_episode(
        EpisodeContent((StoredAgent("a", nodes, (ModelCall(1, 10.0, 1.0, "stop", 1, 1.0),)),))
    )


def parquet_rows(tmp_path: Path, *episodes: StoredEpisode) -> list[dict[str, Any]]:
    file = tmp_path / "calls.parquet"
    writer = ParquetWriter(file, exported_run())
    for episode in episodes:
        writer.add(episode)
    writer.finish()
    table = pq.read_table(file)
    assert table.schema.equals(SCHEMA)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_parquet_has_a_row_for_each_call_with_what_the_model_was_shown(tmp_path: Path) -> None:
    rows = parquet_rows(tmp_path, branching_episode())
    assert [(row["call"], row["prompt_token_ids"], row["sampled_token_ids"]) for row in rows] == [
        (0, [1, 2], [3, 4]),
        (1, [1, 2, 3, 4, 5], [6, 7, 8]),
        (2, [1, 2, 3, 4, 9], [10]),
        (3, [1, 2, 3, 4, 5, 6, 7, 8, 11], [12]),
    ]
    assert rows[1]["logprobs"] == [-0.75, -0.875, -1.0]
    shown = json.loads(rows[1]["messages_in"])
    assert [message["role"] for message in shown] == ["system", "user", "assistant", "tool"]
    assert shown[2]["tool_calls"][0]["function"] == {"name": "calculator", "arguments": {"a": 2, "b": 3}}
    assert json.loads(rows[1]["message_out"])["content"] == "It is 6."
    assert json.loads(rows[1]["tools"]) == TOOLS
    assert [row["delivered"] for row in rows] == [True, True, True, False]
    assert {row["episode"] for row in rows} == {"0123456789abcdef"}
    assert (rows[0]["weights_first"], rows[0]["weights_last"], rows[0]["top_k"]) == (2, 3, 20)


def test_parquet_has_the_advantages_of_a_calls_own_tokens(tmp_path: Path) -> None:
    rows = parquet_rows(tmp_path, branching_episode())
    names = ("row", "trained_step", "row_position", "mask", "advantage", "advantages")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 5, 11, [1, 1], 0.25, [0.5, 0.5]),
        (0, 5, 11, [1, 1, 1], 0.25, [-0.25, -0.25, -0.25]),
        (1, 5, 12, [1], -1.0, None),
        (None, None, None, None, None, None),
    ]


def test_tokens_that_a_node_lacks_are_missing_in_what_follows_it(tmp_path: Path) -> None:
    episode = branching_episode()
    assert episode.content is not None
    (agent,) = episode.content.agents
    nodes = list(agent.nodes)
    nodes[2] = replace(nodes[2], tokens=b"", redacted=True)
    content = replace(episode.content, agents=(replace(agent, nodes=tuple(nodes)),))
    episode = stored_episode(content, tools={"schemas": TOOLS})
    rows = parquet_rows(tmp_path, episode)
    assert [row["prompt_token_ids"] for row in rows] == [[1, 2], None, [1, 2, 3, 4, 9], None]
    first, _ = lines_of(AtifWriter, tmp_path, episode)
    called, answered = (step["metrics"] for step in first["steps"][2:])
    assert called["prompt_token_ids"] == [1, 2]
    assert "prompt_token_ids" not in answered and answered["completion_token_ids"] == [6, 7, 8]


def test_parquet_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.store.export.parquet._MAX_GROUP_ROWS", 6)
    assert len(parquet_rows(tmp_path, branching_episode(), branching_episode())) == 8
    assert pq.ParquetFile(tmp_path / "calls.parquet").num_row_groups == 2


def test_messages_has_a_line_for_each_conversation(tmp_path: Path) -> None:
    first, second = lines_of(MessagesWriter, tmp_path, branching_episode())
    assert [message["role"] for message in first["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert first["messages"][-1] == {"role": "assistant", "content": "It is 6.", "reasoning_content": "hm"}
    assert second["messages"][-1]["content"] == "It is 7."
    assert first["messages"][3]["tool_call_id"] == first["messages"][2]["tool_calls"][0]["id"] == "call-1"
    assert first["tools"] == TOOLS
    assert first["metadata"]["episode"] == "0123456789abcdef" and first["metadata"]["reward"] == 1.0


def test_messages_have_their_pictures(tmp_path: Path) -> None:
    (line,) = lines_of(MessagesWriter, tmp_path, episode_with_picture())
    picture, text = line["messages"][0]["content"]
    assert picture == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert text == {"type": "text", "text": "What is this?"}


def test_atif_has_tokens_and_logprobs_of_each_call(tmp_path: Path) -> None:
    first, _ = lines_of(AtifWriter, tmp_path, branching_episode())
    assert [step["source"] for step in first["steps"]] == ["system", "user", "agent", "agent"]
    assert [step["step_id"] for step in first["steps"]] == [1, 2, 3, 4]
    called, answered = first["steps"][2:]
    assert called["tool_calls"] == [
        {"tool_call_id": "call-1", "function_name": "calculator", "arguments": {"a": 2, "b": 3}}
    ]
    assert called["observation"]["results"][0]["source_call_id"] == "call-1"
    assert called["observation"]["results"][0]["content"] == "6"
    assert answered["metrics"]["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert answered["metrics"]["completion_token_ids"] == [6, 7, 8]
    assert answered["metrics"]["logprobs"] == [-0.75, -0.875, -1.0]
    assert answered["timestamp"] == "2027-01-15T08:00:03+00:00"
    assert first["final_metrics"] == {
        "total_prompt_tokens": 7,
        "total_completion_tokens": 5,
        "total_steps": 4,
    }


def test_atif_marks_what_another_trajectory_of_the_episode_has_told(tmp_path: Path) -> None:
    first, second = lines_of(AtifWriter, tmp_path, branching_episode())
    assert first["session_id"] == second["session_id"] == "0123456789abcdef"
    assert first["trajectory_id"] != second["trajectory_id"]
    assert [step.get("is_copied_context") for step in first["steps"]] == [None] * 4
    assert [step.get("is_copied_context") for step in second["steps"]] == [True, True, True, None]
    assert second["steps"][2]["observation"]["results"][0]["content"] == "7"


def test_atif_has_what_a_program_wrote_for_the_model_as_copied_context(tmp_path: Path) -> None:
    nodes = (
        context_node(
            -1,
            [1],
            Message("tool", "too early", call_id="nobody"),
            Message("user", "1+1?"),
            Message("assistant", "2"),
            Message("user", "2+2?"),
        ),
        sampled_node(0, "4", [2]),
    )
    calls = (ModelCall(1, 10.0, 1.0, "stop", 1, 1.0),)
    (line,) = lines_of(
        AtifWriter, tmp_path, stored_episode(EpisodeContent((StoredAgent("a", nodes, calls),)))
    )
    assert [(step["source"], step.get("is_copied_context")) for step in line["steps"]] == [
        ("system", None),
        ("user", None),
        ("agent", True),
        ("user", None),
        ("agent", None),
    ]
    assert line["steps"][0]["observation"]["results"][0] == {"content": "too early"}


def members(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def inspect_members(tmp_path: Path, *episodes: StoredEpisode) -> dict[str, Any]:
    writer = InspectWriter(tmp_path / "log.eval", exported_run({"picture": PNG}.get))
    assert [writer.add(episode) for episode in episodes] == [1] * len(episodes)
    writer.finish()
    assert [each.name for each in tmp_path.iterdir()] == ["log.eval"]
    return members(tmp_path / "log.eval")


def test_inspect_numbers_the_episodes_of_a_task(tmp_path: Path) -> None:
    log = inspect_members(tmp_path, branching_episode(), branching_episode())
    assert set(log) == {
        "samples/7-fedcba_epoch_1.json",
        "samples/7-fedcba_epoch_2.json",
        "summaries.json",
        "reductions.json",
        "header.json",
    }
    assert [(each["id"], each["epoch"]) for each in log["summaries.json"]] == [
        ("7-fedcba", 1),
        ("7-fedcba", 2),
    ]
    header = log["header.json"]
    assert header["eval"]["config"]["epochs"] == 2 and header["eval"]["dataset"]["samples"] == 1
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0
    assert log["reductions.json"][0]["samples"] == [{"sample_id": "7-fedcba", "value": 1.0}]
    # What models wrote is shown as plain text.
    assert header["eval"]["viewer"] == {"trust_content": False}


def test_inspect_has_each_message_once_and_each_call_with_its_own(tmp_path: Path) -> None:
    sample = inspect_members(tmp_path, branching_episode())["samples/7-fedcba_epoch_1.json"]
    pool = sample["events_data"]["messages"]
    assert len(pool) == len({message["id"] for message in pool}) == 9
    calls = [event for event in sample["events"] if event["event"] == "model"]
    shown = [
        [pool[place]["role"] for begin, end in call["input_refs"] for place in range(begin, end)]
        for call in calls
    ]
    assert shown == [
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
        ["system", "user", "assistant", "tool"],
        ["system", "user", "assistant", "tool", "assistant", "user"],
    ]
    assert [call["output"]["choices"][0]["stop_reason"] for call in calls] == [
        "tool_calls",
        "stop",
        "max_tokens",
        "stop",
    ]
    kinds = [event["event"] for event in sample["events"]]
    assert kinds == ["sample_init", "model", "tool", "model", "model", "model", "score"]
    assert sample["scores"]["number"]["answer"] == "6"


@pytest.mark.parametrize(
    ("outcome", "field", "kind"),
    [("timeout", "limit", "time"), ("max_turns", "limit", "turn"), ("environment", "error", None)],
)
def test_inspect_has_failures_as_limits_and_errors(
    outcome: str, field: str, kind: str | None, tmp_path: Path
) -> None:
    episode = stored_episode(branching_content(), outcome=outcome, reward=None, cause="why")
    log = inspect_members(tmp_path, episode)
    sample, (summary,) = log["samples/7-fedcba_epoch_1.json"], log["summaries.json"]
    assert "scores" not in sample and "reductions.json" not in log
    assert sample[field]["type" if kind else "message"] == (kind or "environment: why")
    assert summary[field] == (kind or "environment: why")


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    value = {"a": [float("nan"), 1.5], "b": (float("inf"),)}
    assert json.loads(json_text(value)) == {"a": [None, 1.5], "b": [None]}
