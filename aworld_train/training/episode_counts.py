"""Counts of the episodes of a run, by kind and step."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from aworld_train.episode.figures import EpisodeFigures, PerStep, per_step
from aworld_train.episode.outcome import Outcome

_MAX_CAUSE_CHARS = 200  # in the summary
_WITHIN_STEP = ("rewards", "compared", "played")  # figures of EpisodeCounts


TOTALS, COUNTS = per_step(PerStep.total), per_step(PerStep.total, counts=True)
_MEANS = per_step(PerStep.mean)


@dataclass
class EpisodeCounts:
    """Episodes of one kind (training or validation) of one step."""

    episodes: int = 0
    scored: int = 0
    correct: float = 0.0
    correct_with_tool: float = 0.0
    environment_losses: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    """Of the figures that have a total in a step, and of those with a mean, over episodes with a reward."""
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of the figures that count something by kind: the figure's name and the kind."""
    row_tokens: int = 0
    unique_tokens: int = 0
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
    rewards: dict[tuple[int, str], set[float]] = field(default_factory=dict)
    """Those that are compared, by task and by agent; with an empty name those of agents without an own one."""
    compared: Counter[int] = field(default_factory=Counter)
    played: Counter[int] = field(default_factory=Counter)
    """Episodes by task."""
    dropped: Counter[int] = field(default_factory=Counter)
    """Those that are dropped, by task."""

    def add(self, figures: EpisodeFigures) -> None:
        outcome, cause = figures.outcome or "", figures.cause
        if cause and figures.treatment != "trained":
            self.causes[cause] += 1
        self.environment_losses += outcome == Outcome.environment
        if figures.retried:
            return
        self.episodes += 1
        self.played[figures.index] += 1
        if figures.treatment == "dropped":
            self.dropped[figures.index] += 1
        self._sum(TOTALS, figures)
        for name in COUNTS:
            self.kinds.update({(name, kind): count for kind, count in (getattr(figures, name) or {}).items()})
        self.outcomes[outcome] += 1
        if cause:
            self.outcome_causes[f"{outcome}: {cause[:_MAX_CAUSE_CHARS]}"] += 1
        if figures.rows:
            self.row_tokens += (figures.prompt_tokens or 0) + (figures.response_tokens or 0)
            self.unique_tokens += figures.unique_tokens or 0
            self.sampled_tokens += figures.sampled_tokens or 0
            self.sampled_episodes += 1
        if figures.scoring and figures.reward is None:
            self.unscored[f"{figures.scorer}: {figures.scoring}"] += 1
        # Parts count without a score too, because a judge that returned no verdict has been paid as well.
        parts = {name: part for name, part in (figures.parts or {}).items() if part is not None}
        self.parts.update(parts)
        self.part_counts.update(list(parts))
        self.suspicions.update(figures.suspicions or ())
        if figures.reward is not None:
            self._add_scored(figures, figures.reward)

    def _sum(self, names: Iterable[str], figures: EpisodeFigures) -> None:
        for name in names:
            self.totals[name] += getattr(figures, name) or 0

    def _add_scored(self, figures: EpisodeFigures, reward: float) -> None:
        self._compare(figures, reward)
        self.scored += 1
        self._sum(_MEANS, figures)
        correct = float(figures.accuracy or 0.0)
        self.correct += correct
        self.correct_with_tool += correct if figures.tool_calls else 0.0

    def counts(self, name: str) -> dict[str, int]:
        return {kind: count for (figure, kind), count in self.kinds.items() if figure == name}

    def _compare(self, figures: EpisodeFigures, reward: float) -> None:
        task, scores = figures.index, figures.scores or {}
        self.compared[task] += 1
        for agent in figures.agents or [""]:
            own = scores.get(f"score/{agent}")
            key = (task, "" if own is None else agent)
            self.rewards.setdefault(key, set()).add(reward if own is None else own)

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
        return {name: self.totals[name] / self.scored for name in _MEANS} if self.scored else {}

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

    def add(self, figures: EpisodeFigures) -> None:
        counts = self.setdefault(figures.step, EpisodeCounts())
        self.first = self.first or counts
        counts.add(figures)

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
