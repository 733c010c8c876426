"""The tokens of an episode as the model saw them: what it was given, what it sampled, and with which log-probability.

Invariant: ``prompt + response`` is exactly the input of the next model call; the positions with mask 1 are exactly the
sampled tokens, in order, each with the log-probability it was sampled with. Nothing is ever tokenised again.
"""

from dataclasses import dataclass, field


@dataclass
class TokenPath:
    """Prompt tokens and, after them, sampled tokens (mask 1) and tokens put in between (mask 0, log-probability 0)."""

    prompt: list[int]
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """Everything so far: the next input of the model."""
        return self.prompt + self.response

    @property
    def sampled(self) -> list[int]:
        """The tokens the model sampled, in order."""
        return [token for token, trained in zip(self.response, self.mask, strict=True) if trained]

    def add_sampled(self, tokens: list[int], logprobs: list[float]) -> None:
        """Append what the model sampled.

        Raises:
            ValueError: not one log-probability per token.
        """
        if len(tokens) != len(logprobs):
            raise ValueError(f"{len(tokens)} sampled tokens came with {len(logprobs)} log-probabilities")
        self.response += tokens
        self.mask += [1] * len(tokens)
        self.logprobs += logprobs

    def add_context(self, tokens: list[int]) -> None:
        """Append what the model is given: tool results and the frame around them."""
        self.response += tokens
        self.mask += [0] * len(tokens)
        self.logprobs += [0.0] * len(tokens)
