"""One episode at the language model's boundary: it answers and records every request of its agents.

``complete`` finds the node of the agent's conversation graph that a request continues, gives the model exactly the
recorded tokens and the new ones, and records exactly what was sampled. The recipe's sampling and limits hold for every
request. Whatever ends an episode sets ``over``, so that the agent can be stopped.

A turn that was never sent is not trained on; one that was sent is. When the same request comes again, it is answered
with that turn: turns are lost where they take long, so sampling anew would prefer short ones.
"""

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.context import ContextSettings, ContextView
from aworld_train.rollout.graph import ConversationGraph, Match, Node, Row
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model import SamplingParams, WeightVersions
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.rollout.repetition import RepetitionLimits, ends_in_loop, repeats_turns
from aworld_train.rollout.response_constraints import NO_CONSTRAINTS, RequestRules

log = logging.getLogger(__name__)

_MIN_TEXT_BYTES = 1 << 20
_BYTES_PER_TOKEN = 32  # of JSON, several times what texts of any language have
_OUTCOMES = {"length": Outcome.overlong, "content_filter": Outcome.filtered, "refusal": Outcome.refused}
_LONGER_HISTORIES = 10  # than the context, where a policy shortens them
PLAIN = "plain text"  # in place of the key of the tools: no conversation has it


@dataclass(frozen=True)
class EpisodeLimits:
    """The limits of an agent's requests, and how its tokens are sampled.

    ``max_prompt_tokens`` limits an agent's first prompt and what counts as a row's prompt, ``max_response_tokens`` a
    row after it. With ``strict_requests`` requests are refused that want what the trainer does not enforce.
    """

    max_turns: int
    max_prompt_tokens: int
    max_response_tokens: int
    sampling: SamplingParams
    strict_requests: bool = False
    repetition: RepetitionLimits = field(default_factory=RepetitionLimits)
    context: ContextSettings = field(default_factory=ContextSettings)

    @property
    def max_text_bytes(self) -> int:
        """Most bytes of text in a request: more than the model's context can hold."""
        tokens = self.max_prompt_tokens + self.max_response_tokens
        histories = _LONGER_HISTORIES if self.context.policy is not None else 1
        return _MIN_TEXT_BYTES + _BYTES_PER_TOKEN * tokens * histories


class SampledTurn(NamedTuple):
    """A turn, and what it depended on beside its context; ``began`` is Unix time."""

    completion: Completion
    node: Node
    options: tuple[Any, ...]
    tools: Sequence[Mapping[str, Any]]
    sampling: SamplingParams
    max_tokens: int
    began: float


