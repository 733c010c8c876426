"""One episode at the language model's boundary: it answers and records every request of its agents.

All requests, of the built-in loop in this process or of a program over HTTP, go through ``complete``. It finds the node
of the agent's conversation graph that the request continues, gives the model exactly the recorded tokens and the new
ones, and records exactly what was sampled. The trainer's sampling and the recipe's limits hold for every request.
Whatever ends an episode sets ``over``, so that the agent can be stopped.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aworld_train.rollout.context import ContextSettings, ContextView
from aworld_train.rollout.graph import Cause, ConversationGraph, Match, Row
from aworld_train.rollout.messages import ChatRequest, Completion, Message, RequestRefused
from aworld_train.rollout.model import LanguageModel, ParsedTurn, SamplingParams, cut_at_stop
from aworld_train.rollout.outcome import EpisodeFailure, Outcome
from aworld_train.rollout.repetition import RepetitionLimits, ends_in_loop, repeats_turns
from aworld_train.rollout.template import CannotContinue, TemplateFailure, with_recorded_ids

_CALL_ID_LENGTH = 9  # one family of chat templates accepts only identifiers of nine letters and digits
_RANDOM = random.Random()  # not the global one, which programs seed
_MAX_INLINE_CHARS = 20_000  # longer texts are rendered outside the event loop


@dataclass(frozen=True)
class EpisodeLimits:
    """The limits of an agent's requests, and how its tokens are sampled.

    Attributes:
        max_turns: Model calls per agent.
        max_prompt_tokens: Of an agent's first prompt, and of what counts as a row's prompt.
        max_response_tokens: Of a row, after its prompt.
        sampling: The trainer's.
        agents_sampling: Whether an agent may choose temperature, top_p and top_k itself.
        repetition: When an episode is ended because the model repeats itself.
        context: How histories are kept within the model's context.
    """

    max_turns: int
    max_prompt_tokens: int
    max_response_tokens: int
    sampling: SamplingParams
    agents_sampling: bool = False
    repetition: RepetitionLimits = field(default_factory=RepetitionLimits)
    context: ContextSettings = field(default_factory=ContextSettings)


@dataclass
class AgentRecord:
    """One agent's requests and answers.

    Attributes:
        name: The agent.
        graph: Its conversations.
        view: Its history as the model sees it.
        completions: The model's answers, in order.
        tools: The tools of the last request.
        tools_key: Their key, independent of their order.
    """

    name: str
    view: ContextView
    graph: ConversationGraph = field(default_factory=ConversationGraph)
    completions: list[Completion] = field(default_factory=list)
    tools: Sequence[Mapping[str, Any]] = ()
    tools_key: str = ""

    def key_of(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """A key that is equal for equal tools in any order; computed once while requests send the same object."""
        if tools is not self.tools:
            self.tools = tools
            self.tools_key = "\n".join(sorted(json.dumps(tool, sort_keys=True) for tool in tools))
        return self.tools_key


@dataclass(frozen=True)
class _Prepared:
    """A request matched with the graph, and its new tokens."""

    match: Match
    tools: str
    tokens: list[int]
    cause: Cause | None

    @property
    def length(self) -> int:
        """The number of tokens in the model's prompt."""
        if self.match.context is not None:
            return self.match.context.length
        return len(self.tokens) + (self.match.node.length if self.match.node else 0)

    @property
    def root_length(self) -> int:
        """The number of tokens in the conversation's first prompt."""
        first = self.match.context or self.match.node
        return len(first.root.tokens) if first else len(self.tokens)


