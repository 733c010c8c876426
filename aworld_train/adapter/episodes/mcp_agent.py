"""The package's own agent: ReAct with the tools of an MCP server, in this process."""

from collections.abc import Mapping
from typing import Any

from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.cassette import RecordedTools
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.react import play


class McpAgent(EpisodeAgent):
    async def play(
        self, messages: list[Message], task: Mapping[str, Any], result: EpisodeResult, model_name: str
    ) -> str:
        """The answer is the text of all assistant turns."""
        conversation = result.episode.conversation("agent")
        try:
            async with RecordedTools(self.server, self.settings.cassette) as tools:
                unfinished = await play(
                    conversation,
                    tools,
                    await tools.schemas(),
                    messages,
                    result.tools,
                    max_turns=self.settings.agent["max_turns"],
                    max_result_chars=self.settings.agent["max_tool_result_chars"],
                    with_images=not result.episode.rules.no_images,
                )
            if unfinished:
                result.episode.stop(Outcome.max_turns)
        finally:
            result.answer = result.episode.text_of("agent")
        return result.answer
