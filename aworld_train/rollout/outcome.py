"""How an episode can end, and which endings may be trained on.

Every episode has exactly one outcome. The agent's own doing (a good or bad answer, a malformed call, too many turns,
too many tokens) is what training is about. What the agent did not do (a tool environment that went away, an engine
that failed, time that ran out) is never trained on: such an episode is left out and counted, not scored 0.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """The one way an episode ended."""

    answered = "answered"
    malformed_call = "malformed_call"
    max_turns = "max_turns"
    overlong = "overlong"
    timeout = "timeout"
    environment = "environment"
    provider = "provider"

    @property
    def trainable(self) -> bool:
        """Whether the tokens of such an episode may be trained on."""
        return self in _AGENTS_OWN


_AGENTS_OWN = frozenset({Outcome.answered, Outcome.malformed_call, Outcome.max_turns, Outcome.overlong})


class EpisodeFailure(Exception):
    """Ends an episode from inside with an outcome that is not the agent's own doing."""

    outcome = Outcome.provider


class EnvironmentLost(EpisodeFailure):
    """The tool environment cannot be reached, or went away in the middle of a session."""

    outcome = Outcome.environment
