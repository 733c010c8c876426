"""Measures the first prompts of a run, tools included, in a process of its own, because that loads transformers.

The schemas of many tools are longer than most tasks, and are known only when the environment runs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.episodes.agent import tool_server
from aworld_train.adapter.episodes.settings import EpisodeSettings, settings_from
from aworld_train.episode.message import Message
from aworld_train.interruptible import run_interruptible
from aworld_train.model.turns import chat_template, has_fast_tokenizer, leave_out_torch, turns_line
from aworld_train.rollout.cassette import RecordedTools

_SHOWN_TOOLS = 3


@dataclass(frozen=True)
class FirstPrompts:
    """The tokens of the shortest and the longest first prompt; ``tools`` is the part of each for tools."""

    shortest: int
    longest: int
    tools: int
    tool_count: int
    largest: dict[str, int]

    def fault(self, limit: int) -> str | None:
        """Why no episode can begin with prompts of at most ``limit`` tokens; None if some can."""
        if self.shortest <= limit:
            return None
        return (
            f"No first prompt fits into dataset.max_prompt_tokens ({limit}): that of the shortest task has "
            f"{self.shortest} tokens{self._tools()}. Set dataset.max_prompt_tokens to {self.longest} or more"
            + (", or show fewer tools (env.servers, agent.tools)." if self.tool_count else ".")
        )

    def remark(self, limit: int) -> str | None:
        """What a user should know about prompts that are longer than ``limit``; None if all fit."""
        if self.longest <= limit:
            return None
        return (
            f"The first prompt of the longest task has {self.longest} tokens{self._tools()}, more than "
            f"dataset.max_prompt_tokens ({limit}): episodes of such tasks end before their first turn."
        )

    def _tools(self) -> str:
        if not self.tool_count:
            return ""
        largest = ", ".join(f"{name} {tokens}" for name, tokens in self.largest.items())
        tools = "1 tool" if self.tool_count == 1 else f"{self.tool_count} tools"
        return f", {self.tools} of them for the schemas of {tools} (the longest: {largest})"


def measure(
    settings: EpisodeSettings, model: str, options: Mapping[str, Any], datasets: Sequence[str]
) -> FirstPrompts | None:
    """Measure the first prompts of a run; None without a task. The tools' address is in the environment."""
    tools = run_interruptible(_schemas(settings))
    template = chat_template(model, options)
    extremes = _shortest_and_longest(datasets)
    if not extremes:
        return None
    system = settings.agent["system_prompt"]
    first = [Message("system", system)] if system else []
    prompts = [[*first, *(Message.read(message) for message in prompt)] for prompt in extremes]
    lengths = [len(template.initial(prompt, tools)) for prompt in prompts]
    without_tools = len(template.initial(prompts[0], []))
    by_tool = {
        tool["function"]["name"]: len(template.initial(prompts[0], [tool])) - without_tools for tool in tools
    }
    largest = sorted(by_tool.items(), key=lambda entry: -entry[1])[:_SHOWN_TOOLS]
    return FirstPrompts(min(lengths), max(lengths), lengths[0] - without_tools, len(tools), dict(largest))


async def _schemas(settings: EpisodeSettings) -> list[dict[str, Any]]:
    async with RecordedTools(tool_server(settings), settings.cassette) as tools:
        return await tools.schemas()


def _shortest_and_longest(datasets: Sequence[str]) -> list[list[dict[str, Any]]]:
    import pyarrow.parquet as pq

    extremes: list[tuple[int, list[dict[str, Any]]]] = []
    for file in datasets:
        for batch in pq.ParquetFile(Path(file).expanduser()).iter_batches(columns=["prompt"]):
            for prompt in batch.column("prompt").to_pylist():
                extremes.append((sum(len(str(message["content"])) for message in prompt), prompt))
                extremes = [min(extremes, key=itemgetter(0)), max(extremes, key=itemgetter(0))]
    return [prompt for _, prompt in extremes]


def _answer(settings: str | None, model: str, options: Mapping[str, Any], datasets: Sequence[str]) -> None:
    prompts = None
    if settings is not None:
        prompts = measure(settings_from(yaml.safe_load(settings)), model, options, datasets)
    sys.stdout.write(json.dumps(asdict(prompts) if prompts else None) + "\n")
    if has_fast_tokenizer(model):
        sys.stdout.write(turns_line(model, options) + "\n")


if __name__ == "__main__":
    leave_out_torch()
    _answer(*json.load(sys.stdin))
