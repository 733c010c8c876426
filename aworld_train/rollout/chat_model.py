"""A model behind an endpoint that speaks OpenAI's chat completions: messages in and messages out, no tokens."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aworld_train.rollout.messages import Message, ToolCall
from aworld_train.rollout.model import SamplingParams


class ContextExceeded(Exception):
    """The endpoint says that the conversation does not fit into its model's context."""


@dataclass(frozen=True)
class ChatAnswer:
    """An endpoint's answer.

    Attributes:
        content: The text.
        reasoning: The thoughts, if the endpoint tells them apart.
        tool_calls: The tool calls, each with its identifier.
        finish_reason: ``stop``, ``tool_calls`` or ``length`` (cut off).
        prompt_tokens: Tokens of the prompt, as the endpoint counts them; 0 if it does not say.
        sampled_tokens: Tokens that were sampled, thoughts included; 0 if it does not say.
    """

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Literal["stop", "tool_calls", "length"]
    prompt_tokens: int
    sampled_tokens: int


class ChatModel(ABC):
    """A model that is asked by messages, by one episode.

    Attributes:
        faults: Requests that failed and were sent again, by kind.
    """

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
        """The answer to a conversation.

        Args:
            messages: The whole conversation.
            tools: OpenAI function schemas.
            sampling: How tokens are sampled.
            max_tokens: The most that are sampled.
            use_tools: Whether tools may be called.

        Raises:
            ContextExceeded: The conversation is too long for the model.
            EpisodeFailure: The endpoint failed.
        """
