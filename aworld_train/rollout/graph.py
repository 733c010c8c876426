"""The conversations of an agent with the model, as a graph that holds every token once.

Context nodes (the model's input) and sampled nodes (its output, with log-probabilities) alternate from a root to each
leaf. Invariant: the tokens from the root to a context node are exactly the input of a model call, and the sampled node
below it exactly its output; nothing is ever tokenised again.

A request carries its whole history, of which the longest recorded path with the same meaning keeps *its* tokens. Each
path to a leaf is a training row; a sampled token is trained on in the first row that holds it. A turn that no client
received is in no row, unless a later request continues it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os.path import commonprefix
from typing import Any, Self

from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint, Cause
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message, canonical_arguments
from aworld_train.rollout.model import SampledTokens, WeightVersions

MAX_BRANCH_POINTS = 20  # how many branches of an agent are described; the others are only counted
_CHARS_BEFORE = 30
_CHARS_AFTER = 90


@dataclass(eq=False)
class Node:
    """Consecutive messages and the tokens they add.

    ``logprobs`` is None for context, whose tokens end where the assistant begins. ``wish`` is the text about the
    answer's form that the model was shown last. The tokens of a turn hold the ``stop`` text that ended it, its message
    does not. ``counted`` is what an outside endpoint has counted, whose ids are not known. ``parts`` are as in
    ``SampledTokens``. ``length`` and ``images`` are from the root up to and including this node.
    """

    parent: "Node | None"
    messages: tuple[Message, ...]
    tokens: list[int]
    logprobs: list[float] | None = None
    ended: bool = True
    versions: WeightVersions | None = None
    wish: str = ""
    stop: str = ""
    pending: int = 0
    received: bool = True
    counted: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    keys: tuple[Any, ...] = field(init=False)
    root: "Node" = field(init=False)
    length: int = field(init=False)
    images: list[Image] = field(init=False)
    children: list["Node"] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.keys = tuple([message.key for message in self.messages])
        parent = self.parent
        self.root = parent.root if parent else self
        self.length = self.token_count + (parent.length if parent else 0)
        self.images = parent.images if parent else []
        new = [image for message in self.messages for image in message.images]
        if new:
            self.images = [*self.images, *new]
        if parent is not None:
            parent.children.append(self)

    @property
    def sampled(self) -> bool:
        return self.logprobs is not None

    @property
    def token_count(self) -> int:
        return self.counted or len(self.tokens)

    def count(self, prompt_tokens: int) -> None:
        """Take note of how many tokens there are from the root up to and including this node of unknown ids."""
        before = self.parent.length if self.parent else 0
        self.counted = max(0, prompt_tokens - before)
        self.length = before + self.counted

    @property
    def is_received_turn(self) -> bool:
        return self.logprobs is not None and self.received

    def means(self, messages: Sequence[Message], keys: tuple[Any, ...]) -> bool:
        is_same = self.keys == keys or (self.stop != "" and keys == (self._key_with_stop,))
        return is_same and _same_reasoning(messages, self.messages)

    @cached_property
    def _key_with_stop(self) -> tuple[Any, ...]:
        """The key of a message that a client completed with the stop text."""
        (message,) = self.messages
        return changed(message, content=message.content + self.stop).key

    @property
    def path(self) -> list["Node"]:
        nodes = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]

    @property
    def path_tokens(self) -> list[int]:
        tokens: list[int] = []
        for node in self.path:
            tokens += node.tokens
        return tokens


@dataclass(frozen=True)
class Match:
    """The node that a request continues.

    ``node`` is None for a new conversation. ``context`` is the recorded node with exactly the new messages. ``branch``
    is None for the first request and for one that continues the newest turn.
    """

    node: Node | None
    new: tuple[Message, ...]
    context: Node | None
    branch: BranchPoint | None
    wish: str = ""
    is_wish_new: bool = False


@dataclass(frozen=True)
class Row:
    """One path as a training row.

    ``mask`` is 1 where a token was sampled and no earlier row holds it, and ``versions`` are those of these tokens;
    ``logprobs`` are 0 where tokens are context. ``turns`` are begin and end of each sampled turn in ``response``.
    ``version_parts`` are places in it from which on tokens of the mask have a version.
    """

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    turns: list[tuple[int, int]]
    versions: WeightVersions | None
    images: list[Image]
    leaf: Node
    version_parts: tuple[tuple[int, int], ...] = ()

    def split_at(self, longest_prompt: int) -> Self:
        """The same row with at most ``longest_prompt`` tokens in its prompt; the others are put before the response."""
        moved = self.prompt[longest_prompt:]
        if not moved:
            return self
        n = len(moved)
        return replace(
            self,
            prompt=self.prompt[:longest_prompt],
            response=moved + self.response,
            mask=[0] * n + self.mask,
            logprobs=[0.0] * n + self.logprobs,
            turns=[(begin + n, end + n) for begin, end in self.turns],
            version_parts=tuple((begin + n, version) for begin, version in self.version_parts),
        )


class ConversationGraph:
    """All conversations of one agent in one episode."""

    def __init__(self) -> None:
        self._roots: list[tuple[Any, Node]] = []  # with the key of the tools
        self._tip: Node | None = None
        self._tip_messages: tuple[Message, ...] = ()  # all messages up to the tip
        self._tip_keys: tuple[Any, ...] = ()  # their keys
        self._tip_tools: Any = None
        self.branches: Counter[Cause] = Counter()
        self.branch_points: list[BranchPoint] = []

    def match(self, messages: Sequence[Message], tools: Any, wish: str = "") -> Match:
        """Find the node that a request continues.

        ``tools`` may be anything hashable; ``wish`` is the text about the answer's form, shown once in a conversation.
        """
        known = len(self._tip_messages)
        is_known = tuple(messages[:known]) == self._tip_messages
        if not is_known:
            known = 0
        keys = (*self._tip_keys[:known], *[message.key for message in messages[known:]])
        node, position = self._deepest_match(messages, keys, tools, is_known)
        new = tuple(messages[position:])
        is_wish_new = bool(wish) and (node is None or node.wish != wish)
        context = self._context(node, new, tools, wish)
        branch = None
        if self._tip is not None and node is not self._tip:
            changed_tools = None if tools == self._tip_tools else (self._tip_tools, tools)
            branch = branch_point(self._tip_messages, messages, changed_tools)
        return Match(node, new, context, branch, wish, is_wish_new)

    def _context(self, node: Node | None, new: tuple[Message, ...], tools: Any, wish: str) -> Node | None:
        nodes = node.children if node is not None else [root for known, root in self._roots if known == tools]
        if not nodes:
            return None
        keys = tuple([message.key for message in new])
        return next((each for each in nodes if each.wish == wish and each.means(new, keys)), None)

    def add_context(self, match: Match, tools: Any, tokens: list[int]) -> Node:
        """Add the new messages of ``match`` and their tokens to the graph, or find them there."""
        if match.node is not None:
            match.node.received = True
        # Another request may have added them since this one was matched.
        context = self._context(match.node, match.new, tools, match.wish)
        if context is not None and context.tokens == tokens:
            return context
        node = Node(match.node, match.new, tokens, wish=match.wish)
        if match.node is None:
            self._roots.append((tools, node))
        return node

    def count_branch(self, branch: BranchPoint) -> None:
        """Count a branch that is about to be sampled, and describe it if not many were before it."""
        self.branches[branch.cause] += 1
        if len(self.branch_points) < MAX_BRANCH_POINTS:
            self.branch_points.append(branch)

    def add_sampled(
        self, context: Node, tools: Any, message: Message, sampled: SampledTokens, stop: str = ""
    ) -> Node:
        tokens, logprobs = sampled.tokens, sampled.logprobs
        if len(tokens) != len(logprobs) or not tokens:
            raise ValueError(f"{len(tokens)} sampled tokens came with {len(logprobs)} log-probabilities")
        turn = Node(
            context,
            (message,),
            tokens,
            logprobs,
            sampled.ended,
            sampled.versions,
            context.wish,
            stop,
            parts=sampled.parts,
        )
        return self._add_turn(turn, tools)

    def add_answer(self, context: Node, tools: Any, message: Message, tokens: int, ended: bool) -> Node:
        """Add the answer of a model whose token ids are not known, only their number."""
        turn = Node(context, (message,), [], [], ended, None, context.wish, counted=tokens)
        return self._add_turn(turn, tools)

    def _add_turn(self, turn: Node, tools: Any) -> Node:
        context = turn.parent
        assert context is not None
        if context.parent is not self._tip:
            before = context.path[:-1]
            self._tip_messages = tuple(message for node in before for message in node.messages)
            self._tip_keys = tuple(key for node in before for key in node.keys)
        self._tip = turn
        self._tip_messages = (*self._tip_messages, *context.messages, *turn.messages)
        self._tip_keys = (*self._tip_keys, *context.keys, *turn.keys)
        self._tip_tools = tools
        return turn

    def nodes(self) -> Iterator[Node]:
        """Every node, parents first, siblings in order of creation."""
        stack = [root for _, root in reversed(self._roots)]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children)

    def rows(self) -> list[Row]:
        """One row per path that holds sampled tokens of its own and was received."""
        rows: list[Row] = []
        trained: set[int] = set()
        for node in self.nodes():
            later = (turn for context in node.children for turn in context.children)
            if not node.is_received_turn or any(turn.is_received_turn for turn in later):
                continue
            row = _row(node, trained)
            if any(row.mask):
                rows.append(row)
        return rows

    @property
    def unique_tokens(self) -> int:
        """The number of tokens in the graph, each counted once, without those that no client received."""
        return sum(node.token_count for node in self.nodes() if not node.sampled or node.received)

    @property
    def undelivered(self) -> int:
        return sum(node.sampled and not node.received for node in self.nodes())

    def _deepest_match(
        self, messages: Sequence[Message], keys: tuple[Any, ...], tools: Any, is_known: bool
    ) -> tuple[Node | None, int]:
        """The deepest sampled node that the messages lead to, and how many of them that takes.

        ``is_known``: whether they begin with all messages up to the newest turn, unchanged.
        """
        tip = self._tip_keys
        newest = self._tip if tools == self._tip_tools and keys[: len(tip)] == tip else None
        if newest is not None and not is_known and not _same_reasoning(messages, self._tip_messages):
            newest = None
        # If no turn follows, no node is deeper; of turns with the same meaning the newest counts.
        if newest is not None and not any(key[0] == "assistant" for key in keys[len(tip) :]):
            return newest, len(tip)
        node, position = None, 0
        for root_tools, root in reversed(self._roots):
            if root_tools == tools:
                found = _deepest_below(root, messages, keys)
                if found is not None and found[1] > position:
                    node, position = found
        return node, position


def _same_reasoning(sent: Sequence[Message], recorded: Sequence[Message]) -> bool:
    return all(each.same_reasoning(own) for each, own in zip(sent, recorded, strict=False))


def _deepest_below(root: Node, messages: Sequence[Message], keys: tuple[Any, ...]) -> tuple[Node, int] | None:
    best: tuple[Node, int] | None = None
    stack = [(root, 0)]
    while stack:
        node, begin = stack.pop()
        end = begin + len(node.keys)
        if end > len(keys) or not node.means(messages[begin:end], keys[begin:end]):
            continue
        # Of turns with the same meaning the newest is visited last and wins.
        if node.sampled and (best is None or end >= best[1]):
            best = (node, end)
        stack += [(child, end) for child in reversed(node.children)]
    return best


def _row(leaf: Node, trained: set[int]) -> Row:
    """The path to ``leaf``; its sampled nodes are added to ``trained``."""
    root, *rest = leaf.path
    response: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    turns = []
    own = []
    parts: list[tuple[int, int]] = []
    for node in rest:
        fresh = node.logprobs is not None and id(node) not in trained
        if node.sampled:
            turns.append((len(response), len(response) + len(node.tokens)))
            trained.add(id(node))
        if fresh:
            own.append(node.versions)
            first = ((0, node.versions.first),) if node.versions else ()
            parts += [(len(response) + begin, version) for begin, version in node.parts or first]
        response += node.tokens
        mask += [int(fresh)] * len(node.tokens)
        logprobs += node.logprobs if fresh and node.logprobs is not None else [0.0] * len(node.tokens)
    return Row(
        list(root.tokens),
        response,
        mask,
        logprobs,
        turns,
        WeightVersions.span(own),
        leaf.images,
        leaf,
        tuple(parts),
    )


def branch_point(
    recorded: Sequence[Message], sent: Sequence[Message], tools: tuple[Any, Any] | None
) -> BranchPoint:
    """Where a request leaves a conversation; ``tools`` are those of both as text, if they differ."""
    if tools is not None:
        return BranchPoint("tools", 0, "", *_first_difference(*map(str, tools)))
    for index, (own, other) in enumerate(zip(recorded, sent, strict=False)):
        if own.key != other.key or not other.same_reasoning(own):
            cause: Cause = "new" if index == 0 else "rewritten" if own.role == "assistant" else "edited"
            with_reasoning = bool(other.reasoning)
            texts = [_text(each, with_reasoning) for each in (own, other)]
            if own.role != other.role:
                texts = [f"{each.role}: {text}" for each, text in zip((own, other), texts, strict=True)]
            return BranchPoint(cause, index, other.role, *_first_difference(*texts))
    index = len(sent)
    if index >= len(recorded):
        return BranchPoint("resampled", index, "", 0, "", "")
    return BranchPoint(
        "resampled", index, recorded[index].role, *_first_difference(_text(recorded[index]), "")
    )


def _text(message: Message, with_reasoning: bool = False) -> str:
    if message.role != "assistant":
        return message.content
    calls = [f"{call.name}({canonical_arguments(call.arguments)})" for call in message.tool_calls]
    reasoning = [message.reasoning.strip()] if with_reasoning else []
    return "\n".join([*reasoning, message.content.strip(), *calls])


def _first_difference(recorded: str, sent: str) -> tuple[int, str, str]:
    position = len(commonprefix([recorded, sent]))  # noqa: RUF071  of characters
    begin = max(0, position - _CHARS_BEFORE)
    end = position + _CHARS_AFTER
    return position, recorded[begin:end], sent[begin:end]
