"""Failures that end an episode, each with its outcome.

What is dropped can be gamed, so a failure is the environment's only by evidence that the episode cannot make:
``loss_evidence`` looks for it.
"""

from aworld_train.episode.outcome import Outcome


class EpisodeFailure(Exception):
    """Ends an episode with an outcome; others fail alike if it ``is_permanent``: an endpoint takes no request."""

    outcome = Outcome.provider
    is_permanent = False


class EngineLost(EpisodeFailure):
    """The process that sampled for the episode has died, and others sample in its place."""

    outcome = Outcome.infrastructure


class EnvironmentLost(EpisodeFailure):
    """The tool environment cannot be reached, or went away in the middle of a session."""

    outcome = Outcome.environment


class ToolsBroken(EnvironmentLost):
    """The worker of a tool session was lost, and nothing that the session cannot reach shows another cause."""

    outcome = Outcome.broken_tools


class ToolHelperFailed(EpisodeFailure):
    """The model that condenses long tool results failed."""

    outcome = Outcome.tool


class AgentFailed(EpisodeFailure):
    """The agent program crashed, or gave no answer."""

    outcome = Outcome.agent
