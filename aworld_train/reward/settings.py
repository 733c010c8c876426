"""How a run scores: defaults for rows that do not say, the judge, the composite, as plain data between processes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

SCORER = "number"
"""For tasks that name none, where nothing else is asked for."""
ANSWER_SCHEMA = "answer"
_MINUTE = 60.0


@dataclass(frozen=True)
class JudgeModel:
    """One language model that judges, at an OpenAI-compatible endpoint.

    Attributes:
        name: How messages call it.
        url: Where it is, up to where ``/chat/completions`` begins.
        model: What it is called there.
        key_variable: Environment variable that holds its key.
        timeout: Seconds one request may take.
        price_in: Price of a million prompt tokens, in whatever currency; 0 where nobody counts.
        price_out: Price of a million completion tokens.
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
    """Who judges, and how often it may be asked.

    Attributes:
        models: Asked in this order until one gives a verdict.
        concurrency: Most requests at the same time.
        per_minute: Most requests in a minute; 0 for no limit.
        attempts: How often a model is asked before the next one is.
        cache: Directory of answers that were given before; None keeps none.
        prompt: The judge's instructions; None for the package's own.
    """

    models: tuple[JudgeModel, ...] = ()
    concurrency: int = 16
    per_minute: int = 0
    attempts: int = 4
    cache: str | None = None
    prompt: str | None = None


@dataclass(frozen=True)
class CompositeSettings:
    """What the scorer ``composite`` adds up.

    Attributes:
        correct: Scorer that says whether the answer is right; None for the task's own.
        weights: Weight by part: ``correct``, ``format``, ``tool_use``, ``length``, ``cost``.
        gates: Parts that must be above 0, or the whole is 0.
        max_chars: Length of what the assistant said up to which ``length`` is 1; it falls to 0 at twice that.
        max_calls: Tool calls up to which ``cost`` is 1; it falls to 0 at twice that.
    """

    correct: str | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0})
    gates: tuple[str, ...] = ()
    max_chars: int = 8000
    max_calls: int = 16


@dataclass(frozen=True)
class ToolSettings:
    """The tool environment that runs the tests of ``code_tests``; its token is in ``MCP_SERVER_TOKEN``.

    Attributes:
        url: Its MCP endpoint; None for the one in ``MCP_SERVER_URL``.
        tool: The tool that runs Python.
        argument: That tool's argument for the source.
        servers: Tool servers to ask for; empty means all.
    """

    url: str | None = None
    tool: str = "run_python_code"
    argument: str = "code"
    servers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RewardSettings:
    """How a run scores.

    Attributes:
        scorer: In place of the tasks' own; None leaves the choice to them.
        answer_schema: Likewise.
        timeout: Seconds one score may take.
        judge: Who judges.
        composite: What ``composite`` adds up.
        tools: Where code runs.
    """

    scorer: str | None = None
    answer_schema: str | None = None
    timeout: float = 30.0
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    composite: CompositeSettings = field(default_factory=CompositeSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)

    def scorers_asked(self, named: Iterable[str | None]) -> set[str]:
        """The scorers that answers get to, from those that tasks name (None: none)."""
        own = {name or SCORER for name in named}
        asked = {self.scorer} if self.scorer else own
        if "composite" in asked:
            asked = asked | ({self.composite.correct} if self.composite.correct else own)
        return asked

    def patient(self) -> Self:
        """For programs that score many answers and wait for none: with time for a judge's turn in the minute."""
        judge = self.judge
        if not judge.per_minute:
            return self
        minutes = math.ceil(judge.concurrency / judge.per_minute) * max(1, len(judge.models))
        return replace(self, timeout=self.timeout + _MINUTE * minutes)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """From what ``to_plain`` made."""
        judge, composite, tools = data["judge"], data["composite"], data["tools"]
        models = tuple(JudgeModel(**model) for model in judge["models"])
        return cls(
            scorer=data["scorer"],
            answer_schema=data["answer_schema"],
            timeout=data["timeout"],
            judge=JudgeSettings(**{**judge, "models": models}),
            composite=CompositeSettings(**{**composite, "gates": tuple(composite["gates"])}),
            tools=ToolSettings(**{**tools, "servers": tuple(tools["servers"])}),
        )
