"""The agent loop ``mcp_agent``: a ReAct episode played inside VeRL, with tools over MCP.

VeRL makes one loop object per episode. It hands over prompts and takes back token rows; sampling goes through VeRL's
``server_manager.generate`` (tokens in, tokens out), tool calls are read with VeRL's parser, and messages become tokens
with VeRL's continuous-token builder, which only ever adds tokens.
"""

import asyncio
import os
import time
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.tool_parser import ToolParser

from aworld_train.adapter.verl.record import current_episode
from aworld_train.env import health_url
from aworld_train.rollout.outcome import EnvironmentLost, EpisodeFailure, Outcome
from aworld_train.rollout.path import TokenPath
from aworld_train.rollout.react import Episode, Limits, Message, ParsedTurn, Sampled, ToolCall, play
from aworld_train.rollout.tools import ToolServer, ToolSession, wait_until_healthy

_SUPERVISOR_SECONDS = 15.0  # how long the supervisor may take to end a run whose environment is lost
_ATTEMPTS = 2  # an episode whose environment went away is played once more, if the environment comes back


class McpAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays one task with the tools of an MCP server.

    Keyword arguments come from ``agent.yaml`` in the run folder: ``system_prompt``, ``tool_parser``, ``max_turns``,
    ``max_tool_result_chars``, ``tool_timeout``, ``episode_timeout``, ``recovery_timeout``, ``servers``. The endpoint
    and its token come from ``MCP_SERVER_URL`` and ``MCP_SERVER_TOKEN``, so that no file holds the token.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._system_prompt: str | None = kwargs["system_prompt"]
        self._episode_timeout: float = kwargs["episode_timeout"]
        self._recovery_timeout: float = kwargs["recovery_timeout"]
        self._limits = Limits(
            max_turns=kwargs["max_turns"],
            max_prompt_tokens=self.rollout_config.prompt_length,
            max_response_tokens=self.rollout_config.response_length,
            max_tool_result_chars=kwargs["max_tool_result_chars"],
        )
        self._server = _tool_server(
            kwargs["tool_timeout"], kwargs["episode_timeout"], list(kwargs["servers"])
        )
        self._parser = ToolParser.get_tool_parser(kwargs["tool_parser"], self.tokenizer)

    async def run(
        self, sampling_params: dict[str, Any], **task: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Play the task and return its row, or an empty list for an episode that must not be trained on."""
        messages = [dict(message) for message in task["raw_prompt"]]
        if self._system_prompt:
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        model = _EpisodeModel(self, sampling_params)
        began = time.monotonic()
        episode, cause = await self._play(model, messages)
        assert episode.outcome is not None
        record = current_episode()
        record.finish(episode, cause, time.monotonic() - began)
        if not episode.outcome.trainable or not episode.path.response:
            return []
        output = AgentLoopOutput(
            prompt_ids=episode.path.prompt,
            response_ids=episode.path.response,
            response_mask=episode.path.mask,
            response_logprobs=episode.path.logprobs,
            num_turns=2 * episode.turns,
            metrics=AgentLoopMetrics(
                generate_sequences=episode.generate_seconds, tool_calls=episode.tool_seconds
            ),
            extra_fields={
                "assistant_text": episode.assistant_text,
                "outcome": episode.outcome.value,
                "tool_call_count": episode.tool_calls,
                "tool_error_count": episode.tool_errors,
                "min_global_steps": model.first_steps,
                "max_global_steps": model.last_steps,
                # VeRL reads these two of every agent loop.
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
        record.output = output
        return output

    async def _play(self, model: "_EpisodeModel", messages: list[Message]) -> tuple[Episode, str | None]:
        """Play until there is an outcome; again, from the start, if the environment was lost and came back."""
        episode = Episode(TokenPath([]))
        cause: str | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            episode = Episode(TokenPath([]))
            try:
                async with asyncio.timeout(self._episode_timeout), ToolSession(self._server) as tools:
                    schemas = await self._server.schemas()
                    await play(model, tools, schemas, messages, self._limits, episode)
                    return episode, None
            except TimeoutError:
                episode.outcome = Outcome.timeout
                return episode, f"not over after {self._episode_timeout:g} seconds"
            except EnvironmentLost as error:
                episode.outcome, cause = error.outcome, str(error)
                if attempt == _ATTEMPTS:
                    break
                current_episode().lost(cause)
                # Longer than the run's supervisor waits: a step must not go on with the episodes that needed no tool.
                patience = self._recovery_timeout + _SUPERVISOR_SECONDS
                if not await wait_until_healthy(health_url(self._server.url), patience):
                    break
            except EpisodeFailure as error:
                episode.outcome = error.outcome
                return episode, str(error)
        return episode, cause


class _EpisodeModel:
    """The model of one episode, as ``rollout.react`` wants it, by way of VeRL."""

    def __init__(self, loop: McpAgentLoop, sampling_params: dict[str, Any]):
        self._loop = loop
        self._request_id = os.urandom(16).hex()
        self._params = dict(sampling_params)
        if loop._parser.stop_token_ids:
            self._params["stop_token_ids"] = list(loop._parser.stop_token_ids)
        self._ends = {loop.tokenizer.eos_token_id, *loop._parser.stop_token_ids}
        self.first_steps: int | None = None
        self.last_steps: int | None = None

    async def generate(self, tokens: list[int], max_tokens: int) -> Sampled:
        try:
            output = await self._loop.server_manager.generate(
                request_id=self._request_id,
                prompt_ids=tokens,
                sampling_params={**self._params, "max_tokens": max_tokens},
            )
        except Exception as error:
            raise EpisodeFailure(f"the engine failed: {type(error).__name__}: {error}") from error
        steps = output.extra_fields.get("global_steps")
        self.first_steps = steps if self.first_steps is None else self.first_steps
        self.last_steps = steps
        if output.stop_reason in ("aborted", "abort") or not output.token_ids:
            raise EpisodeFailure("the engine gave the request up")
        sampled = list(output.token_ids)
        ended = sampled[-1] in self._ends or len(sampled) < max_tokens
        return Sampled(sampled, list(output.log_probs or [0.0] * len(sampled)), ended)

    async def parse(self, tokens: list[int]) -> ParsedTurn:
        parser = self._loop._parser
        content, calls = await parser.extract_tool_calls(tokens)
        opened = getattr(parser, "tool_call_start_token", None)
        malformed = opened is not None and self.text(tokens, special=True).count(opened) != len(calls)
        return ParsedTurn(content, [ToolCall(call.name, call.arguments) for call in calls], malformed)

    async def render(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        # Not `ct_build_initial_tokens`: it cuts a prompt that is too long, and an episode would train on half a task.
        builder = self._loop.continuous_token_builder
        return list(await asyncio.to_thread(builder.build_initial_tokens, messages, tools=tools))

    async def render_results(
        self, before: list[Message], results: list[Message], tokens: list[int], tools: list[dict[str, Any]]
    ) -> list[int]:
        builder = self._loop.continuous_token_builder
        merged = await asyncio.to_thread(
            builder.merge_context_tokens, before, [*before, *results], tokens, tools=tools
        )
        if merged.token_ids[: len(tokens)] != tokens:
            raise EpisodeFailure(
                "the model's chat template changes earlier tokens when tool results are added"
            )
        return list(merged.token_ids[len(tokens) :])

    def text(self, tokens: list[int], special: bool = False) -> str:
        return str(self._loop.tokenizer.decode(tokens, skip_special_tokens=not special))


def _tool_server(call_timeout: float, patience: float, servers: list[str]) -> ToolServer:
    """The tool server that the environment variables name; a session may have to wait for a worker."""
    headers = {}
    if token := os.environ.get("MCP_SERVER_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    if servers:
        headers["MCP_SERVERS"] = ",".join(servers)
    return ToolServer(
        os.environ["MCP_SERVER_URL"], headers, call_timeout=call_timeout, connect_timeout=patience
    )
