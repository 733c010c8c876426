"""What an episode came to, whoever played it."""

from dataclasses import dataclass

from aworld_train.rollout.episode import Episode
from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.react import ToolCounts


@dataclass
class EpisodeResult:
    """An episode and how it ended; filled while the episode is played.

    Attributes:
        episode: Everything that passed between agents and the language model.
        tools: The tool calls that were made.
        outcome: How it ended.
        answer: What the reward is given for.
        cause: Why it failed, if it did.
    """

    episode: Episode
    tools: ToolCounts
    outcome: Outcome
    answer: str = ""
    cause: str | None = None
