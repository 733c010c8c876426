"""A model behind an endpoint that speaks OpenAI's chat completions: messages in and messages out, no tokens."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.model import SamplingParams


class ContextExceeded(Exception):
    """The endpoint says that the conversation does not fit into its model's context."""


class FilterRefused(Exception):
    """A content filter of the endpoint refused the conversation."""


class ChatModel(ABC):
    """A model that is asked by messages, by one episode; ``faults`` are requests that were sent again, by kind."""

    faults: Counter[str]

    @abstractmethod
    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: SamplingParams,
        max_tokens: int,
        *,
        use_tools: bool = True,
    ) -> ChatAnswer:
        """The answer to a conversation; raises ``ContextExceeded``, ``FilterRefused``, or ``EpisodeFailure``."""
