"""An episode whose model takes and returns tokens: what is recorded is what was sampled, id by id."""

import asyncio
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.episode import (
    PLAIN,
    AgentRecord,
    Episode,
    EpisodeLimits,
    Prepared,
    SampledTurn,
    request_options,
    with_wish,
)
from aworld_train.rollout.graph import Match, Node
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model import LanguageModel, ParsedTurn, cut_at_stop
from aworld_train.rollout.response_constraints import RequestRules
from aworld_train.rollout.template import CannotContinue, TemplateFailure, with_recorded_ids
from aworld_train.waits import waiting

_CALL_ID_LENGTH = 9  # one family of chat templates accepts only identifiers of nine letters and digits
_RANDOM = random.Random()  # not the global one, which programs seed
_MAX_INLINE_CHARS = 20_000  # longer texts, and images, are rendered outside the event loop


class TokenEpisode(Episode):
    def __init__(self, model: LanguageModel, limits: EpisodeLimits):
        super().__init__(limits)
        self._model = model
        self._request_id = uuid.uuid4().hex

    @property
    def rules(self) -> RequestRules:
        model = self._model
        template = model.template
        return RequestRules(
            self._limits.strict_requests,
            template.options,
            model.max_top_logprobs,
            template.no_images,
            self._limits.max_text_bytes,
        )

    async def _prepare(self, record: AgentRecord, messages: list[Message], request: ChatRequest) -> Prepared:
        tools = request.tools
        key = PLAIN if request.plain else record.key_of(tools)
        match = record.graph.match(messages, key, request.constraints.prompt)
        if match.context is not None:
            return Prepared(match, key, [], match.branch)
        if request.plain:
            return Prepared(match, key, self._model.template.plain(messages[0].content), match.branch)
        if _takes_long(match.new):
            match, tokens = await asyncio.to_thread(self._render, match, messages, tools, key)
        else:
            match, tokens = self._render(match, messages, tools, key)
        return Prepared(match, key, tokens, match.branch)

    def _render(
        self, match: Match, messages: list[Message], tools: Sequence[Mapping[str, Any]], key: str
    ) -> tuple[Match, list[int]]:
        """The tokens of the new messages; of all, with another match, if the template cannot continue the turn."""
        template = self._model.template
        if match.node is not None:
            try:
                *before, sent = messages[: len(messages) - len(match.new)]
                (turn,) = match.node.messages
                new: Sequence[Message] = with_recorded_ids(match.new, sent, turn)
                if match.is_wish_new:
                    new = with_wish(new, match.wish)
                sampled, ended = match.node.tokens, match.node.ended
                return match, template.continuation([*before, turn], new, tools, sampled, ended, key)
            except CannotContinue as reason:
                index = len(messages) - len(match.new)
                role = match.new[0].role if match.new else ""
                branch = BranchPoint("template", index, role, 0, "", str(reason)[:200])
                match = Match(None, tuple(messages), None, branch, match.wish, bool(match.wish))
        try:
            return match, template.initial(with_wish(messages, match.wish), tools)
        except TemplateFailure as error:
            raise RequestRefused(str(error), parameter="messages") from error

    async def _sample_after(
        self, record: AgentRecord, request: ChatRequest, context: Node, tools: str, max_tokens: int
    ) -> Completion:
        prompt = context.path_tokens
        self.given_tokens += len(prompt)
        sampling = self._sampling(request)
        began_at, began = time.time(), time.monotonic()
        try:
            with waiting("model"):
                sampled = await self._model.generate(
                    f"{self._request_id}-{record.name}", prompt, sampling, max_tokens, context.images
                )
        finally:
            seconds = time.monotonic() - began
            self.generate_seconds += seconds
        cut = cut_at_stop(sampled.tokens, request.stop, self._model.text)
        if cut is not None:
            sampled = sampled.cut_at(cut)
        tokens, finished = sampled.tokens, sampled.ended or cut is not None
        parsed = await self._parse_turn(tokens, request, prompt)
        completion = Completion(
            content=parsed.content,
            reasoning=parsed.reasoning,
            tool_calls=tuple(parsed.calls),
            finish_reason="length" if not finished else "tool_calls" if parsed.calls else "stop",
            prompt_tokens=len(prompt),
            tokens=tokens,
            logprobs=sampled.logprobs,
            texts=[self._model.text([token]) for token in tokens] if request.logprobs else (),
            top_logprobs=self._with_texts(sampled.top_logprobs) if request.top_logprobs else (),
            malformed=(parsed.malformed or parsed.unfinished) and finished,
            seconds=seconds,
            stop=_first_stop(self._model.text(tokens), request.stop) if cut is not None else "",
            misses=request.constraints.misses(parsed.content, [call.name for call in parsed.calls]),
        )
        node = record.graph.add_sampled(context, tools, completion.message, sampled, completion.stop)
        shown_tools = request.tools if not request.plain else ()
        options = request_options(request)
        turn = SampledTurn(completion, node, options, shown_tools, sampling, max_tokens, began_at)
        self._add(record, turn)
        return completion

    def _with_texts(
        self, top_logprobs: Sequence[Sequence[tuple[int, float]]]
    ) -> Sequence[Sequence[tuple[str, float]]]:
        return [
            [(self._model.text([token]), logprob) for token, logprob in likely] for likely in top_logprobs
        ]

    async def _parse_turn(
        self, tokens: Sequence[int], request: ChatRequest, prompt: Sequence[int]
    ) -> ParsedTurn:
        if request.plain:
            text = self._model.text(tokens)
            stop = _first_stop(text, request.stop)
            return ParsedTurn(text.partition(stop)[0] if stop else text)
        turn = await self._model.parse(tokens, request.tools if request.use_tools else (), prompt)
        content = turn.content
        for stop in request.stop:
            content = content.partition(stop)[0]
        shown_calls = _with_ids(turn.calls) if request.use_tools else ()
        return ParsedTurn(content, turn.reasoning, shown_calls, turn.malformed, turn.unfinished)


def _takes_long(messages: Sequence[Message]) -> bool:
    has_images = any(message.images for message in messages)
    return has_images or sum(len(message.content) for message in messages) > _MAX_INLINE_CHARS


def _first_stop(text: str, stops: Sequence[str]) -> str:
    """The first in the text; the longer one of two at the same place."""
    found = [stop for stop in stops if stop in text]
    return min(found, key=lambda stop: (text.index(stop), -len(stop)), default="")


def _with_ids(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls with the identifiers that the model wrote, and new ones where it wrote none or repeated one."""
    named: dict[str, ToolCall] = {}
    for call in calls:
        call_id = call.call_id if call.call_id and call.call_id not in named else _call_id()
        named[call_id] = changed(call, call_id=call_id)
    return list(named.values())


def _call_id() -> str:
    return f"{_RANDOM.getrandbits(4 * _CALL_ID_LENGTH):0{_CALL_ID_LENGTH}x}"
