"""An `.eval` log of Inspect AI, which `inspect view` shows and its Python API reads.

It is a ZIP archive in version 2 of the log's schema (inspect.aisi.org.uk/eval-logs.html), written without Inspect AI,
which pins much. A sample is an episode; a task's episodes are its epochs. Those of an evaluation have the number of the
attempt, others are numbered through all steps.
"""

import math
import statistics
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.image_files import data_uri
from aworld_train.store.content import ModelCall, StoredAgent
from aworld_train.store.export.conversations import (
    arguments_object,
    episode_facts,
    image_writer,
)
from aworld_train.store.export.writer import ExportedRun, json_text
from aworld_train.store.reading import EpisodeHead, ReadBlob, StoredEpisode

SCHEMA_VERSION = 2
_MAX_SUMMARY_CHARS = 1_000
_STOP_REASONS = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "refusal": "stop",
}
# Outcomes that Inspect AI calls limits; the others but an answer are its errors.
_LIMITS = {"max_turns": "turn", "overlong": "token", "timeout": "time"}
_EVALUATION = "eval"  # the phase of an evaluation's episodes
_FACTS = "task source index phase step attempt outcome treatment cause advantage trained_step suspicions"
_SUMMARIZED = (
    "id epoch target metadata scores model_usage role_usage uuid started_at completed_at total_time "
    "turn_count"
)
_NO_ERRORS = ("answered", "format", "repetition", "refused", "filtered", *_LIMITS)
_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class InspectWriter:
    def __init__(self, file: Path, run: ExportedRun):
        self._run = run
        self._model = run.model or "model"
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        # An archive takes one member at a time, so the summaries of all samples wait beside it.
        self._summaries = tempfile.TemporaryFile(dir=file.parent)  # noqa: SIM115
        self._epochs: dict[str, set[int]] = defaultdict(set)
        self._scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._began, self._ended = float("inf"), 0.0
        self._usage: Counter[str] = Counter()
        self._errors = 0

    def add(self, episode: StoredEpisode) -> int:
        head = episode.head
        name = sample_id(head)
        sample = sample_of(episode, self._next_epoch(name, head), self._model, self._run.read_blob)
        self._archive.writestr(f"samples/{name}_epoch_{sample['epoch']}.json", json_text(sample))
        separator = b"," if self._count > 1 else b""
        self._summaries.write(separator + json_text(_summary(sample)))
        for scorer, score in (sample.get("scores") or {}).items():
            self._scores[scorer][name].append(score["value"])
        self._began = min(self._began, head.began)
        self._ended = max(self._ended, head.ended or head.began)
        self._usage.update(sample["model_usage"].get(self._model, {}))
        self._errors += "error" in sample
        return 1

    def finish(self) -> None:
        self._summaries.seek(0)
        with self._archive.open("summaries.json", "w", force_zip64=True) as member:
            member.write(b"[")
            while chunk := self._summaries.read(1 << 20):
                member.write(chunk)
            member.write(b"]")
        if self._scores:
            self._archive.writestr("reductions.json", json_text(self._reductions()))
        self._archive.writestr("header.json", json_text(self._header()))
        self._archive.close()
        self._summaries.close()

    def abandon(self) -> None:
        self._archive.close()
        self._summaries.close()

    @property
    def _count(self) -> int:
        return sum(map(len, self._epochs.values()))

    def _next_epoch(self, name: str, head: EpisodeHead) -> int:
        taken = self._epochs[name]
        epoch = head.attempt + 1 if head.phase == _EVALUATION else len(taken) + 1
        while epoch in taken:
            epoch += 1
        taken.add(epoch)
        return epoch

    def _header(self) -> dict[str, Any]:
        run, scorers, evaluation = self._run, sorted(self._scores), self._run.evaluation
        sampling = evaluation.sampling if evaluation else {}
        metrics = [{"name": "mean"}, {"name": "stderr"}]
        last = max((max(epochs) for epochs in self._epochs.values()), default=1)
        return {
            "version": SCHEMA_VERSION,
            "status": "success" if evaluation is None or evaluation.is_complete else "cancelled",
            "eval": {
                "eval_id": run.id,
                "run_id": run.id,
                "created": _time(self._began),
                "task": run.name,
                "task_id": run.id,
                "task_version": 0,
                "task_attribs": {},
                "task_args": {},
                "dataset": {
                    "name": evaluation.dataset if evaluation else run.name,
                    "samples": evaluation.tasks if evaluation else len(self._epochs),
                    "sample_ids": list(self._epochs),
                    "shuffled": False,
                },
                "model": self._model,
                **({"model_base_url": evaluation.model_url} if evaluation and evaluation.model_url else {}),
                "model_generate_config": {
                    name: value for name, value in sampling.items() if name != "top_k" or value > 0
                },
                "model_args": {},
                "config": {"epochs": evaluation.attempts if evaluation else last, "epochs_reducer": ["mean"]},
                "packages": {"aworld-train": run.version} if run.version else {},
                "metadata": {"recipe": run.recipe},
                # Models and tools wrote it, so the viewer shows it as plain text and loads no image that it names.
                "viewer": {"trust_content": False},
                "scorers": [{"name": name, "metrics": metrics} for name in scorers],
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {
                "total_samples": self._count,
                "completed_samples": self._count - self._errors,
                "scores": [self._result(name) for name in scorers],
            },
            "stats": {
                "started_at": _time(self._began),
                "completed_at": _time(self._ended),
                "model_usage": {self._model: dict(self._usage)} if self._usage else {},
                "role_usage": {},
            },
        }

    def _result(self, scorer: str) -> dict[str, Any]:
        by_task = self._scores[scorer]
        scored = sum(map(len, by_task.values()))
        means = [_mean(values) for values in by_task.values()]
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
        figures = {"mean": _mean(means), "stderr": error}
        return {
            "name": scorer,
            "scorer": scorer,
            "reducer": "mean",
            "scored_samples": scored,
            "unscored_samples": self._count - scored,
            "params": {},
            "metrics": {
                name: {"name": name, "value": value, "params": {}} for name, value in figures.items()
            },
        }

    def _reductions(self) -> list[dict[str, Any]]:
        return [
            {
                "scorer": scorer,
                "reducer": "mean",
                "samples": [{"sample_id": name, "value": _mean(values)} for name, values in by_task.items()],
            }
            for scorer, by_task in sorted(self._scores.items())
        ]


def sample_id(head: EpisodeHead) -> str:
    """The name of an episode's task in the log: its number, and what tells it from that number in another dataset."""
    return f"{head.index}-{head.task[:6]}"


def sample_of(episode: StoredEpisode, epoch: int, model: str, read_blob: ReadBlob) -> dict[str, Any]:
    content, head, figures = episode.content, episode.head, episode.head.figures
    assert content is not None
    events = _SampleEvents(episode, model, read_blob)
    usage = {
        "input_tokens": sum(call.prompt_tokens for agent in content.agents for call in agent.calls),
        "output_tokens": sum(
            agent.nodes[call.node].token_count for agent in content.agents for call in agent.calls
        ),
    }
    usage["total_tokens"] = sum(usage.values())
    sample: dict[str, Any] = {
        "id": sample_id(head),
        "epoch": epoch,
        "input": head.question,
        "target": head.correct_answer,
        "messages": events.last_conversation(),
        "output": events.last_output(),
        "metadata": {
            "episode": head.id,
            **episode_facts(head, _FACTS),
            **({"parts": figures.parts} if figures.parts else {}),
        },
        "store": {},
        "events": events.all(),
        "events_data": {"messages": events.pool, "calls": []},
        "model_usage": {model: usage},
        "role_usage": {},
        "attachments": {},
        "uuid": head.id,
        "started_at": _time(head.began),
        "completed_at": _time(head.ended if head.ended is not None else head.began),
        "total_time": figures.seconds,
        "turn_count": figures.turns,
    }
    if scores := _scores(episode):
        sample["scores"] = scores
    outcome, cause = figures.outcome or "", figures.cause or ""
    if outcome in _LIMITS:
        sample["limit"] = {"type": _LIMITS[outcome], "limit": 0, "reason": cause}
    elif outcome not in _NO_ERRORS:
        sample["error"] = {"message": f"{outcome}: {cause}", "traceback": "", "traceback_ansi": ""}
    return sample


def _scores(episode: StoredEpisode) -> dict[str, Any]:
    head, score = episode.head, episode.content.score if episode.content else None
    value = head.figures.reward
    if head.phase == _EVALUATION and head.accuracy is not None:
        value = head.accuracy
    if value is None:
        return {}
    return {
        head.figures.scorer or "reward": {
            "value": value,
            "answer": (score.extracted if score else None)
            or (episode.content.answer if episode.content else None),
            "explanation": "\n".join(score.steps) if score else None,
            "metadata": dict(score.parts) if score else {},
            "history": [],
        }
    }


class _SampleEvents:
    """The events of a sample. Messages are in ``pool`` once, and model calls name ranges of it."""

    def __init__(self, episode: StoredEpisode, model: str, read_blob: ReadBlob):
        assert episode.content is not None
        self._episode, self._content = episode, episode.content
        self._model = model
        self._image_part = image_writer(read_blob, lambda data: {"type": "image", "image": data_uri(data)})
        self.pool: list[dict[str, Any]] = []
        # Where the messages of a node are in the pool, by agent and node.
        self._places = {
            (index, number): self._pooled(f"{index}.{number}", node.messages)
            for index, agent in enumerate(self._content.agents)
            for number, node in enumerate(agent.nodes)
        }

    def all(self) -> list[dict[str, Any]]:
        head = self._episode.head
        timed = [
            (call.began, self._model_event(index, agent, number))
            for index, agent in enumerate(self._content.agents)
            for number, call in enumerate(agent.calls)
        ]
        timed += [
            (use.began, self._tool_event(number, use)) for number, use in enumerate(self._content.tool_calls)
        ]
        timed.sort(key=lambda event: event[0])
        events = [
            {
                **self._event("sample_init", "init", head.began),
                "sample": {"id": sample_id(head), "input": head.question, "target": head.correct_answer},
                "state": None,
            }
        ]
        events += [event for _, event in timed]
        for scorer, score in _scores(self._episode).items():
            events.append(
                {
                    **self._event("score", "score", head.ended if head.ended is not None else head.began),
                    "score": score,
                    "scorer": scorer,
                    "target": head.correct_answer,
                    "intermediate": False,
                }
            )
        return events

    def last_conversation(self) -> list[dict[str, Any]]:
        last = self._last_call()
        if last is None:
            return []
        index, agent, call = last
        return [
            message
            for node in agent.path(call.node)
            for message in self.pool[slice(*self._places[index, node])]
        ]

    def last_output(self) -> dict[str, Any]:
        last = self._last_call()
        return self._output(*last) if last else {"model": self._model, "choices": [], "completion": ""}

    def _last_call(self) -> tuple[int, StoredAgent, ModelCall] | None:
        calls = [
            (index, agent, call) for index, agent in enumerate(self._content.agents) for call in agent.calls
        ]
        return max(calls, key=lambda entry: entry[2].began, default=None)

    def _model_event(self, index: int, agent: StoredAgent, number: int) -> dict[str, Any]:
        call = agent.calls[number]
        return {
            **self._event("model", f"{index}.call.{number}", call.began),
            "model": self._model,
            "role": agent.name if len(self._content.agents) > 1 else None,
            "input": [],
            "input_refs": _merged([self._places[index, node] for node in agent.path(call.node)[:-1]]),
            "tools": _tools(self._episode.tools.get(call.tools) or ()),
            "tool_choice": "auto",
            "config": _config(call),
            "output": self._output(index, agent, call),
            "completed": _time(call.began + call.seconds),
            "working_time": call.seconds,
        }

    def _output(self, index: int, agent: StoredAgent, call: ModelCall) -> dict[str, Any]:
        node = agent.nodes[call.node]
        begin, end = self._places[index, call.node]
        message = self.pool[begin] if end > begin else {"role": "assistant", "content": ""}
        return {
            "model": self._model,
            "choices": [
                {"message": message, "stop_reason": _STOP_REASONS.get(call.finish_reason, "unknown")}
            ],
            "completion": node.messages[0].content if node.messages else "",
            "usage": {
                "input_tokens": call.prompt_tokens,
                "output_tokens": node.token_count,
                "total_tokens": call.prompt_tokens + node.token_count,
            },
            "time": call.seconds,
            "metadata": {
                "weights": list(node.versions) if node.versions else None,
                "malformed": call.malformed,
                "misses": list(call.misses),
            },
        }

    def _tool_event(self, number: int, use: ToolCallRecord) -> dict[str, Any]:
        arguments = arguments_object(use.arguments)
        error = {"error": {"type": "unknown", "message": use.result}} if use.is_error else {}
        return {
            **self._event("tool", f"tool.{number}", use.began),
            "type": "function",
            "id": use.call_id or f"tool.{number}",
            "function": use.name,
            "arguments": {"arguments": use.arguments} if arguments is None else arguments,
            "result": use.result,
            "events": [],
            "completed": _time(use.began + use.seconds),
            "working_time": use.seconds,
            "metadata": {"server": use.server, "replayed": use.replayed},
            **error,
        }

    def _event(self, kind: str, name: str, began: float) -> dict[str, Any]:
        return {
            "event": kind,
            "uuid": f"{self._episode.head.id}.{name}",
            "timestamp": _time(began),
            "working_start": max(0.0, began - self._episode.head.began),
        }

    def _pooled(self, name: str, messages: Sequence[Message]) -> tuple[int, int]:
        begin = len(self.pool)
        self.pool += [self._message(f"{name}.{number}", message) for number, message in enumerate(messages)]
        return begin, len(self.pool)

    def _message(self, name: str, message: Message) -> dict[str, Any]:
        content: Any = message.parts(self._image_part)
        if message.reasoning:
            texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            content = [{"type": "reasoning", "reasoning": message.reasoning}, *texts]
        # Inspect AI knows four authors.
        role = {"developer": "system"}.get(message.role, message.role)
        value: dict[str, Any] = {"id": f"{self._episode.head.id}.{name}", "role": role, "content": content}
        if message.tool_calls:
            value["tool_calls"] = [_tool_call(number, call) for number, call in enumerate(message.tool_calls)]
        if role == "assistant":
            value["model"] = self._model
        if role == "tool":
            value |= {"tool_call_id": message.call_id or None, "function": message.name or None}
        return value


def _tool_call(number: int, call: ToolCall) -> dict[str, Any]:
    arguments = arguments_object(call.arguments)
    value: dict[str, Any] = {
        "id": call.call_id or f"call_{number}",
        "function": call.name,
        "arguments": {} if arguments is None else arguments,
        "type": "function",
    }
    if arguments is None:
        value |= {"arguments": {"arguments": call.arguments}, "parse_error": "not a JSON object"}
    return value


def _config(call: ModelCall) -> dict[str, Any]:
    config: dict[str, Any] = {"temperature": call.temperature, "top_p": call.top_p}
    if call.top_k > 0:
        config["top_k"] = call.top_k
    if call.max_tokens:
        config["max_tokens"] = call.max_tokens
    return config


def _tools(schemas: Any) -> list[dict[str, Any]]:
    return [_tool(schema.get("function", schema)) for schema in schemas if isinstance(schema, dict)]


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    required = parameters.get("required") if isinstance(parameters, dict) else None
    return {
        "name": str(function.get("name") or ""),
        "description": str(function.get("description") or ""),
        "parameters": {
            "type": "object",
            "properties": {name: _parameter(value) for name, value in (properties or {}).items()}
            if isinstance(properties, dict)
            else {},
            "required": [name for name in required if isinstance(name, str)]
            if isinstance(required, list)
            else [],
        },
    }


def _parameter(schema: Any) -> dict[str, Any]:
    """What Inspect AI's form of a parameter has of a JSON schema; that form is strict about types."""
    if not isinstance(schema, dict):
        return {}
    value: dict[str, Any] = {}
    kinds = schema.get("type")
    if kinds in _JSON_TYPES or (isinstance(kinds, list) and all(kind in _JSON_TYPES for kind in kinds)):
        value["type"] = kinds
    if isinstance(schema.get("description"), str):
        value["description"] = schema["description"]
    if "default" in schema:
        value["default"] = schema["default"]
    if isinstance(schema.get("enum"), list):
        value["enum"] = schema["enum"]
    if isinstance(schema.get("items"), dict):
        value["items"] = _parameter(schema["items"])
    if isinstance(schema.get("properties"), dict):
        value["properties"] = {name: _parameter(inner) for name, inner in schema["properties"].items()}
    if isinstance(schema.get("anyOf"), list):
        value["anyOf"] = [_parameter(option) for option in schema["anyOf"]]
    return value


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    summary = {name: sample[name] for name in _SUMMARIZED.split() if name in sample}
    summary |= {
        "input": sample["input"][:_MAX_SUMMARY_CHARS],
        "completed": True,
        "message_count": len(sample["messages"]),
    }
    if "error" in sample:
        summary["error"] = sample["error"]["message"]
    if "limit" in sample:
        summary |= {"limit": sample["limit"]["type"], "limit_reason": sample["limit"]["reason"]}
    return summary


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges, in their order, of which neighbours are one."""
    merged: list[tuple[int, int]] = []
    for begin, end in ranges:
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        elif end > begin:
            merged.append((begin, end))
    return merged


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
