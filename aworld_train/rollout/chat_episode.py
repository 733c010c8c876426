"""An episode whose model is asked by messages, at an outside endpoint: its limits in tokens are those of its counts.

Such an episode can be measured but not trained on: it has no rows, because nobody knows the ids of its tokens.
"""

import time

from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.chat_model import ChatModel, ContextExceeded, FilterRefused
from aworld_train.rollout.endpoint_tools import fitted_names, fitted_tool, renamed, renamed_calls
from aworld_train.rollout.episode import (
    AgentRecord,
    Episode,
    EpisodeLimits,
    Prepared,
    SampledTurn,
    request_options,
    with_wish,
)
from aworld_train.rollout.graph import Node
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.response_constraints import RequestRules
from aworld_train.thinking import divide
from aworld_train.waits import waiting


class ChatEpisode(Episode):
    def __init__(self, model: ChatModel, limits: EpisodeLimits):
        super().__init__(limits)
        self._model = model

    @property
    def rules(self) -> RequestRules:
        return RequestRules(
            self._limits.strict_requests, no_images="", max_text_bytes=self._limits.max_text_bytes
        )

    async def _prepare(self, record: AgentRecord, messages: list[Message], request: ChatRequest) -> Prepared:
        if request.plain:
            raise RequestRefused(
                "the model is at an endpoint that takes conversations, not texts to continue"
            )
        tools = record.key_of(request.tools)
        match = record.graph.match(messages, tools, request.constraints.prompt)
        return Prepared(match, tools, [], match.branch)

    async def _sample_after(
        self, record: AgentRecord, request: ChatRequest, context: Node, tools: str, max_tokens: int
    ) -> Completion:
        sampling = self._sampling(request)
        history = [message for node in context.path for message in node.messages]
        names = fitted_names([tool["function"]["name"] for tool in request.tools])
        messages = [renamed(message, names) for message in with_wish(history, context.wish)]
        tools_sent = [fitted_tool(tool, names) for tool in request.tools]
        began_at, began = time.time(), time.monotonic()
        try:
            with waiting("model"):
                answer = await self._model.answer(
                    messages, tools_sent, sampling, max_tokens, use_tools=request.use_tools
                )
        except ContextExceeded as error:
            raise self._limit_refusal(Outcome.overlong, str(error), "context_length_exceeded") from error
        except FilterRefused as error:
            raise self._limit_refusal(Outcome.filtered, str(error), "content_filter") from error
        finally:
            seconds = time.monotonic() - began
            self.generate_seconds += seconds
        if answer.prompt_tokens:
            context.count(answer.prompt_tokens)
        self.given_tokens += answer.prompt_tokens
        calls = renamed_calls(answer.tool_calls, {fitted: name for name, fitted in names.items()})
        completion = Completion(
            content=answer.content,
            reasoning=answer.reasoning,
            tool_calls=calls if request.use_tools else (),
            finish_reason=answer.finish_reason,
            prompt_tokens=answer.prompt_tokens,
            # A thought without an end, as in training.
            malformed=answer.malformed
            or (answer.finish_reason != "length" and divide(answer.content).unfinished is not None),
            seconds=seconds,
            misses=request.constraints.misses(answer.content, [call.name for call in calls]),
            counted=answer.sampled_tokens,
        )
        node = record.graph.add_answer(
            context, tools, completion.message, answer.sampled_tokens, answer.finish_reason != "length"
        )
        options = request_options(request)
        turn = SampledTurn(completion, node, options, request.tools, sampling, max_tokens, began_at)
        self._add(record, turn)
        return completion
