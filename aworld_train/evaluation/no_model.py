"""In place of a model, for agents that ask none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure


class NoModel(ChatModel):
    """Implements ``EpisodeModel`` for episodes in which nothing is asked."""

    def __init__(self, name: str):
        self.name = name
        self.tokenizer = None
        self.faults: Counter[str] = Counter()

    def for_episode(self) -> "NoModel":
        """Itself."""
        return self

    async def close(self) -> None:
        """Do nothing."""

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: SamplingParams,
        max_tokens: int,
        *,
        use_tools: bool = True,
    ) -> ChatAnswer:
        """Raises EpisodeFailure."""
        raise EpisodeFailure(f"there is no model for the agent {self.name}")
