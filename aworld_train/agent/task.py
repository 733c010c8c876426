"""What an agent is given, and what it owes: one task and its surroundings in, one answer out.

An agent knows nothing of training. It finds a language model behind an OpenAI-compatible URL and tools behind an MCP
URL; that it is trained is the business of whoever answers at those URLs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aworld_train.rollout.messages import content_text
from aworld_train.rollout.outcome import AgentFailed, Outcome


class AgentTimedOut(AgentFailed):
    """The agent was not done when its time was over."""

    outcome = Outcome.timeout


@dataclass(frozen=True)
class AgentTask:
    """One task as the agent gets it.

    Attributes:
        messages: The chat messages of the dataset row, the recipe's system prompt included.
        index: The row's number.
        extra: What else the row holds.
    """

    messages: list[dict[str, Any]]
    index: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the last user message; empty where there is none."""
        return next(
            (content_text(m.get("content")) for m in reversed(self.messages) if m.get("role") == "user"), ""
        )

    @property
    def system(self) -> str:
        """The text of the system messages; empty where there are none."""
        return "\n\n".join(content_text(m.get("content")) for m in self.messages if m.get("role") == "system")


@dataclass(frozen=True)
class EpisodeContext:
    """What an agent finds around it during one episode.

    Attributes:
        llm_url: The base URL of the language model (it ends in ``/v1``) for an agent of this name, or for the only one.
            The URL alone identifies the episode.
        llm_key: The API key for an agent of this name.
        model: The model to ask for.
        mcp_url: The MCP endpoint of the tools.
        mcp_token: Its bearer token.
        mcp_servers: The tool servers to use; none means all.
        folder: Where the agent's own logs go; inside the run folder.
        seconds: The time limit of the episode; the caller also enforces it, by cancelling.
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
    """Something that does tasks; one object serves many episodes at the same time."""

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:
        """Do the task.

        Returns:
            The answer.

        Raises:
            AgentFailed: the agent broke.
            EpisodeFailure: something around it did.
        """

    def check(self) -> None:
        """Find out, before anything depends on it, whether the agent is there to be run.

        Raises:
            UsageError: it is not.
        """
