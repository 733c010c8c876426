"""Episodes as OpenTelemetry spans, by its semantic conventions for generative AI.

An episode is a trace: ``invoke_agent`` over it, below that a ``chat`` for each model call and an ``execute_tool`` for
each tool call. A chat has only the messages that are new in its conversation. Phoenix shows spans by the attributes of
OpenInference (its spec/semantic_conventions.md), which are there too. Ids are made from the episode's, so an episode
that is sent twice is the same trace.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCallRecord
from aworld_train.store.content import EpisodeContent, ModelCall, StoredAgent
from aworld_train.store.export.conversations import episode_facts, messages_of, new_messages
from aworld_train.store.export.writer import json_text
from aworld_train.store.reading import StoredEpisode

PROVIDER = "aworld-train"
_FACTS = "step phase attempt status treatment reward accuracy scorer"
_MAX_TEXT_CHARS = 32_000
_FINISH_REASONS = {"tool_calls": "tool_call"}
_INSTRUCTION_ROLES = ("system", "developer")
AttributeValue = str | bool | int | float | Sequence[str]


class SpanKind(IntEnum):
    internal = 1
    client = 3


@dataclass(frozen=True)
class Span:
    """One span: ids are 16 bytes of the trace and 8 of the span, times Unix nanoseconds, ``error`` what failed."""

    name: str
    kind: SpanKind
    trace: bytes
    id: bytes
    parent: bytes
    began: int
    ended: int
    attributes: Mapping[str, AttributeValue] = field(repr=False)
    error: str | None = None


def episode_spans(episode: StoredEpisode, *, run: str, model: str = "") -> list[Span]:
    """The spans of an episode that has ended, the root first."""
    return _Trace(episode, run, model or "model").spans()


class _Trace:
    def __init__(self, episode: StoredEpisode, run: str, model: str):
        self._episode, self._head, self._run, self._model = episode, episode.head, run, model
        self._trace = hashlib.sha256(f"trace {self._head.id}".encode()).digest()[:16]

    def spans(self) -> list[Span]:
        content = self._episode.content
        agents = content.agents if content is not None else ()
        root = self._root(content, agents)
        spans = [root]
        # With one agent the episode is its invocation; with several each has its own below it.
        parents = [root.id] * len(agents)
        if len(agents) > 1:
            invocations = [self._invocation(root, index, agent) for index, agent in enumerate(agents)]
            parents = [span.id for span in invocations]
            spans += invocations
        for index, agent in enumerate(agents):
            spans += [
                self._chat(parents[index], index, agent, number, call)
                for number, call in enumerate(agent.calls)
            ]
        callers = {
            call.call_id: index
            for index, agent in enumerate(agents)
            for node in agent.nodes
            if node.sampled
            for message in node.messages
            for call in message.tool_calls
            if call.call_id
        }
        for number, use in enumerate(content.tool_calls if content is not None else ()):
            caller = callers.get(use.call_id)
            spans.append(self._tool(root.id if caller is None else parents[caller], number, use))
        return spans

    def _root(self, content: EpisodeContent | None, agents: Sequence[StoredAgent]) -> Span:
        head, figures = self._head, self._head.figures
        agent = agents[0].name if len(agents) == 1 else self._run
        calls = [call for played in agents for call in played.calls]
        outcome = figures.outcome or ""
        attributes: dict[str, Any] = {
            **self._common("invoke_agent", "AGENT"),
            "gen_ai.agent.name": agent,
            "gen_ai.request.model": self._model,
            "gen_ai.usage.input_tokens": sum(call.prompt_tokens for call in calls),
            "gen_ai.usage.output_tokens": figures.sampled_tokens,
            "gen_ai.input.messages": _messages([Message("user", head.question)]),
            "gen_ai.output.messages": _messages([Message("assistant", content.answer)], "stop")
            if content is not None
            else None,
            "input.value": _cut(head.question),
            "output.value": _cut(content.answer) if content is not None else None,
            "aworld.run": self._run,
            "aworld.episode": head.id,
            "aworld.task": head.task,
            "aworld.task.source": head.source,
            "aworld.task.index": head.index,
            "aworld.outcome": outcome,
            **{f"aworld.{name}": value for name, value in episode_facts(head, _FACTS).items()},
        }
        if figures.reward is not None:
            attributes |= {
                "gen_ai.evaluation.name": figures.scorer,
                "gen_ai.evaluation.score.value": figures.reward,
            }
        error = None
        if outcome != "answered":
            attributes["error.type"] = outcome or head.status
            error = figures.cause or outcome or head.status
        ended = head.ended if head.ended is not None else head.began
        began = min([head.began, *(call.began for call in calls)])
        return self._span(
            f"invoke_agent {agent}", SpanKind.internal, "root", b"", began, ended, attributes, error
        )

    def _invocation(self, root: Span, index: int, agent: StoredAgent) -> Span:
        calls = agent.calls
        began = min((call.began for call in calls), default=root.began / 1e9)
        ended = max((call.began + call.seconds for call in calls), default=began)
        attributes = {
            **self._common("invoke_agent", "AGENT"),
            "gen_ai.agent.name": agent.name,
            "gen_ai.request.model": self._model,
            "gen_ai.usage.input_tokens": sum(call.prompt_tokens for call in calls),
            "gen_ai.usage.output_tokens": sum(agent.nodes[call.node].token_count for call in calls),
        }
        name = f"invoke_agent {agent.name}"
        return self._span(name, SpanKind.internal, f"agent {index}", root.id, began, ended, attributes)

    def _chat(self, parent: bytes, index: int, agent: StoredAgent, number: int, call: ModelCall) -> Span:
        node = agent.nodes[call.node]
        new_inputs, outputs = new_messages(agent, call.node), messages_of(agent, [call.node])
        finish_reason = _FINISH_REASONS.get(call.finish_reason, call.finish_reason)
        instructions = [message for message in new_inputs if message.role in _INSTRUCTION_ROLES]
        inputs = [message for message in new_inputs if message.role not in _INSTRUCTION_ROLES]
        attributes: dict[str, Any] = {
            **self._common("chat", "LLM"),
            "gen_ai.agent.name": agent.name,
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.request.temperature": call.temperature,
            "gen_ai.request.top_p": call.top_p,
            "gen_ai.request.top_k": call.top_k if call.top_k > 0 else None,
            "gen_ai.request.max_tokens": call.max_tokens or None,
            "gen_ai.response.finish_reasons": [call.finish_reason],
            "gen_ai.usage.input_tokens": call.prompt_tokens,
            "gen_ai.usage.output_tokens": node.token_count,
            "gen_ai.system_instructions": json_text(
                [_text_part(message.content) for message in instructions]
            ).decode()
            if instructions
            else None,
            "gen_ai.input.messages": _messages(inputs),
            "gen_ai.output.messages": _messages(outputs, finish_reason),
            # Only the first of several calls in succession with the same tools has them.
            "gen_ai.tool.definitions": self._tools(agent, number),
            "llm.model_name": self._model,
            "llm.token_count.prompt": call.prompt_tokens,
            "llm.token_count.completion": node.token_count,
            "llm.token_count.total": call.prompt_tokens + node.token_count,
            **_openinference("llm.input_messages", new_inputs),
            **_openinference("llm.output_messages", outputs),
            "aworld.call": number,
            "aworld.malformed": call.malformed,
            "aworld.delivered": node.received,
            "aworld.weights": node.versions[1] if node.versions else None,
        }
        return self._span(
            f"chat {self._model}",
            SpanKind.client,
            f"call {index} {number}",
            parent,
            call.began,
            call.began + call.seconds,
            attributes,
        )

    def _tools(self, agent: StoredAgent, number: int) -> str | None:
        digest = agent.calls[number].tools
        if digest not in self._episode.tools or (number and agent.calls[number - 1].tools == digest):
            return None
        schemas = self._episode.tools[digest]
        return json_text([{"type": "function", **_function(schema)} for schema in schemas]).decode()

    def _tool(self, parent: bytes, number: int, use: ToolCallRecord) -> Span:
        attributes = {
            **self._common("execute_tool", "TOOL"),
            "gen_ai.tool.name": use.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": use.call_id or None,
            "gen_ai.tool.call.arguments": _cut(use.arguments),
            "gen_ai.tool.call.result": _cut(use.result),
            "tool.name": use.name,
            "input.value": _cut(use.arguments),
            "output.value": _cut(use.result),
            "aworld.tool.server": use.server or None,
            "aworld.tool.replayed": use.replayed,
            "error.type": "tool_error" if use.is_error else None,
        }
        return self._span(
            f"execute_tool {use.name}",
            SpanKind.internal,
            f"tool {number}",
            parent,
            use.began,
            use.began + use.seconds,
            attributes,
            _cut(use.result, 1_000) if use.is_error else None,
        )

    def _common(self, operation: str, openinference_kind: str) -> dict[str, Any]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.conversation.id": self._head.id,
            "openinference.span.kind": openinference_kind,
            "session.id": self._head.id,
        }

    def _span(
        self,
        name: str,
        kind: SpanKind,
        place: str,
        parent: bytes,
        began: float,
        ended: float,
        attributes: Mapping[str, Any],
        error: str | None = None,
    ) -> Span:
        span_id = hashlib.sha256(f"{self._head.id} {place}".encode()).digest()[:8]
        begin = int(began * 1e9)
        end = max(begin, int(ended * 1e9))
        present = {key: value for key, value in attributes.items() if value is not None}
        return Span(name, kind, self._trace, span_id, parent, begin, end, present, error)


def _messages(messages: Sequence[Message], finish_reason: str | None = None) -> str:
    values = []
    for message in messages:
        value: dict[str, Any] = {"role": message.role, "parts": _parts(message)}
        if finish_reason is not None:
            value["finish_reason"] = finish_reason
        values.append(value)
    return json_text(values).decode()


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        part = {"type": "tool_call_response", "response": _cut(message.content)}
        return [part | ({"id": message.call_id} if message.call_id else {})]
    parts: list[dict[str, Any]] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "content": _cut(message.reasoning)})
    if message.content:
        parts.append(_text_part(message.content))
    parts += [{"type": "image", "sha256": image.digest} for image in message.images]
    parts += [
        {
            "type": "tool_call",
            "id": call.call_id or None,
            "name": call.name,
            "arguments": _value(call.arguments),
        }
        for call in message.tool_calls
    ]
    return parts


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": _cut(text)}


def _openinference(prefix: str, messages: Sequence[Message]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for number, message in enumerate(messages):
        key_prefix = f"{prefix}.{number}.message"
        content = (
            f"{message.reasoning}\n\n{message.content}".strip() if message.reasoning else message.content
        )
        flat |= {f"{key_prefix}.role": message.role, f"{key_prefix}.content": _cut(content)}
        if message.call_id:
            flat[f"{key_prefix}.tool_call_id"] = message.call_id
        if message.name:
            flat[f"{key_prefix}.name"] = message.name
        for index, call in enumerate(message.tool_calls):
            key = f"{key_prefix}.tool_calls.{index}.tool_call"
            flat[f"{key}.function.name"] = call.name
            flat[f"{key}.function.arguments"] = _cut(call.arguments)
            if call.call_id:
                flat[f"{key}.id"] = call.call_id
    return flat


def _function(schema: Any) -> dict[str, Any]:
    function = schema.get("function", schema) if isinstance(schema, dict) else {}
    return function if isinstance(function, dict) else {}


def _value(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= _MAX_TEXT_CHARS else _cut(text)
    except (ValueError, RecursionError):
        return _cut(text)


def _cut(text: str, max_chars: int = _MAX_TEXT_CHARS) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… ({len(text) - max_chars:,} more characters)"
