"""Counts of the episodes of a run, by kind and step."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

_MAX_CAUSE_CHARS = 200  # in the summary
_WITHIN_STEP = ("rewards", "compared", "played")  # figures of EpisodeCounts


@dataclass
class EpisodeCounts:
    """Episodes of one kind (training or validation) of one step."""

    episodes: int = 0
    scored: int = 0
    correct: float = 0.0
    correct_with_tool: float = 0.0
    tool_calls: int = 0
    tool_errors: int = 0
    tool_seconds: float = 0.0
    environment_losses: int = 0
    rows: int = 0
    row_tokens: int = 0
    unique_tokens: int = 0
    branches: Counter[str] = field(default_factory=Counter)
    format_misses: Counter[str] = field(default_factory=Counter)
    undelivered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    """Of those that are not trained on."""
    outcome_causes: Counter[str] = field(default_factory=Counter)
    """Of all that have one, each behind its outcome."""
    sampled_tokens: int = 0
    sampled_episodes: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    suspicions: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    part_counts: Counter[str] = field(default_factory=Counter)
    reward: float = 0.0
    turns: int = 0
    scored_response_tokens: int = 0
    rewards: dict[tuple[int, str], set[float]] = field(default_factory=dict)
    """Those that are compared, by task and by agent; with an empty name those of agents without an own one."""
    compared: Counter[int] = field(default_factory=Counter)
    played: Counter[int] = field(default_factory=Counter)
    """Episodes by task."""
    dropped: Counter[int] = field(default_factory=Counter)
    """Those that are left out, by task."""

    def add(self, line: dict[str, Any]) -> None:
        if line.get("cause") and line.get("treatment") != "trained":
            self.causes[line["cause"]] += 1
        self.environment_losses += line["outcome"] == "environment"
        if line.get("retried"):
            return
        self.episodes += 1
        task = line.get("index", -1)
        self.played[task] += 1
        if line.get("treatment") == "dropped":
            self.dropped[task] += 1
        self.tool_calls += line.get("tool_calls", 0)
        self.tool_errors += line.get("tool_errors", 0)
        self.tool_seconds += line.get("tool_seconds", 0.0)
        self.outcomes[line["outcome"]] += 1
        if cause := line.get("cause"):
            self.outcome_causes[f"{line['outcome']}: {cause[:_MAX_CAUSE_CHARS]}"] += 1
        self.branches.update(line.get("branches", {}))
        self.format_misses.update(line.get("format_misses", {}))
        self.undelivered += line.get("undelivered", 0)
        if line.get("rows"):
            self.rows += line["rows"]
            self.row_tokens += line["prompt_tokens"] + line["response_tokens"]
            self.unique_tokens += line["unique_tokens"]
            self.sampled_tokens += line["sampled_tokens"]
            self.sampled_episodes += 1
        if line.get("scoring") and line.get("reward") is None:
            self.unscored[f"{line['scorer']}: {line['scoring']}"] += 1
        # Parts count without a score too, because a judge that returned no verdict has been paid as well.
        self.parts.update(line.get("parts", {}))
        self.part_counts.update(list(line.get("parts", {})))
        self.suspicions.update(line.get("suspicions", ()))
        if line.get("reward") is None:
            return
        self._compare(line)
        self.scored += 1
        self.reward += line["reward"]
        self.turns += line.get("turns", 0)
        self.scored_response_tokens += line.get("response_tokens", 0)
        correct = float(line["scores"].get("acc", line["reward"]))
        self.correct += correct
        self.correct_with_tool += correct if line.get("tool_calls") else 0.0

    def _compare(self, line: dict[str, Any]) -> None:
        task, scores = line.get("index", -1), line["scores"]
        self.compared[task] += 1
        own = {agent: scores.get(f"score/{agent}") for agent in line.get("agents") or [""]}
        for agent, reward in own.items():
            key = (task, "" if reward is None else agent)
            self.rewards.setdefault(key, set()).add(line["reward"] if reward is None else reward)

    def merge(self, other: "EpisodeCounts") -> None:
        for name in (each.name for each in fields(self) if each.name not in _WITHIN_STEP):
            value = getattr(other, name)
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    @property
    def compared_tasks(self) -> int:
        """Tasks of which several episodes have a reward."""
        return sum(count > 1 for count in self.compared.values())

    @property
    def varied_tasks(self) -> int:
        """Tasks of which the episodes, or an agent's parts of them, have different rewards."""
        return len({task for (task, _), rewards in self.rewards.items() if len(rewards) > 1})

    @property
    def means(self) -> dict[str, float]:
        totals = {"reward": self.reward, "turns": self.turns, "response_tokens": self.scored_response_tokens}
        return {name: total / self.scored for name, total in totals.items()} if self.scored else {}

    @property
    def part_means(self) -> dict[str, float]:
        return {name: total / self.part_counts[name] for name, total in sorted(self.parts.items())}

    @property
    def sampled_per_episode(self) -> float | None:
        return self.sampled_tokens / self.sampled_episodes if self.sampled_episodes else None

    @property
    def suspicion_shares(self) -> dict[str, float]:
        return {name: count / self.episodes for name, count in sorted(self.suspicions.items())}


class CountsByStep(dict[int, EpisodeCounts]):
    """Episodes of one kind by step; those of earlier steps are one sum, so that they cost nothing any more."""

    def __init__(self) -> None:
        super().__init__()
        self.first: EpisodeCounts | None = None
        self._earlier = EpisodeCounts()

    def add(self, line: dict[str, Any]) -> None:
        counts = self.setdefault(line["step"], EpisodeCounts())
        self.first = self.first or counts
        counts.add(line)

    def sum_up(self, step: int) -> None:
        """Add up the steps before this one; the last, and step 0, the validation before training, stay."""
        end = min(step, max(self, default=0))
        for earlier in [each for each in self if 0 < each < end]:
            self._earlier.merge(self.pop(earlier))

    def total(self) -> EpisodeCounts:
        total = EpisodeCounts()
        for counts in (self._earlier, *self.values()):
            total.merge(counts)
        return total
