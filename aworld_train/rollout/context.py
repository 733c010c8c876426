"""Shortens histories that outgrow the model's context, at the model's boundary, for every kind of agent.

The agent keeps sending its whole history, of which the shortened one takes the place; later messages are put after it,
so a reset happens once. The full history keeps its own path in the graph, and is trained on unchanged. Long tool
results can be condensed before the model sees them, by another model.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from aworld_train.episode.message import Message
from aworld_train.rollout.outcome import EpisodeFailure, ToolHelperFailed

Policy = Literal["discard_tools", "summarize", "keep_last_k"]

DISCARDED = "[This tool result was removed to save space. Call the tool again if it is needed.]"
ASK_FOR_SUMMARY = (
    "The conversation is about to be cut to save space. Sum up, for yourself, what the task asks for, what was done "
    "and found out so far with all facts and figures that matter, and what remains to be done. Call no tool."
)
SUMMARY_FOLLOWS = "What was done so far, summed up because the conversation had grown too long:\n\n"

_CONDENSE = (
    "You condense what a tool returned for an assistant that works on the task below. Keep every fact, figure, name, "
    "link and error that may matter for the task, word for word where it counts, and leave out the rest. Do not solve "
    "the task and add nothing."
)

Ask = Callable[[list[Message]], Awaitable[str]]


@dataclass(frozen=True)
class ContextSettings:
    """How long histories are shortened, beyond ``budget`` tokens, and tool results beyond ``condense_over`` characters.

    ``keep`` is how many of the newest tool results stay with ``discard_tools``, else how many of the newest turns.
    Without a ``summarizer`` the model itself summarizes.
    """

    policy: Policy | None = None
    budget: int = 0
    keep: int = 1
    summarizer: Ask | None = None
    condense_over: int | None = None
    condenser: Ask | None = None


@dataclass
class ContextView:
    """One agent's history as the model sees it."""

    settings: ContextSettings
    _from: tuple[Any, ...] = ()  # keys of the history that was shortened last
    _to: list[Message] = field(default_factory=list)
    _condensed: dict[Any, str] = field(default_factory=dict)

    async def of(self, messages: Sequence[Message]) -> list[Message]:
        seen = list(messages)
        known = len(self._from)
        if known and tuple(message.key for message in messages[:known]) == self._from:
            seen = [*self._to, *messages[known:]]
        if self.settings.condense_over is not None:
            seen = [await self._condensed_message(message, seen) for message in seen]
        return seen

    async def shorten(
        self, messages: Sequence[Message], seen: Sequence[Message], ask: Ask
    ) -> list[Message] | None:
        """Replace the history, which the model would see as ``seen``; None if the policy finds nothing to leave out."""
        shorter = await self._shortened(list(seen), ask)
        if shorter is None or shorter == list(seen):
            return None
        self._from = tuple(message.key for message in messages)
        self._to = shorter
        return shorter

    async def _shortened(self, seen: list[Message], ask: Ask) -> list[Message] | None:
        keep = self.settings.keep
        if self.settings.policy == "discard_tools":
            results = [i for i, message in enumerate(seen) if message.role == "tool"]
            old = set(results[: max(0, len(results) - keep)])
            return [replace(m, content=DISCARDED, images=()) if i in old else m for i, m in enumerate(seen)]
        head, turns = _turns(seen)
        if not turns:
            return None
        if self.settings.policy == "keep_last_k":
            kept = turns[max(0, len(turns) - keep) :]
            return [*head, *(message for turn in kept for message in turn)]
        request = [*seen, Message("user", ASK_FOR_SUMMARY)]
        summary = await (self.settings.summarizer or ask)(request)
        return [*head, Message("user", SUMMARY_FOLLOWS + summary)]

    async def _condensed_message(self, message: Message, conversation: Sequence[Message]) -> Message:
        limit = self.settings.condense_over
        if message.role != "tool" or limit is None or len(message.content) <= limit:
            return message
        condensed = self._condensed.get(message.key)
        if condensed is None:
            condensed = await self._condense(message, conversation)
            self._condensed[message.key] = condensed
        return message.with_text(condensed)

    async def _condense(self, message: Message, conversation: Sequence[Message]) -> str:
        assert self.settings.condenser is not None
        task = next((m.content for m in conversation if m.role == "user"), "")
        question = f"Task:\n{task}\n\nTool: {message.name or 'unknown'}\n\nReturned:\n{message.content}"
        try:
            return await self.settings.condenser([Message("system", _CONDENSE), Message("user", question)])
        except EpisodeFailure as failure:
            helper_failed = ToolHelperFailed(f"a long tool result could not be condensed: {failure}")
            helper_failed.is_permanent = failure.is_permanent
            raise helper_failed from failure


def _turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """The messages before the first assistant turn, and each assistant turn with the messages after it."""
    head: list[Message] = []
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "assistant":
            turns.append([message])
        elif turns:
            turns[-1].append(message)
        else:
            head.append(message)
    return head, turns
