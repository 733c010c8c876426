"""The agent loop for VeRL: passes a task to the episode player and returns the episode's rows."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from aworld_train.adapter.episodes.player import EpisodePlayer, FinishedEpisode, episode_facts
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.adapter.verl.cpu.sampling import MAX_TOP_LOGPROBS
from aworld_train.adapter.verl.images import image_tokens
from aworld_train.adapter.verl.language_model import VerlModel
from aworld_train.model.turns import end_tokens

STOPPING_ENGINES = ("transformers", "vllm")
"""The engines that end generation at a text and return its tokens; others sample on, and are cut afterwards."""


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]
    def __init__(self, *args: Any, settings: str, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.player = _player(settings)

    async def run(self, sampling_params: dict[str, Any], **task: Any) -> list[Any]:
        """Play the task and return its rows; none for an episode that must not be trained on."""
        path = str(self.config.actor_rollout_ref.get("model", {}).get("path") or "model")
        engine = self.rollout_config.get("name")
        model = VerlModel(
            self.server_manager,
            self.tokenizer,
            self.player.settings.agent["tool_parser"],
            self.apply_chat_template_kwargs,
            end_tokens(path),
            engine_stops=engine in STOPPING_ENGINES,
            seed_parameter="sampling_seed" if engine == "sglang" else "seed",
            max_top_logprobs=MAX_TOP_LOGPROBS if engine == "transformers" else 0,
            images=image_tokens(self.processor, engine, json.dumps(dict(self.mm_processor_kwargs or {}))),
        )
        finished = await self.player.play(
            model,
            task,
            sampling_params,
            model_name=Path(path).name,
            max_prompt_tokens=self.rollout_config.prompt_length,
            max_response_tokens=self.rollout_config.response_length,
        )
        return list(output_rows(finished))


@lru_cache(maxsize=4)
def _player(settings: str) -> EpisodePlayer:
    return EpisodePlayer(read_settings(settings))


class EpisodeRow(AgentLoopOutput):  # type: ignore[misc]
    def as_dict(self) -> dict[str, Any]:
        """VeRL's fields of the row, with the agent's own reward if the scorer returned one."""
        scores = self.extra_fields.get("reward_extra_info") or {}
        own = scores.get(f"score/{self.extra_fields['agent']}")
        if own is None:
            return dict(super().as_dict())
        # A copy, because the record reads the episode's reward from the row itself.
        return dict(AgentLoopOutput.as_dict(self.model_copy(update={"reward_score": float(own)})))


def output_rows(finished: FinishedEpisode) -> list[EpisodeRow]:
    """The rows of an episode; VeRL scores the last one and copies the score to all."""
    result, tools = finished.result, finished.result.tools
    return [
        EpisodeRow(
            prompt_ids=row.prompt,
            response_ids=row.response,
            response_mask=row.mask,
            response_logprobs=row.logprobs,
            multi_modal_data={"images": [image.picture for image in row.images]} if row.images else None,
            num_turns=2 * len(row.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=result.episode.generate_seconds, tool_calls=tools.seconds
            ),
            extra_fields={
                "agent": agent,
                **episode_facts(finished),
                "min_global_steps": row.versions.first if row.versions else None,
                "max_global_steps": row.versions.last if row.versions else None,
                "version_parts": row.version_parts,
                # VeRL expects these two from every agent loop.
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
        for agent, row in finished.rows
    ]
