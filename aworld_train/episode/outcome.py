"""How an episode can end.

Every episode has exactly one outcome. Outcomes that the model caused (a good or bad answer, a malformed call, too many
turns, too many tokens, repetition, too much time, a tool worker that its calls brought down) are trained on. Outcomes
that it did not cause (a lost tool environment, a failed engine, a crashed agent program) are never scored 0: such an
episode is dropped and counted. The recipe's ``rollout.treatment`` says it for each outcome.
"""

from enum import Enum, StrEnum


class Outcome(StrEnum):
    answered = "answered"
    wrong_format = "format"
    max_turns = "max_turns"
    overlong = "overlong"
    repetition = "repetition"
    refused = "refused"
    filtered = "filtered"
    timeout = "timeout"
    broken_tools = "broken_tools"
    environment = "environment"
    tool = "tool"
    provider = "provider"
    agent = "agent"
    infrastructure = "infrastructure"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Outcome.answered: "the agent came to an answer",
    Outcome.wrong_format: "the model's last turn began a call that cannot be read, or a thought without an end",
    Outcome.max_turns: "the model used up its turns",
    Outcome.overlong: "the model used up its tokens",
    Outcome.repetition: "the model repeated itself",
    Outcome.refused: "the model refused to answer, as its endpoint says",
    Outcome.filtered: "a content filter of the model's endpoint stopped the conversation",
    Outcome.timeout: "the episode's time ran out in a tool call, or the engine did not take the most of it",
    Outcome.broken_tools: "the tool worker of the episode was lost, and nothing shows that the episode did not do it",
    Outcome.environment: "the tool environment could not be reached or went away",
    Outcome.tool: "a helper that tools depend on failed",
    Outcome.provider: "the engine, or another language model, failed",
    Outcome.agent: "the agent program failed",
    Outcome.infrastructure: "something else failed around the episode",
}


class Treatment(Enum):
    """``trained`` on; ``masked``: it counts in its group's baseline alone; or ``dropped``: it counts nowhere.

    The recipe's ``rollout.treatment`` says it for each outcome. Without a score, without its process, or in a group
    that is too small, an episode is dropped, whatever the recipe says.
    """

    trained = "trained"
    masked = "masked"
    dropped = "dropped"
