"""The interface of agents, which know nothing of training: one task and its episode's context in, one answer out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aworld_train.episode.message import content_text
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.outcome import AgentFailed


class AgentTimedOut(AgentFailed):
    outcome = Outcome.timeout


@dataclass(frozen=True)
class AgentTask:
    """One task, as the agent receives it: ``index`` and ``extra`` are the number and the other columns of its row."""

    messages: list[dict[str, Any]]
    index: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return next(
            (content_text(m.get("content")) for m in reversed(self.messages) if m.get("role") == "user"), ""
        )

    @property
    def system(self) -> str:
        return "\n\n".join(content_text(m.get("content")) for m in self.messages if m.get("role") == "system")


@dataclass(frozen=True)
class EpisodeContext:
    """The addresses, keys and limits of one episode, for its agent.

    ``llm_url`` and ``llm_key`` take an agent's name, or None if there is only one; the URL ends in ``/v1`` and
    identifies the episode. No ``mcp_servers`` are all. ``seconds`` are without waits for a tool worker; the caller
    enforces them, by cancelling.
    """

    llm_url: Callable[[str | None], str]
    llm_key: Callable[[str | None], str] = field(repr=False)
    model: str
    mcp_url: str
    mcp_token: str = field(repr=False)
    mcp_servers: tuple[str, ...]
    folder: Path
    seconds: float


class Agent(Protocol):
    """Solves tasks; one object serves many episodes at the same time."""

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:
        """Solve the task; raises ``AgentFailed``, or the ``EpisodeFailure`` of its model or tools."""

    def check(self) -> None:
        """Raise ``UsageError`` if the agent cannot be run."""