class Episode:
    """One episode."""

    def __init__(self, model: LanguageModel, limits: EpisodeLimits):
        self._model = model
        self._limits = limits
        self._request_id = os.urandom(16).hex()
        self._newest: Completion | Outcome | None = None
        self.agents: dict[str, AgentRecord] = {}
        self.failure: EpisodeFailure | None = None
        self.over = asyncio.Event()
        self.generate_seconds = 0.0
        self.given_tokens = 0  # tokens of all prompts, as the engine counts them

    def conversation(self, agent: str) -> "AgentConversation":
        """The conversation of ``agent``, for the model gateway or a loop."""
        return AgentConversation(self, agent)

    async def complete(self, agent: str, request: ChatRequest) -> Completion:
        """Answer a request of ``agent``.

        Raises:
            RequestRefused: a limit was reached, the request cannot be rendered, or the episode is over.
        """
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

    def fail(self, failure: EpisodeFailure) -> None:
        """End the episode with a failure; the first one counts."""
        if not self.over.is_set():
            self.failure = failure
        self.over.set()

    def stop(self, limit: Outcome) -> None:
        """End the episode because a limit was reached."""
        if not self.over.is_set():
            self._newest = limit
        self.over.set()

    @property
    def stopped(self) -> bool:
        """Whether the agent's last request was refused because of a limit or a failure, or got a broken turn."""
        match self._newest:
            case Outcome():
                return True
            case Completion() as completion:
                return (
                    self.failure is not None or completion.malformed or completion.finish_reason == "length"
                )
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
            case completion if completion.finish_reason == "length":
                return Outcome.overlong
            case completion:
                return Outcome.wrong_format if completion.malformed else Outcome.answered

    @property
    def turns(self) -> int:
        """Model calls of all agents."""
        return sum(len(record.completions) for record in self.agents.values())

    @property
    def branches(self) -> Counter[str]:
        """The number of requests that did not continue the newest turn, by cause."""
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
        messages = await record.view.of(request.messages)
        prepared = await self._prepare(record, messages, request.tools)
        context = self._limits.context
        if context.policy is not None and prepared.length > context.budget:

            async def ask(question: list[Message]) -> str:
                part = replace(request, messages=question, use_tools=False, stop=())
                prepared = await self._prepare(record, question, request.tools)
                return (await self._sample(record, part, prepared)).content

            shorter = await record.view.shorten(request.messages, messages, ask)
            if shorter is not None:
                prepared = await self._prepare(record, shorter, request.tools)
                prepared = replace(prepared, cause="reset")
        return await self._sample(record, request, prepared)

    async def _prepare(
        self, record: AgentRecord, messages: list[Message], tools: Sequence[Mapping[str, Any]]
    ) -> _Prepared:
        """Find the history in the graph and render the new messages.

        Raises:
            RequestRefused: the chat template does not accept these messages.
        """
        key = record.key_of(tools)
        match = record.graph.match(messages, key)
        if match.context is not None:
            return _Prepared(match, key, [], match.cause)
        if sum(len(message.content) for message in match.new) > _MAX_INLINE_CHARS:
            match, tokens = await asyncio.to_thread(self._render, match, messages, tools, key)
        else:
            match, tokens = self._render(match, messages, tools, key)
        return _Prepared(match, key, tokens, match.cause)

    def _render(
        self, match: Match, messages: list[Message], tools: Sequence[Mapping[str, Any]], key: str
    ) -> tuple[Match, list[int]]:
        """The tokens of the new messages; of all, with another match, if the template cannot continue the turn."""
        template = self._model.template
        if match.node is not None:
            try:
                *before, sent = messages[: len(messages) - len(match.new)]
                (turn,) = match.node.messages
                new = with_recorded_ids(match.new, sent, turn)
                sampled, ended = match.node.tokens, match.node.ended
                return match, template.continuation([*before, turn], new, tools, sampled, ended, key)
            except CannotContinue:
                match = Match(None, tuple(messages), None, "template")
        try:
            return match, template.initial(messages, tools)
        except TemplateFailure as error:
            raise RequestRefused(str(error), parameter="messages") from error

    async def _sample(self, record: AgentRecord, request: ChatRequest, prepared: _Prepared) -> Completion:
        """Sample an answer to a prepared request, and record both."""
        room = self._room(record, prepared)
        max_tokens = min(room, request.max_tokens or room)
        tools = prepared.tools
        context = prepared.match.context or record.graph.add_context(prepared.match, tools, prepared.tokens)
        if prepared.cause is not None:
            record.graph.branches[prepared.cause] += 1
        prompt = context.path_tokens
        self.given_tokens += len(prompt)
        began = time.monotonic()
        try:
            sampled = await self._model.generate(
                f"{self._request_id}-{record.name}",
                prompt,
                replace(self._sampling(request), stop=request.stop),
                max_tokens,
            )
        finally:
            seconds = time.monotonic() - began
            self.generate_seconds += seconds
        tokens, ended = sampled.tokens, sampled.ended
        cut = cut_at_stop(tokens, request.stop, self._model.text)
        if cut is not None:
            tokens, ended = tokens[:cut], False
        logprobs = sampled.logprobs[: len(tokens)]
        finished = ended or cut is not None
        turn, cut_text = await self._parse_turn(tokens, request, prompt)
        completion = Completion(
            content=turn.content,
            reasoning=turn.reasoning,
            tool_calls=tuple(turn.calls),
            finish_reason="length" if not finished else "tool_calls" if turn.calls else "stop",
            prompt_tokens=len(prompt),
            tokens=tokens,
            logprobs=logprobs,
            texts=[self._model.text([token]) for token in tokens] if request.logprobs else (),
            malformed=(turn.malformed or turn.unfinished) and finished,
            seconds=seconds,
        )
        record.graph.add_sampled(context, tools, completion.message, tokens, logprobs, ended)
        if cut_text:
            # Some programs put the text at which they stopped the model back into its message.
            whole = replace(completion.message, content=completion.content + cut_text)
            record.graph.treat_as(whole, completion.message)
        record.completions.append(completion)
        self._newest = completion
        return completion

    async def _parse_turn(
        self, tokens: Sequence[int], request: ChatRequest, prompt: Sequence[int]
    ) -> tuple[ParsedTurn, str]:
        """Parse sampled tokens into a turn for the agent, and the text that a stop cut from its content."""
        turn = await self._model.parse(tokens, request.tools if request.use_tools else (), prompt)
        content = turn.content
        for stop in request.stop:
            content = content.partition(stop)[0]
        calls = [replace(call, call_id=call_id) for call, call_id in zip(turn.calls, _ids(turn), strict=True)]
        cut_text = next((stop for stop in request.stop if turn.content.startswith(stop, len(content))), "")
        return replace(turn, content=content, calls=calls if request.use_tools else ()), cut_text

    def _room(self, record: AgentRecord, prepared: _Prepared) -> int:
        """How many tokens the model may add.

        Raises:
            RequestRefused: none, or the agent has no turn left.
        """
        limits = self._limits
        if len(record.completions) >= limits.max_turns:
            raise self._limit_refusal(
                Outcome.max_turns, f"all {limits.max_turns} turns of this agent are used up", "max_turns"
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
        """A refusal because of a limit; its outcome is the episode's unless the agent continues."""
        self._newest = outcome
        return RequestRefused(message, code=code)

    def _over_refusal(self) -> RequestRefused:
        reason = str(self.failure) if self.failure else self.outcome.meaning
        return RequestRefused(f"this episode is over: {reason}", status=403, code="episode_over")

    def _sampling(self, request: ChatRequest) -> SamplingParams:
        sampling = self._limits.sampling
        if not self._limits.agents_sampling:
            return sampling
        return SamplingParams(
            sampling.temperature if request.temperature is None else request.temperature,
            sampling.top_p if request.top_p is None else request.top_p,
            sampling.top_k if request.top_k is None else request.top_k,
        )

    def _repeats_itself(self, record: AgentRecord) -> bool:
        limits = self._limits.repetition
        keys = [completion.message.key for completion in record.completions[-max(limits.turns, 1) :]]
        return repeats_turns(keys, limits.turns) or ends_in_loop(record.completions[-1].tokens, limits.loops)


@dataclass(frozen=True)
class AgentConversation:
    """One agent's side of an episode."""

    episode: Episode
    agent: str

    async def complete(self, request: ChatRequest) -> Completion:
        """As ``Episode.complete``."""
        return await self.episode.complete(self.agent, request)


def _ids(turn: ParsedTurn) -> list[str]:
    """The calls' identifiers: those that the model wrote, and new ones where it wrote none or repeated one."""
    ids: list[str] = []
    for call in turn.calls:
        ids.append(call.call_id if call.call_id and call.call_id not in ids else _call_id())
    return ids


def _call_id() -> str:
    return f"{_RANDOM.getrandbits(4 * _CALL_ID_LENGTH):0{_CALL_ID_LENGTH}x}"
