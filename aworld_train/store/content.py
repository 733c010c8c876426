"""What is kept of an episode: the conversations as graphs of nodes, each with its messages and tokens once.

A training row is a path through a graph, so rows repeat no tokens: the tokens of a row are those of its nodes, one
after the other, and its mask covers the nodes that it owns.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.episode.tool_calls import ToolCallRecord


class StoredNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Consecutive messages and the tokens that they add; see ``rollout.graph.Node``.

    Attributes:
        parent: Index of the node before it among its agent's; -1 for a root.
        tokens: Token ids as little-endian int32; empty where they are redacted.
        logprobs: Of each sampled token, as ``packed_floats``; None for context.
        ended: Whether the model ended a sampled turn itself, or else with ``stop``.
        received: Whether a client received a sampled turn.
        versions: First and last version of the weights of a sampled turn.
        parts: Where these differ, the place of each part's first token and its version.
        shared: Digest of the blob, a node too, that has its messages and tokens; empty where they are here.
        redacted: Whether a text was redacted; the tokens would still spell it, so they are not kept.
    """

    parent: int = -1
    messages: tuple[Message, ...] = ()
    tokens: bytes = b""
    token_count: int = 0
    logprobs: bytes | None = None
    ended: bool = True
    stop: str = ""
    received: bool = True
    versions: tuple[int, int] | None = None
    shared: str = ""
    redacted: bool = False
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def sampled(self) -> bool:
        return self.logprobs is not None

    @property
    def has_tokens(self) -> bool:
        """Whether its tokens are neither redacted nor missing."""
        return 4 * self.token_count == len(self.tokens)

    def weights_of(self, place: int) -> tuple[int, int] | None:
        """First and last version of the weights that may have sampled a token: the same, unless parts are unknown."""
        version = [version for begin, version in self.parts if begin <= place][-1:]
        return (version[0], version[0]) if version else self.versions

    @property
    def token_ids(self) -> list[int]:
        ids: list[int] = np.frombuffer(self.tokens, "<i4").tolist()
        return ids

    @property
    def token_logprobs(self) -> list[float]:
        """The log-probability of each token; empty for context."""
        return unpacked_floats(self.logprobs or b"")


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One model call, which sampled a node; ``malformed``: a tool call or a thought cannot be read.

    ``tools`` is the digest of the tools' schemas, a blob of the store, empty without tools; ``misses`` are the client's
    requests about the response that the model did not meet.
    """

    node: int
    began: float
    seconds: float
    finish_reason: str
    prompt_tokens: int
    temperature: float
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 0
    malformed: bool = False
    tools: str = ""
    misses: tuple[str, ...] = ()


class StoredAgent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One agent's conversations: nodes with parents first, and the model calls in order."""

    name: str
    nodes: tuple[StoredNode, ...]
    calls: tuple[ModelCall, ...] = ()
    branches: tuple[BranchPoint, ...] = ()

    def path(self, node: int) -> list[int]:
        """The nodes from the root to ``node``, which is the last."""
        path = [node]
        while (parent := self.nodes[path[-1]].parent) >= 0:
            path.append(parent)
        return path[::-1]

    def call_of(self, node: int) -> int | None:
        """The number of the model call that sampled a node; None for context."""
        return next((number for number, call in enumerate(self.calls) if call.node == node), None)


class StoredRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One training row, the path through an agent's nodes, of which ``prompt_tokens`` are its prompt.

    The tokens of the sampled nodes in ``own`` are under the mask; the others were in an earlier row.
    """

    agent: int
    path: tuple[int, ...]
    own: tuple[int, ...]
    prompt_tokens: int


class EpisodeContent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    agents: tuple[StoredAgent, ...] = ()
    tool_calls: tuple[ToolCallRecord, ...] = ()
    rows: tuple[StoredRow, ...] = ()
    score: ScoreResult | None = None
    answer: str = ""

    @property
    def blobs(self) -> set[str]:
        """The digests of all blobs that it refers to; prompts that are blobs may refer to images."""
        digests = {call.tools for agent in self.agents for call in agent.calls}
        for agent in self.agents:
            for node in agent.nodes:
                digests |= {node.shared, *image_digests(node.messages)}
        return digests - {""}

    def spans(self, row: int) -> "Iterator[RowSpan]":
        stored = self.rows[row]
        agent, own, begin = self.agents[stored.agent], set(stored.own), 0
        for node in stored.path:
            end = begin + agent.nodes[node].token_count
            yield RowSpan(node, begin, end, node in own)
            begin = end


class RowSpan(NamedTuple):
    """A node's place in a row: from token ``begin`` to before ``end``; ``own``: whether it is under the mask."""

    node: int
    begin: int
    end: int
    own: bool


def image_digests(messages: Sequence[Message]) -> set[str]:
    return {image.digest for message in messages for image in message.images}


def packed_tokens(tokens: Sequence[int]) -> bytes:
    return np.asarray(tokens, "<i4").tobytes()


def packed_floats(values: Sequence[float]) -> bytes:
    """Floats as little-endian numbers after a byte with their width: 4 bytes if that loses nothing, else 8."""
    wide = np.asarray(values, "<f8")
    with np.errstate(over="ignore"):
        narrow = wide.astype("<f4")
    same = np.array_equal(narrow.astype("<f8"), wide, equal_nan=True)
    return b"\x04" + narrow.tobytes() if same else b"\x08" + wide.tobytes()


def float_array(data: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.frombuffer(data[1:], "<f4" if data[:1] == b"\x04" else "<f8").astype("<f8")


def unpacked_floats(data: bytes) -> list[float]:
    values: list[float] = float_array(data).tolist()
    return values


encoded: Callable[[EpisodeContent | StoredNode], bytes] = msgspec.msgpack.Encoder().encode
decoded_content: Callable[[bytes], EpisodeContent] = msgspec.msgpack.Decoder(EpisodeContent).decode
decoded_node: Callable[[bytes], StoredNode] = msgspec.msgpack.Decoder(StoredNode).decode
