"""What an episode came to, whoever played it."""

from dataclasses import dataclass

from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.episode import Episode
from aworld_train.rollout.tool_record import ToolCounts


@dataclass
class EpisodeResult:
    """An episode and how it ended, filled while it is played; ``answer`` is what the reward is given for."""

    episode: Episode
    tools: ToolCounts
    outcome: Outcome
    answer: str = ""
    cause: str | None = None
