"""The reward function that VeRL's reward manager calls (``reward.custom_reward_function``).

The mapping that it returns also carries the ``EpisodeScore``, which the worker replaces by figures for VeRL's metrics.
"""

from typing import Any

from aworld_train.adapter.episodes.scoring import EpisodeScore, score_episode

_RESULT = "episode_score"


async def score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    settings: str,
    **more: Any,
) -> dict[str, Any]:
    """Score one episode, with VeRL's arguments; ``settings`` is the file ``reward.yaml``."""
    episode_score = await score_episode(
        settings,
        data_source=data_source,
        response=solution_str,
        ground_truth=ground_truth,
        extra_info=extra_info,
        **more,
    )
    return {"score": episode_score.value, _RESULT: episode_score}


def take_score(output: Any) -> EpisodeScore | None:
    """Take the score out of an agent loop's output and leave its figures; None if ``score`` did not compute it."""
    details = output.extra_fields.get("reward_extra_info") or {}
    episode_score = details.get(_RESULT)
    if not isinstance(episode_score, EpisodeScore):
        return None
    output.extra_fields["reward_extra_info"] = episode_score.figures()
    return episode_score