@dataclass
class AgentRecord:
    """One agent's requests and answers; ``lost`` are those that may not have reached the client."""

    name: str
    view: ContextView
    graph: ConversationGraph = field(default_factory=ConversationGraph)
    completions: list[Completion] = field(default_factory=list)
    misses: Counter[str] = field(default_factory=Counter)
    turns: list[SampledTurn] = field(default_factory=list)
    lost: list[SampledTurn] = field(default_factory=list)
    tools: Sequence[Mapping[str, Any]] = ()
    tools_key: str = ""

    def key_of(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """A key that is equal for equal tools in any order; computed once while requests send the same object."""
        if tools is not self.tools:
            self.tools = tools
            self.tools_key = "\n".join(sorted(json.dumps(tool, sort_keys=True) for tool in tools))
        return self.tools_key

    def lose(self, completion: Completion, was_sent: bool) -> None:
        turn = next((turn for turn in reversed(self.turns) if turn.completion is completion), None)
        if turn is not None and all(lost is not turn for lost in self.lost):
            turn.node.received = was_sent
            self.lost.append(turn)

    def deliver_again(self, context: Node, request: ChatRequest) -> Completion | None:
        """An answer to this request that has not reached the client, for another attempt."""
        for index, turn in enumerate(self.lost):
            if (
                turn.node.parent is context
                and not turn.node.children
                and turn.options == request_options(request)
            ):
                turn.node.received = True
                return self.lost.pop(index).completion
        return None


@dataclass(frozen=True)
class Prepared:
    match: Match
    tools: str
    tokens: list[int]
    branch: BranchPoint | None

    @property
    def length(self) -> int:
        """Tokens in the model's prompt, as far as they are known."""
        if self.match.context is not None:
            return self.match.context.length
        return len(self.tokens) + (self.match.node.length if self.match.node else 0)

    @property
    def root_length(self) -> int:
        first = self.match.context or self.match.node
        return first.root.token_count if first else len(self.tokens)


class Episode(ABC):
    """One episode of a model that takes and returns tokens (``TokenEpisode``) or messages (``ChatEpisode``)."""

    def __init__(self, limits: EpisodeLimits):
        self._limits = limits
        self._newest: Completion | Outcome | None = None
        self._sampled: list[Completion] = []  # of all agents, in order
        self._pending = 0  # model calls under way
        self.agents: dict[str, AgentRecord] = {}
        self.failure: EpisodeFailure | None = None
        self.over = asyncio.Event()
        self.generate_seconds = 0.0
        self._model_calls: list[float] = []  # when those under way began, monotonic clock
        self.given_tokens = 0  # tokens of all prompts, as the engine counts them

    def conversation(self, agent: str) -> "AgentConversation":
        return AgentConversation(self, agent)

    async def complete(self, agent: str, request: ChatRequest) -> Completion:
        """Answer a request of ``agent``; raises ``RequestRefused``."""
        if self.over.is_set():
            raise self._over_refusal()
        record = self.agents.get(agent)
        if record is None:
            record = self.agents[agent] = AgentRecord(agent, ContextView(self._limits.context))
        try:
            completion = await self._complete(record, request)
        except EpisodeFailure as failure:
            self.fail(failure)
            raise self._over_refusal() from failure
        if self._repeats_itself(record):
            self.stop(Outcome.repetition)
            raise self._over_refusal()
        return completion

    async def count_tokens(self, agent: str, request: ChatRequest) -> int:
        """The number of tokens that a request of ``agent`` would give the model; nothing is recorded."""
        if self.over.is_set():
            raise self._over_refusal()
        record = self.agents.get(agent) or AgentRecord(agent, ContextView(self._limits.context))
        messages = request.messages if request.plain else await record.view.of(request.messages)
        return (await self._prepare(record, list(messages), request)).length

    def undelivered(self, agent: str, completion: Completion, was_sent: bool = False) -> None:
        if agent in self.agents:
            self.agents[agent].lose(completion, was_sent)

    def note_overlong(self) -> None:
        self._note(Outcome.overlong)

    def fail(self, failure: EpisodeFailure) -> None:
        """End the episode with a failure; the first one counts."""
        if not self.over.is_set():
            self.failure = failure
        self.over.set()

    def stop(self, limit: Outcome) -> None:
        self._note(limit)
        self.over.set()

    @property
    def stopped(self) -> bool:
        """Whether the agent's last request was refused because of a limit or a failure, or got a broken turn."""
        match self._newest:
            case Outcome():
                return True
            case Completion() as completion:
                return self.failure is not None or _outcome_of(completion) is not Outcome.answered
        return self.failure is not None

    @property
    def outcome(self) -> Outcome:
        """The outcome of an episode whose agent has ended and did not fail."""
        if self.failure is not None:
            return self.failure.outcome
        match self._newest:
            case None:
                return Outcome.agent
            case Outcome() as limit:
                return limit
            case completion:
                return _outcome_of(completion)

    def outcome_of(self, answer: str) -> Outcome:
        """The outcome of an episode whose agent has ended with an answer: that of the newest turn which has it.

        After that turn an agent may have asked for something else. Where no turn has it, the newest request decides.
        """
        text = answer.strip()
        if self.failure is None and text:
            for completion in reversed(self._sampled):
                if text in completion.content and not completion.tool_calls:
                    return _outcome_of(completion)
        return self.outcome

    @property
    def turns(self) -> int:
        return len(self._sampled)

    @property
    def model_seconds(self) -> float:
        """Those under way included."""
        now = time.monotonic()
        return self.generate_seconds + sum(now - began for began in self._model_calls)

    @property
    @abstractmethod
    def rules(self) -> RequestRules:
        pass

    @property
    def versions(self) -> WeightVersions | None:
        """The first and the last version of the weights that its turns were sampled with, if the engine says."""
        return WeightVersions.span(
            node.versions for record in self.agents.values() for node in record.graph.nodes()
        )

    @property
    def misses(self) -> Counter[str]:
        return sum((record.misses for record in self.agents.values()), Counter())

    @property
    def branches(self) -> Counter[str]:
        return sum((Counter(record.graph.branches) for record in self.agents.values()), Counter())

    def text_of(self, agent: str) -> str:
        """What the model answered ``agent`` in all its turns: the text outside thoughts and tool calls."""
        record = self.agents.get(agent)
        texts = [completion.content for completion in record.completions] if record else []
        return "\n".join(text for text in texts if text)

    def rows(self, trainable: Sequence[str] = ()) -> list[tuple[str, Row]]:
        """Training rows with their agents' names; of all agents, or of those named."""
        return [
            (record.name, row.split_at(self._limits.max_prompt_tokens))
            for record in self.agents.values()
            if not trainable or record.name in trainable
            for row in record.graph.rows()
        ]

    async def _complete(self, record: AgentRecord, request: ChatRequest) -> Completion:
        messages = request.messages if request.plain else await record.view.of(request.messages)
        prepared = await self._prepare(record, list(messages), request)
        context = self._limits.context
        if context.policy is not None and prepared.length > context.budget and not request.plain:

            async def ask(question: list[Message]) -> str:
                part = replace(
                    request, messages=question, use_tools=False, stop=(), constraints=NO_CONSTRAINTS
                )
                prepared = await self._prepare(record, question, part)
                return (await self._sample(record, part, prepared)).content

            shorter = await record.view.shorten(request.messages, messages, ask)
            if shorter is not None:
                prepared = await self._prepare(record, shorter, request)
                branch = prepared.branch or BranchPoint("reset", len(shorter), "", 0, "", "")
                prepared = replace(prepared, branch=changed(branch, cause="reset"))
        if prepared.match.context is not None and record.lost:
            again = record.deliver_again(prepared.match.context, request)
            if again is not None:
                self._note(again)
                return again
        return await self._sample(record, request, prepared)

    @abstractmethod
    async def _prepare(self, record: AgentRecord, messages: list[Message], request: ChatRequest) -> Prepared:
        """Find the history in the graph and render the new messages; refuses what the model cannot be shown."""

    @abstractmethod
    async def _sample_after(
        self, record: AgentRecord, request: ChatRequest, context: Node, tools: str, max_tokens: int
    ) -> Completion:
        pass

    async def _sample(self, record: AgentRecord, request: ChatRequest, prepared: Prepared) -> Completion:
        room = self._room(record, prepared)
        max_tokens = min(room, request.max_tokens or room)
        tools = prepared.tools
        context = prepared.match.context or record.graph.add_context(prepared.match, tools, prepared.tokens)
        branch = prepared.branch
        if branch is None and context.pending:
            branch = BranchPoint("resampled", len(request.messages), "", 0, "", "")
        if branch is not None:
            record.graph.count_branch(branch)
        self._pending += 1
        context.pending += 1
        self._model_calls.append(began := time.monotonic())
        try:
            return await self._sample_after(record, request, context, tools, max_tokens)
        finally:
            self._model_calls.remove(began)
            self._pending -= 1
            context.pending -= 1

    def _add(self, record: AgentRecord, turn: SampledTurn) -> None:
        completion = turn.completion
        record.completions.append(completion)
        record.turns.append(turn)
        if completion.misses:
            record.misses.update(completion.misses)
        self._sampled.append(completion)
        self._note(completion)

    def _note(self, newest: Completion | Outcome) -> None:
        """Take note of what decides the outcome, unless that is decided: calls may end after the episode."""
        if not self.over.is_set():
            self._newest = newest

    def _room(self, record: AgentRecord, prepared: Prepared) -> int:
        """How many tokens the model may add; refuses a request if there are none, or no turn is left."""
        limits = self._limits
        if self.turns + self._pending >= limits.max_turns:
            raise self._limit_refusal(
                Outcome.max_turns, f"all {limits.max_turns} turns of this episode are used up", "max_turns"
            )
        too_long = not record.completions and prepared.length > limits.max_prompt_tokens
        room = limits.max_response_tokens - (
            prepared.length - min(prepared.root_length, limits.max_prompt_tokens)
        )
        if too_long or room < 1:
            limit = limits.max_prompt_tokens + (0 if too_long else limits.max_response_tokens)
            raise self._limit_refusal(
                Outcome.overlong,
                f"the conversation has {prepared.length} tokens and the model's context is used up (limit {limit})",
                "context_length_exceeded",
            )
        return room

    def _limit_refusal(self, outcome: Outcome, message: str, code: str) -> RequestRefused:
        self._note(outcome)
        return RequestRefused(message, code=code)

    def _over_refusal(self) -> RequestRefused:
        reason = str(self.failure) if self.failure else self.outcome.meaning
        return RequestRefused(f"this episode is over: {reason}", status=403, code="episode_over")

    def _sampling(self, request: ChatRequest) -> SamplingParams:
        sampling = self._limits.sampling
        for name in ("temperature", "top_p", "top_k"):
            if getattr(request, name) not in (None, getattr(sampling, name)):
                _note_ignored(name, getattr(sampling, name))
        if sampling.seed is not None:
            # Each turn has random numbers of its own.
            sampling = replace(sampling, seed=sampling.seed + self.turns + self._pending - 1)
        if request.stop or request.top_logprobs:
            sampling = replace(sampling, stop=request.stop, top_logprobs=request.top_logprobs)
        return sampling

    def _repeats_itself(self, record: AgentRecord) -> bool:
        limits = self._limits.repetition
        keys = [completion.message.key for completion in record.completions[-max(limits.turns, 1) :]]
        return repeats_turns(keys, limits.turns) or ends_in_loop(record.completions[-1].tokens, limits.loops)


@lru_cache(maxsize=64)  # once for each
def _note_ignored(name: str, value: float) -> None:
    log.warning("an agent asks for another %s: tokens are sampled with %g, as the recipe says", name, value)


def _outcome_of(completion: Completion) -> Outcome:
    by_reason = _OUTCOMES.get(completion.finish_reason)
    return by_reason or (Outcome.wrong_format if completion.malformed else Outcome.answered)


@dataclass(frozen=True)
class AgentConversation:
    episode: Episode
    agent: str

    async def complete(self, request: ChatRequest) -> Completion:
        return await self.episode.complete(self.agent, request)

    def undelivered(self, completion: Completion, was_sent: bool = False) -> None:
        self.episode.undelivered(self.agent, completion, was_sent)

    def note_overlong(self) -> None:
        self.episode.note_overlong()

    async def count_tokens(self, request: ChatRequest) -> int:
        return await self.episode.count_tokens(self.agent, request)


def request_options(request: ChatRequest) -> tuple[Any, ...]:
    """What the answer to a request depends on beside its context."""
    sampling = (request.temperature, request.top_p, request.top_k)
    shown = (request.logprobs, request.top_logprobs)
    return (request.use_tools, request.max_tokens, request.stop, request.constraints, *shown, *sampling)


def with_wish(messages: Sequence[Message], wish: str) -> Sequence[Message]:
    """The messages with a text about the answer's form: in the last of the user's, or as a message of its own."""
    if not wish:
        return messages
    index = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
    if index < 0:
        return [*messages, Message("user", wish)]
    content = f"{messages[index].content}\n\n{wish}"
    return [*messages[:index], changed(messages[index], content=content), *messages[index + 1 :]]
