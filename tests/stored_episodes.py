"""Episodes as a store gives them, made of their content alone."""

from collections.abc import Callable
from typing import Any

from aworld_train.episode.figures import EpisodeFigures, figures_of
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.store.content import (
    EpisodeContent,
    ModelCall,
    StoredAgent,
    StoredNode,
    StoredRow,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.export.writer import ExportedRun
from aworld_train.store.reading import EpisodeHead, RowUse, StoredEpisode
from tests.stored_runs import TOOLS


def stored_episode(
    content: EpisodeContent | None,
    *uses: RowUse,
    tools: dict[str, Any] | None = None,
    **figures: Any,
) -> StoredEpisode:
    """An episode that was answered rightly, unless its figures say otherwise."""
    head = EpisodeHead(
        id="0123456789abcdef",
        task="fedcba9876543210",
        index=7,
        source="products",
        question="What is 2 times 3?",
        correct_answer="6",
        status="ended",
        step=1,
        phase="train",
        attempt=0,
        began=1_800_000_000.0,
        ended=1_800_000_100.0,
        accuracy=None,
        trained_step=None,
        advantage=None,
        has_content=content is not None,
        figures=figures_of({"outcome": "answered", "reward": 1.0, "scorer": "number"} | figures),
    )
    return StoredEpisode(head, EpisodeFigures(), {}, content, uses, tools or {})


def sampled_node(
    parent: int, text: str, tokens: list[int], *calls: ToolCall, received: bool = True
) -> StoredNode:
    """A turn of the model; the logprob of token ``n`` is ``-n / 8``."""
    return StoredNode(
        parent,
        (Message("assistant", text, calls, reasoning="hm"),),
        packed_tokens(tokens),
        len(tokens),
        packed_floats([-token / 8 for token in tokens]),
        received=received,
        versions=(2, 3),
    )


def context_node(parent: int, tokens: list[int], *messages: Message) -> StoredNode:
    """What the model was shown."""
    return StoredNode(parent, messages, packed_tokens(tokens), len(tokens))


def branching_content() -> EpisodeContent:
    """An agent whose conversation was continued twice from its first turn, and whose last answer nobody received.

    The nodes: a prompt, a turn that calls a tool, its result and an answer; another result and another answer; and a
    result with an answer that was not delivered.
    """
    call = ToolCall("calculator", '{"a": 2, "b": 3}', "call-1")
    nodes = (
        context_node(-1, [1, 2], Message("system", "Be right."), Message("user", "What is 2 times 3?")),
        sampled_node(0, "", [3, 4], call),
        context_node(1, [5], Message("tool", "6", call_id="call-1", name="calculator")),
        sampled_node(2, "It is 6.", [6, 7, 8]),
        context_node(1, [9], Message("tool", "7", call_id="call-1", name="calculator")),
        sampled_node(4, "It is 7.", [10]),
        context_node(3, [11], Message("user", "Sure?")),
        sampled_node(6, "Lost.", [12], received=False),
    )
    calls = tuple(
        ModelCall(node, 1_800_000_000.0 + node, 0.5, reason, prompt, 0.7, top_k=20, tools="schemas")
        for node, reason, prompt in ((1, "tool_calls", 2), (3, "stop", 5), (5, "length", 5), (7, "stop", 9))
    )
    rows = (StoredRow(0, (0, 1, 2, 3), (1, 3), 2), StoredRow(0, (0, 1, 4, 5), (5,), 2))
    uses = (
        ToolCallRecord(
            "calculator",
            '{"a": 2, "b": 3}',
            "6",
            False,
            1_800_000_001.6,
            0.1,
            server="local",
            call_id="call-1",
        ),
    )
    score = ScoreResult(1.0, "6", parts={"format": 1.0}, steps=("found 6",), scorer="number")
    return EpisodeContent((StoredAgent("solver", nodes, calls),), uses, rows, score, "It is 6.")


def branching_episode() -> StoredEpisode:
    """Its first row was trained on with an advantage for each token, its second with one for all."""
    uses = (
        RowUse(5, 11, 5, 0.25, (0.5, 0.5, 0.0, -0.25, -0.25, -0.25)),
        RowUse(5, 12, 1, -1.0),
    )
    return stored_episode(branching_content(), *uses, tools={"schemas": TOOLS})


def exported_run(read_blob: Callable[[str], bytes | None] = lambda digest: None) -> ExportedRun:
    """What exports say of the run."""
    return ExportedRun("one", "run-id", "tiny", read_blob, "1.2.3", {"name": "one"})
