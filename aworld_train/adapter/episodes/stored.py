"""What the store keeps of an episode, from the objects that played it.

Redaction acts on texts. Tokens would spell the same secret, so the tokens of a message in which something was replaced
are not kept; how many there were is.
"""

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.adapter.episodes.settings import EpisodeSettings, read_settings
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.rollout.cassette import server_identity
from aworld_train.rollout.episode import AgentRecord
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.graph import Node, Row
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
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor, map_texts, storable
from aworld_train.store.retention import parse_keep


def recorder_of(run_folder: Path) -> StoreRecorder | None:
    return store_recorder(run_folder, read_settings(str(run_folder / EPISODES_FILE)))


def store_recorder(run_folder: Path, settings: EpisodeSettings) -> StoreRecorder | None:
    keep = str(settings.store["keep"])
    if not parse_keep(keep).is_on:
        return None
    return _recorder(run_folder, keep, tuple(settings.store["redact"]), os.getpid())


@lru_cache(maxsize=4)
def _recorder(run_folder: Path, keep: str, patterns: tuple[str, ...], pid: int) -> StoreRecorder:
    return StoreRecorder(run_folder, parse_keep(keep), Redactor(patterns))


def episode_content(
    recorder: StoreRecorder,
    result: EpisodeResult,
    rows: Sequence[tuple[str, Row]],
    score: EpisodeScore | None,
    scorer_parts: Mapping[str, float],
) -> EpisodeContent:
    """What is kept of an episode that is over, with all its rows; ``scorer_parts`` are another reward function's."""
    text, server = recorder.redactor.text, server_identity(os.environ.get("MCP_SERVER_URL", ""), {})
    agents, places, numbers = [], dict[int, int](), dict[str, int]()
    for number, record in enumerate(result.episode.agents.values()):
        numbers[record.name] = number
        agents.append(_agent(recorder, record, places))
    return EpisodeContent(
        tuple(agents),
        tuple(
            replace(map_texts(call, text), seconds=round(call.seconds, 6), server=server)
            for call in result.tools.records
        ),
        tuple(_row(numbers[name], row, places) for name, row in rows),
        _score(recorder, score, scorer_parts),
        text(result.answer),
    )


def _agent(recorder: StoreRecorder, record: AgentRecord, places: dict[int, int]) -> StoredAgent:
    """One agent; ``places`` gets the index of each node by its identity."""
    text, nodes = recorder.redactor.text, list(record.graph.nodes())
    places |= {id(node): index for index, node in enumerate(nodes)}
    calls = tuple(
        ModelCall(
            places[id(turn.node)],
            turn.began,
            round(turn.completion.seconds, 6),
            turn.completion.finish_reason,
            turn.completion.prompt_tokens,
            turn.sampling.temperature,
            turn.sampling.top_p,
            turn.sampling.top_k,
            turn.max_tokens,
            turn.completion.malformed,
            _tools(recorder, turn.tools),
            tuple(turn.completion.misses),
        )
        for turn in record.turns
    )
    branches = tuple(
        replace(point, recorded=text(point.recorded), sent=text(point.sent))
        for point in record.graph.branch_points
    )
    stored = tuple(_node(recorder, node, places) for node in nodes)
    return StoredAgent(text(record.name), stored, calls, branches)


def _node(recorder: StoreRecorder, node: Node, places: Mapping[int, int]) -> StoredNode:
    messages = map_texts(node.messages, recorder.redactor.text)
    redacted = messages != node.messages and messages != map_texts(node.messages, storable)
    messages = tuple([_stored(recorder, message) if message.images else message for message in messages])
    tokens = b"" if redacted else packed_tokens(node.tokens)
    if node.parent is None:
        shared = recorder.blob(encoded(StoredNode(-1, messages, tokens, redacted=redacted)))
        return StoredNode(-1, token_count=node.token_count, shared=shared)
    return StoredNode(
        places[id(node.parent)],
        messages,
        tokens,
        node.token_count,
        None if node.logprobs is None else packed_floats(node.logprobs),
        node.ended,
        recorder.redactor.text(node.stop),
        node.received,
        (node.versions.first, node.versions.last) if node.versions else None,
        redacted=redacted,
        parts=node.parts,
    )


def _stored(recorder: StoreRecorder, message: Message) -> Message:
    images = tuple([Image(image.position, recorder.blob(image.file)) for image in message.images])
    return replace(message, images=images)


def _row(agent: int, row: Row, places: Mapping[int, int]) -> StoredRow:
    path = row.leaf.path
    sampled = [places[id(node)] for node in path if node.sampled]
    own = [node for node, (begin, _) in zip(sampled, row.turns, strict=True) if row.mask[begin]]
    return StoredRow(agent, tuple(places[id(node)] for node in path), tuple(own), len(row.prompt))


def _score(
    recorder: StoreRecorder, score: EpisodeScore | None, parts: Mapping[str, float]
) -> ScoreResult | None:
    if score is None:
        return ScoreResult(parts=dict(parts)) if parts else None
    result = replace(score.result, parts={name: float(part) for name, part in score.result.parts.items()})
    redacted: ScoreResult = map_texts(result, recorder.redactor.text)
    return redacted


def _tools(recorder: StoreRecorder, tools: Sequence[Mapping[str, Any]]) -> str:
    """The digest of tools' schemas; their text is made once for the same list."""
    if not tools:
        return ""
    known = _tool_texts.get(id(tools))
    if known is None or known[0] is not tools:
        if len(_tool_texts) >= _MAX_TOOL_TEXTS:
            _tool_texts.clear()
        data = json.dumps(recorder.redactor.tree(list(tools)), ensure_ascii=False).encode()
        known = _tool_texts[id(tools)] = (tools, data)
    return recorder.blob(known[1])


_MAX_TOOL_TEXTS = 64
_tool_texts: dict[int, tuple[Sequence[Mapping[str, Any]], bytes]] = {}
