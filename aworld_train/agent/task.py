"""The interface of agents: one task and its episode's context in, one answer out.

An agent knows nothing of training. It finds a language model behind an OpenAI-compatible URL and tools behind an MCP
URL; the servers at those URLs record the episode for training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aworld_train.rollout.messages import content_text
from aworld_train.rollout.outcome import AgentFailed, Outcome


class AgentTimedOut(AgentFailed):
    """The agent did not finish within its time limit."""

    outcome = Outcome.timeout


@dataclass(frozen=True)
class AgentTask:
    """One task, as the agent receives it.

    Attributes:
        messages: The chat messages of the dataset row, the recipe's system prompt included.
        index: The row's number.
        extra: The row's other columns.
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
    """The addresses, keys and limits of one episode, for its agent.

    Attributes:
        llm_url: Returns the language model's base URL (it ends in ``/v1``) for an agent's name, or for None if there is
            only one agent. The URL alone identifies the episode.
        llm_key: Returns the API key for an agent's name.
        model: The model name for requests.
        mcp_url: The MCP endpoint of the tools.
        mcp_token: Its bearer token.
        mcp_servers: The tool servers to use; none means all.
        folder: The folder for the agent's own logs, inside the run folder.
        seconds: The episode's time limit, waits for a tool worker apart; its caller enforces it, by cancelling.
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
        """Solve the task.

        Returns:
            The answer.

        Raises:
            AgentFailed: the agent failed.
            EpisodeFailure: its model or its tools failed.
        """

    def check(self) -> None:
        """Check before a run whether the agent can be run.

        Raises:
            UsageError: it cannot.
        """
