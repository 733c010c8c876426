"""How a run scores: scorer, schema, judge, composite and tools, convertible to plain data for other processes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import msgspec

SCORER = "number"
"""The scorer of tasks that name none, unless the recipe sets one."""
ALIASES = {"agentcpm": "llm_judge"}
"""Names that other projects' task files have for scorers; AgentRL's judge is called agentcpm."""
ANSWER_SCHEMA = "answer"
_MINUTE = 60.0


@dataclass(frozen=True)
class JudgeModel:
    """One language model that judges, at an OpenAI-compatible endpoint: its ``url`` without ``/chat/completions``.

    ``timeout`` is seconds for one request; prices are of a million tokens, in any currency.
    """

    name: str
    url: str
    model: str
    key_variable: str | None = None
    timeout: float = 60.0
    price_in: float = 0.0
    price_out: float = 0.0


@dataclass(frozen=True)
class JudgeSettings:
    """The models that judge, tried in order until one gives a verdict, and the limits of requests to them.

    Without a ``prompt`` the package's own is used; ``attempts`` are at one model, and ``per_minute`` 0 means no limit.
    """

    models: tuple[JudgeModel, ...] = ()
    concurrency: int = 16
    per_minute: int = 0
    attempts: int = 4
    cache: str | None = None
    prompt: str | None = None


@dataclass(frozen=True)
class CompositeSettings:
    """The weights, gates and limits of the scorer ``composite``; ``correct`` None is the task's own scorer."""

    correct: str | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0})
    gates: tuple[str, ...] = ()
    max_chars: int = 8000
    max_calls: int = 16


@dataclass(frozen=True)
class ToolSettings:
    """The tool environment that runs the tests of ``code_tests``; its token is in ``MCP_SERVER_TOKEN``.

    ``url`` None is the one in ``MCP_SERVER_URL``; empty ``servers`` are all.
    """

    url: str | None = None
    tool: str = "run_python_code"
    argument: str = "code"
    servers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RewardSettings:
    """How a run scores, within ``timeout`` seconds; ``scorer`` and ``answer_schema`` override the tasks'."""

    scorer: str | None = None
    answer_schema: str | None = None
    timeout: float = 30.0
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    composite: CompositeSettings = field(default_factory=CompositeSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)

    def scorers_asked(self, names: Iterable[str | None]) -> set[str]:
        """The scorers that will run, given those that tasks name (None: a task that names none)."""
        from_tasks = {name or SCORER for name in names}
        scorers = {self.scorer} if self.scorer else from_tasks
        if "composite" in scorers:
            scorers = scorers | ({self.composite.correct} if self.composite.correct else from_tasks)
        return {ALIASES.get(scorer, scorer) for scorer in scorers}

    def patient(self) -> Self:
        """The same settings with time for many answers to wait their turn within the judges' limit per minute."""
        judge = self.judge
        if not judge.per_minute:
            return self
        minutes = math.ceil(judge.concurrency / judge.per_minute) * max(1, len(judge.models))
        return replace(self, timeout=self.timeout + _MINUTE * minutes)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        return msgspec.convert(data, cls)
