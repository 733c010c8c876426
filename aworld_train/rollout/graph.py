"""The conversations of an agent with the model, as a graph that holds every token once.

A node holds consecutive messages and the tokens they add. Context nodes (the model's input) and sampled nodes (its
output, with log-probabilities) alternate from a root to each leaf. Invariant: the tokens from the root to a context
node are exactly the input of a model call, and the sampled node below it exactly its output; nothing is ever tokenised
again.

A request carries its whole history. The graph finds the longest recorded path with the same meaning and uses *its*
tokens; only the messages after it are new. A history that was edited, cut or repeated becomes a branch, counted by
cause. Each path to a leaf is a training row; a sampled token is trained on in the first row that holds it, and is
context in the others.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from aworld_train.rollout.messages import Message

Cause = Literal["new", "resampled", "edited", "rewritten", "tools", "reset", "template"]
"""Why a request did not continue the newest turn: it begins another conversation; it repeats the same or an earlier
history; a message that is not the assistant's was changed; one of the assistant's was changed; the tools changed; a
context policy shortened the history; the chat template could not continue a finished turn."""


@dataclass(eq=False)
class Node:
    """Consecutive messages and the tokens they add.

    Attributes:
        parent: The node before it; None for a root.
        messages: One assistant message for a sampled node, else all the messages added at once.
        tokens: Token ids; those of context end where the assistant begins.
        logprobs: Of each sampled token; None for context.
        ended: Whether the model ended a sampled turn itself.
        keys: The messages' keys.
        root: The first node of its path.
        length: Tokens from the root up to and including this node.
        children: In order of creation.
    """

    parent: "Node | None"
    messages: tuple[Message, ...]
    tokens: list[int]
    logprobs: list[float] | None = None
    ended: bool = True
    keys: tuple[Any, ...] = field(init=False)
    root: "Node" = field(init=False)
    length: int = field(init=False)
    children: list["Node"] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.keys = tuple(message.key for message in self.messages)
        self.root = self.parent.root if self.parent else self
        self.length = len(self.tokens) + (self.parent.length if self.parent else 0)
        if self.parent is not None:
            self.parent.children.append(self)

    @property
    def sampled(self) -> bool:
        return self.logprobs is not None

    @property
    def path(self) -> list["Node"]:
        """From the root to this node."""
        nodes = [self]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]

    @property
    def path_tokens(self) -> list[int]:
        """All tokens from the root up to and including this node."""
        tokens: list[int] = []
        for node in self.path:
            tokens += node.tokens
        return tokens


@dataclass(frozen=True)
class Match:
    """The node that a request continues.

    Attributes:
        node: The sampled node that its history leads to, or None for a new conversation.
        new: The messages after that node.
        context: The existing context node with exactly the new messages; None if there is none.
        cause: Why it does not continue the newest turn; None if it does, or is the first request.
    """

    node: Node | None
    new: tuple[Message, ...]
    context: Node | None
    cause: Cause | None


@dataclass(frozen=True)
class Row:
    """One path as a training row.

    Attributes:
        prompt: Token ids of the root.
        response: Token ids after it.
        mask: 1 where a token was sampled and no earlier row holds it, else 0.
        logprobs: Of sampled tokens; 0 where they are context.
        turns: Begin and end of each sampled turn in ``response``.
        leaf: The last node.
    """

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    turns: list[tuple[int, int]]
    leaf: Node

    def split_at(self, longest_prompt: int) -> Self:
        """The same row with at most ``longest_prompt`` tokens in its prompt; the others are put before the response."""
        moved = self.prompt[longest_prompt:]
        if not moved:
            return self
        n = len(moved)
        return type(self)(
            prompt=self.prompt[:longest_prompt],
            response=moved + self.response,
            mask=[0] * n + self.mask,
            logprobs=[0.0] * n + self.logprobs,
            turns=[(begin + n, end + n) for begin, end in self.turns],
            leaf=self.leaf,
        )


class ConversationGraph:
    """All conversations of one agent in one episode."""

    def __init__(self) -> None:
        self._roots: list[tuple[Any, Node]] = []  # with the key of the tools
        self._tip: Node | None = None
        self._tip_messages: tuple[Message, ...] = ()  # all messages up to the tip
        self._tip_keys: tuple[Any, ...] = ()  # their keys
        self._tip_tools: Any = None
        self._treated_as: dict[
            tuple[Any, ...], tuple[Any, ...]
        ] = {}  # keys of messages with another's meaning
        self.branches: Counter[Cause] = Counter()

    def match(self, messages: Sequence[Message], tools: Any) -> Match:
        """Find the node that a request continues; ``tools`` is any hashable value that is equal for equal tools."""
        known = len(self._tip_messages)
        if tuple(messages[:known]) != self._tip_messages:
            known = 0
        keys = (*self._tip_keys[:known], *[self._key(message) for message in messages[known:]])
        node, position = self._deepest_match(keys, tools)
        context = None
        if node is not None:
            rest = keys[position:]
            context = next((child for child in node.children if child.keys == rest), None)
        else:
            context = next(
                (root for known, root in self._roots if known == tools and root.keys == keys), None
            )
        return Match(node, tuple(messages[position:]), context, self._cause(keys, tools, node))

    def treat_as(self, message: Message, sampled: Message) -> None:
        """Let ``message`` have the meaning of a sampled message in the histories of all later requests."""
        self._treated_as[message.key] = sampled.key

    def add_context(self, match: Match, tools: Any, tokens: list[int]) -> Node:
        """Add the new messages of ``match`` and their tokens to the graph."""
        node = Node(match.node, match.new, tokens)
        if match.node is None:
            self._roots.append((tools, node))
        return node

    def add_sampled(
        self,
        context: Node,
        tools: Any,
        message: Message,
        tokens: list[int],
        logprobs: list[float],
        ended: bool,
    ) -> Node:
        """Add the model's answer below its context.

        Raises:
            ValueError: not one log-probability per token, or no token at all.
        """
        if len(tokens) != len(logprobs) or not tokens:
            raise ValueError(f"{len(tokens)} sampled tokens came with {len(logprobs)} log-probabilities")
        if context.parent is not self._tip:
            before = context.path[:-1]
            self._tip_messages = tuple(message_before for node in before for message_before in node.messages)
            self._tip_keys = tuple(key for node in before for key in node.keys)
        self._tip = Node(context, (message,), tokens, logprobs, ended)
        self._tip_messages = (*self._tip_messages, *context.messages, message)
        self._tip_keys = (*self._tip_keys, *context.keys, *self._tip.keys)
        self._tip_tools = tools
        return self._tip

    def nodes(self) -> Iterator[Node]:
        """Every node, parents first, siblings in order of creation."""
        stack = [root for _, root in reversed(self._roots)]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children)

    def rows(self) -> list[Row]:
        """One row per path that holds sampled tokens of its own."""
        rows: list[Row] = []
        trained: set[int] = set()
        for node in self.nodes():
            if not node.sampled or any(_has_sampled(child) for child in node.children):
                continue
            row = _row(node, trained)
            if any(row.mask):
                rows.append(row)
        return rows

    @property
    def unique_tokens(self) -> int:
        """The number of tokens in the graph, each counted once."""
        return sum(len(node.tokens) for node in self.nodes())

    def _key(self, message: Message) -> tuple[Any, ...]:
        return self._treated_as.get(message.key, message.key)

    def _deepest_match(self, keys: tuple[Any, ...], tools: Any) -> tuple[Node | None, int]:
        """The deepest sampled node that ``keys`` leads to, and how many keys that takes."""
        tip = self._tip_keys
        newest = self._tip if tools == self._tip_tools and keys[: len(tip)] == tip else None
        # If no turn follows, no node is deeper; of turns with the same meaning the newest counts.
        if newest is not None and not any(key[0] == "assistant" for key in keys[len(tip) :]):
            return newest, len(tip)
        node, position = None, 0
        for root_tools, root in reversed(self._roots):
            if root_tools == tools:
                found = _deepest_below(root, keys, 0)
                if found is not None and found[1] > position:
                    node, position = found
        return node, position

    def _cause(self, keys: tuple[Any, ...], tools: Any, node: Node | None) -> Cause | None:
        """Why a request does not continue the newest turn."""
        if self._tip is None or node is self._tip:
            return None
        if tools != self._tip_tools:
            return "tools"
        for position, (recorded, sent) in enumerate(zip(self._tip_keys, keys, strict=False)):
            if recorded != sent:
                return "new" if position == 0 else "rewritten" if recorded[0] == "assistant" else "edited"
        return "resampled"


def _deepest_below(context: Node, keys: tuple[Any, ...], start: int) -> tuple[Node, int] | None:
    """The deepest sampled node below ``context`` that ``keys`` leads to, and how many keys that takes."""
    best: tuple[Node, int] | None = None
    stack = [(context, start)]
    while stack:
        node, begin = stack.pop()
        end = begin + len(node.keys)
        if keys[begin:end] != node.keys:
            continue
        # Of turns with the same meaning the newest is visited last and wins.
        if node.sampled and (best is None or end >= best[1]):
            best = (node, end)
        stack += [(child, end) for child in reversed(node.children)]
    return best


def _has_sampled(context: Node) -> bool:
    return any(child.sampled for child in context.children)


def _row(leaf: Node, trained: set[int]) -> Row:
    """The path to ``leaf``; its sampled nodes are added to ``trained``."""
    root, *rest = leaf.path
    response: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    turns = []
    for node in rest:
        fresh = node.logprobs is not None and id(node) not in trained
        if node.sampled:
            turns.append((len(response), len(response) + len(node.tokens)))
            trained.add(id(node))
        response += node.tokens
        mask += [int(fresh)] * len(node.tokens)
        logprobs += node.logprobs if fresh and node.logprobs is not None else [0.0] * len(node.tokens)
    return Row(list(root.tokens), response, mask, logprobs, turns, leaf)
