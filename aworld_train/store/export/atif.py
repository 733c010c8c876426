"""Harbor's Agent Trajectory Interchange Format (its RFC 0001): one trajectory a line, with token ids and logprobs.

A trajectory is one conversation of one agent. Steps that an earlier trajectory of the episode has too are marked as
copied context, so that nobody trains on them twice.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import numpy as np
from msgspec import Raw, json

from aworld_train.episode.message import Message
from aworld_train.image_files import data_uri, image_type
from aworld_train.store.content import StoredAgent, float_array
from aworld_train.store.export.conversations import (
    arguments_value,
    conversation_ends,
    episode_facts,
    image_writer,
)
from aworld_train.store.export.writer import JsonLinesWriter
from aworld_train.store.reading import ReadBlob, StoredEpisode

# As vLLM writes the logarithm of 0, which JSON cannot hold.
_LEAST_LOGPROB = -9999.0
_FACTS = "source task index phase step attempt correct_answer outcome treatment reward accuracy"
VERSION = "ATIF-v1.7"
"""Version 1.8 adds only audio."""


class AtifWriter(JsonLinesWriter):
    def lines(self, episode: StoredEpisode) -> Iterator[Mapping[str, Any]]:
        assert episode.content is not None
        for agent in episode.content.agents:
            exported_nodes: set[int] = set()
            for number, end in enumerate(conversation_ends(agent)):
                path = agent.path(end)
                steps = _StepBuilder(agent, exported_nodes, self.run.read_blob).build(path)
                exported_nodes.update(path)
                yield self._trajectory(episode, agent, number, end, steps)

    def _trajectory(
        self, episode: StoredEpisode, agent: StoredAgent, number: int, end: int, steps: list[dict[str, Any]]
    ) -> dict[str, Any]:
        head = episode.head
        call = agent.call_of(end)
        tools = episode.tools.get(agent.calls[call].tools) if call is not None else None
        agent_fields: dict[str, Any] = {"name": agent.name, "version": self.run.version or "unknown"}
        if self.run.model:
            agent_fields["model_name"] = self.run.model
        if tools:
            agent_fields["tool_definitions"] = tools
        metrics = [step["metrics"] for step in steps if "metrics" in step]
        extra = {
            "run": self.run.name,
            **episode_facts(head, _FACTS),
            "answer": episode.content.answer if episode.content else "",
        }
        return {
            "schema_version": VERSION,
            "session_id": head.id,
            "trajectory_id": f"{head.id}/{agent.name}/{number}",
            "agent": agent_fields,
            "steps": [{"step_id": step_id, **step} for step_id, step in enumerate(steps, 1)],
            "final_metrics": {
                "total_prompt_tokens": sum(metric["prompt_tokens"] for metric in metrics),
                "total_completion_tokens": sum(metric["completion_tokens"] for metric in metrics),
                "total_steps": len(steps),
            },
            "extra": extra,
        }


class _StepBuilder:
    """Builds the steps of one conversation, without ``exported_nodes``, which an earlier trajectory has."""

    def __init__(self, agent: StoredAgent, exported_nodes: Set[int], read_blob: ReadBlob):
        self._agent, self._exported_nodes, self._read_blob = agent, exported_nodes, read_blob
        self._calls = {call.node: call for call in agent.calls}
        self._steps: list[dict[str, Any]] = []

    def build(self, path: Sequence[int]) -> list[dict[str, Any]]:
        before: bytes | None = b""  # JSON, because the tokens before a call repeat those before the last
        for number in path:
            begin, node = len(self._steps), self._agent.nodes[number]
            ids = json.encode(node.token_ids) if node.has_tokens else None
            for message in node.messages:
                self._add(message)
            if node.sampled:
                self._add_call(before, ids, number)
            if ids is None or before is None:
                before = None
            elif node.token_count:
                before += (b"," if before else b"") + ids[1:-1]
            if number in self._exported_nodes:
                for step in self._steps[begin:]:
                    step["is_copied_context"] = True
        return self._steps

    def _add(self, message: Message) -> None:
        if message.role == "tool":
            self._add_result(message)
            return
        step: dict[str, Any] = {
            "source": _SOURCES.get(message.role, "user"),
            "message": self._content(message),
        }
        if message.role == "assistant":
            if message.reasoning:
                step["reasoning_content"] = message.reasoning
            if message.tool_calls:
                step["tool_calls"] = [
                    {
                        "tool_call_id": call.call_id or f"call_{number}",
                        "function_name": call.name,
                        **_arguments(call.arguments),
                    }
                    for number, call in enumerate(message.tool_calls)
                ]
            # A program may write in the assistant's name; `_add_call` removes this from what the model wrote.
            step["is_copied_context"] = True
        self._steps.append(step)

    def _add_result(self, message: Message) -> None:
        """Put a tool's result into the step that called it, or else into the last one of the agent."""
        result: dict[str, Any] = {"content": self._content(message)}
        step = next(
            (candidate for candidate in reversed(self._steps) if candidate["source"] == "agent"), None
        )
        if step is None:
            step = {"source": "system", "message": ""}
            self._steps.append(step)
        if message.call_id in [call["tool_call_id"] for call in step.get("tool_calls", ())]:
            result["source_call_id"] = message.call_id
        if message.name:
            result["extra"] = {"name": message.name}
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _add_call(self, before: bytes | None, ids: bytes | None, number: int) -> None:
        """Complete the step of a sampled node with what is known of its call and the tokens before it."""
        node, call, step = self._agent.nodes[number], self._calls.get(number), self._steps[-1]
        del step["is_copied_context"]
        step["llm_call_count"] = 1
        if call is None:
            return
        step["timestamp"] = datetime.fromtimestamp(call.began, UTC).isoformat()
        metrics: dict[str, Any] = {
            "prompt_tokens": call.prompt_tokens,
            "completion_tokens": node.token_count,
            "logprobs": np.maximum(float_array(node.logprobs or b""), _LEAST_LOGPROB).tolist(),
            "extra": {
                "seconds": call.seconds,
                "finish_reason": call.finish_reason,
                "temperature": call.temperature,
                "top_p": call.top_p,
                "top_k": call.top_k,
                "weights": list(node.versions) if node.versions else None,
            },
        }
        if before is not None:
            metrics["prompt_token_ids"] = Raw(b"[%b]" % before)
        if ids is not None:
            metrics["completion_token_ids"] = Raw(ids)
        step["metrics"] = metrics

    def _content(self, message: Message) -> str | list[Mapping[str, Any]]:
        def part(data: bytes) -> Mapping[str, Any]:
            return {"type": "image", "source": {"media_type": image_type(data), "path": data_uri(data)}}

        return message.parts(image_writer(self._read_blob, part))


_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def _arguments(text: str) -> dict[str, Any]:
    """Arguments as the object that the format requires; what is not an object goes beside an empty one."""
    value = arguments_value(text)
    if isinstance(value, dict):
        return {"arguments": value}
    return {"arguments": {}, "extra": {"arguments": value}}
