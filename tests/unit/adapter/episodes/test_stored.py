"""What the store keeps of an episode: which of its tokens are trained on, as in its rows, and no secret."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aworld_train.adapter.episodes import stored as stored_module
from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.adapter.episodes.stored import episode_content
from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest
from aworld_train.rollout.model import SamplingParams, WeightVersions
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tool_record import ToolCounts
from aworld_train.store.content import (
    EpisodeContent,
    ModelCall,
    StoredNode,
    StoredRow,
    decoded_node,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.events import Blob
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from tests.stored_runs import row_mask, written_events
from tests.templates import ScriptedModel, cut_up

LIMITS = EpisodeLimits(10, 1000, 1000, SamplingParams(1.0, 1.0, -1))


def says(text: str) -> ScriptedModel:
    return ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, f"{text}<|im_end|>", 0), True))


def stored(
    run: Path,
    episode: TokenEpisode,
    tools: ToolCounts | None = None,
    score: EpisodeScore | None = None,
    parts: dict[str, float] | None = None,
) -> EpisodeContent:
    """What is kept of an episode where keys are secrets."""
    recorder = StoreRecorder(run, parse_keep("all"), Redactor([r"key-[0-9]+"]))
    result = EpisodeResult(episode, tools or ToolCounts(), Outcome.answered, "The key-1.")
    content = episode_content(recorder, result, episode.rows(), score, parts or {})
    recorder.close()
    return content


async def test_a_turn_is_under_the_mask_of_the_row_that_trains_on_it_alone(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    for question in ("And now?", "Or else?"):
        await episode.complete("agent", ChatRequest([*history, Message("user", question)]))
    rows = episode.rows()
    assert [[any(row.mask[begin:end]) for begin, end in row.turns] for _, row in rows] == [
        [True, True],
        [False, True],
    ]
    content = stored(tmp_path, episode)
    for number, (_, row) in enumerate(rows):
        assert content.rows[number].prompt_tokens == len(row.prompt)
        assert row_mask(content, number) == [0] * len(row.prompt) + row.mask


async def test_the_tokens_of_a_redacted_message_are_not_kept_and_those_of_others_are(tmp_path: Path) -> None:
    episode = TokenEpisode(says("It is key-7."), LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    history.append(Message("user", "And now?"))
    await episode.complete("agent", ChatRequest(history))
    played = list(episode.agents["agent"].graph.nodes())
    _, *nodes = stored(tmp_path, episode).agents[0].nodes
    for node, kept in zip(played[1:], nodes, strict=True):
        is_secret = "key-7" in node.messages[0].content
        assert (kept.redacted, kept.token_ids) == (is_secret, [] if is_secret else node.tokens)
        assert kept.token_count == len(node.tokens)
        assert kept.messages[0].content == ("It is [redacted]." if is_secret else "And now?")
    assert [node.redacted for node in nodes] == [True, False, True]


async def test_no_secret_is_in_calls_answer_and_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "https://tools.example/secret/mcp")
    episode = TokenEpisode(says("fine"), LIMITS)
    await episode.complete("agent", ChatRequest([Message("user", "The key-2?")]))
    call = ToolCallRecord("ask key-3", '{"a": "key-4"}', "not key-5", True, 1.0, 0.1234567, False, "call-1")
    result = ScoreResult(
        None, "key-6", ScoreOutcome.error, {"key-7": 1.0}, ("saw key-8",), "no key-9", "exact"
    )
    content = stored(tmp_path, episode, ToolCounts(1, 1, 0.1234567, [call]), EpisodeScore(result, 1, 1))
    assert content.answer == "The [redacted]."
    [use] = content.tool_calls
    assert (use.name, use.arguments, use.result) == (
        "ask [redacted]",
        '{"a": "[redacted]"}',
        "not [redacted]",
    )
    assert (use.is_error, use.began, use.seconds, use.call_id) == (True, 1.0, 0.123457, "call-1")
    assert use.server == "tools.example"
    hidden = "[redacted]"
    assert content.score == ScoreResult(
        None, hidden, ScoreOutcome.error, {hidden: 1.0}, (f"saw {hidden}",), f"no {hidden}", "exact"
    )
    blobs = written_events(tmp_path)
    assert blobs and "key-" not in repr((content, blobs))


async def test_a_turn_that_no_client_received_is_kept_as_such(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    request = ChatRequest([Message("user", "Hello.")])
    completion = await episode.complete("agent", request)
    episode.undelivered("agent", completion)
    content = stored(tmp_path, episode)
    assert [node.received for node in content.agents[0].nodes] == [True, False]
    assert content.rows == ()


async def test_a_conversation_is_kept_as_it_was_sampled(tmp_path: Path) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    tools = [{"type": "function", "function": {"name": "ask", "description": "Takes key-1. é"}}]
    history = [Message("user", "Hello.")]
    completion = await episode.complete("planner", ChatRequest(history, tools))
    history.append(completion.message)
    for question in ("And key-1?", "Or key-2?"):
        await episode.complete("planner", ChatRequest([*history, Message("user", question)], tools))
    await episode.complete("worker", ChatRequest([Message("user", "Hello.")]))
    root, turn, *_ = episode.agents["planner"].graph.nodes()
    turn.versions, turn.stop, turn.ended = WeightVersions(3, 4), "key-9", False
    turn.parts = ((0, 3), (1, 4))
    content = stored(tmp_path, episode)
    blobs = {event.digest: event.data for event in written_events(tmp_path) if isinstance(event, Blob)}
    planner, worker = content.agents
    assert (planner.name, worker.name) == ("planner", "worker")
    assert [node.parent for node in planner.nodes] == [-1, 0, 1, 2, 1, 4]
    assert planner.nodes[0] == StoredNode(-1, token_count=len(root.tokens), shared=planner.nodes[0].shared)
    shared = StoredNode(-1, (Message("user", "Hello."),), packed_tokens(root.tokens))
    assert decoded_node(blobs[planner.nodes[0].shared]) == shared
    assert planner.nodes[1] == StoredNode(
        0,
        (Message("assistant", "fine"),),
        packed_tokens(turn.tokens),
        len(turn.tokens),
        packed_floats(turn.logprobs or []),
        False,
        "[redacted]",
        versions=(3, 4),
        parts=((0, 3), (1, 4)),
    )
    weights = [planner.nodes[1].weights_of(place) for place in range(3)]
    assert weights == [(3, 3), (4, 4), (4, 4)]
    assert StoredNode(0, versions=(3, 4)).weights_of(0) == (3, 4)
    assert [call.node for call in planner.calls] == [1, 3, 5]
    sampled = episode.agents["planner"].turns[0]
    described = json.loads(json.dumps(tools).replace("key-1", "[redacted]"))
    text = json.dumps(described, ensure_ascii=False).encode()
    assert planner.calls[0] == ModelCall(
        *(1, sampled.began, round(completion.seconds, 6), "stop", completion.prompt_tokens),
        *(1.0, 1.0, -1, sampled.max_tokens),
        tools=sha256(text).hexdigest(),
    )
    assert blobs[planner.calls[0].tools] == text
    assert worker.calls[0].tools == ""
    assert planner.branches == (BranchPoint("edited", 2, "user", 0, "And [redacted]?", "Or [redacted]?"),)
    prompts = [len(row.prompt) for _, row in episode.rows()]
    assert content.rows == (
        StoredRow(0, (0, 1, 2, 3), (1, 3), prompts[0]),
        StoredRow(0, (0, 1, 4, 5), (5,), prompts[1]),
        StoredRow(1, (0, 1), (1,), prompts[2]),
    )


@pytest.mark.parametrize(
    ("said", "is_redacted"),
    [
        ({"content": "key-1"}, True),
        ({"reasoning": "key-1"}, True),
        ({"name": "key-1"}, True),
        ({"tool_calls": (ToolCall("key-1", "{}"),)}, True),
        ({"tool_calls": (ToolCall("ask", '{"a": "key-1"}'),)}, True),
        ({"content": "\udcff\0", "tool_calls": (ToolCall("ask", "{}", "call-1"),)}, False),
    ],
)
async def test_whatever_of_a_turn_was_redacted_its_tokens_are_not_kept(
    tmp_path: Path, said: dict[str, Any], is_redacted: bool
) -> None:
    episode = TokenEpisode(says("fine"), LIMITS)
    await episode.complete("agent", ChatRequest([Message("user", "Hello.")]))
    root, turn = episode.agents["agent"].graph.nodes()
    for node in (root, turn):
        node.messages = (replace(node.messages[0], **said),)
    first, kept = stored(tmp_path, episode).agents[0].nodes
    [shared] = (event.data for event in written_events(tmp_path) if isinstance(event, Blob))
    assert (kept.redacted, decoded_node(shared).redacted) == (is_redacted, is_redacted)
    assert (kept.tokens == b"", decoded_node(shared).tokens == b"") == (is_redacted, is_redacted)
    assert [kept.token_count, first.token_count] == [len(turn.tokens), len(root.tokens)]
    assert "key-1" not in repr((kept, shared))


@pytest.mark.parametrize(
    ("result", "parts", "kept"),
    [
        (None, {}, None),
        (None, {"acc": 0.5}, ScoreResult(parts={"acc": 0.5})),
        (
            ScoreResult(0.0, None, ScoreOutcome.no_answer, {}, (), None, "exact"),
            {"acc": 0.5},
            ScoreResult(0.0, None, ScoreOutcome.no_answer, scorer="exact"),
        ),
    ],
)
def test_a_score_is_that_of_the_package_or_has_the_parts_of_another_reward_function(
    tmp_path: Path, result: ScoreResult | None, parts: dict[str, float], kept: ScoreResult | None
) -> None:
    score = None if result is None else EpisodeScore(result, 0, 0)
    assert stored(tmp_path, TokenEpisode(says("fine"), LIMITS), score=score, parts=parts).score == kept


def test_few_texts_of_tools_are_remembered_and_none_for_another_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [[{"name": name}] for name in "abc"]
    texts: dict[int, Any] = {id(lists[0]): (lists[1], b"of a list that is gone")}
    monkeypatch.setattr(stored_module, "_tool_texts", texts)
    monkeypatch.setattr(stored_module, "_MAX_TOOL_TEXTS", 2)
    recorder = StoreRecorder(tmp_path, parse_keep("all"), Redactor())
    for tools, count in zip(lists, (1, 2, 1), strict=True):
        digests = {stored_module._tools(recorder, tools) for _ in range(2)}
        assert digests == {sha256(json.dumps(tools).encode()).hexdigest()}
        assert len(texts) == count
    recorder.close()
