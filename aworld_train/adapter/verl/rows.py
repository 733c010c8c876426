"""Converts a finished episode into VeRL's outputs: one per row, all with the episode's reward.

A scorer can give single agents separate rewards by returning ``score/<agent>`` in addition to ``score``.
"""

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from aworld_train.adapter.episodes.player import FinishedEpisode, episode_facts


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
                # VeRL expects these two from every agent loop.
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
        for agent, row in finished.rows
    ]
