"""Signs that a run no longer learns: shown when they appear, and kept in the summary.

A single step proves little, so most signs count once they last for some steps. What is dropped can be gamed, so a
step or a task of which more than its share is dropped is a sign at once. A loss that is not finite also
ends the run when it lasts: nothing that comes after is learned from.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aworld_train.training.episode_counts import EpisodeCounts

STEPS = 3
_MAX_ENTROPY, _MAX_ENTROPY_SHARE = 0.02, 0.05  # nats a token; of the first step's
_EXACT, MAX_EXACT_DIFFERENCE = 1e-4, 1e-3
"""Of a token's probability: in fp32 the two agree within 1e-5 (docs/architecture.md)."""
MAX_MEAN_DIFFERENCE = 0.02
"""In bf16 healthy runs have about a fifth: 0.004 for Qwen3-Omni (verl-project/verl-omni issue 637), and 0.011 of the
logarithm, which differs more, for Qwen3-4B, where 0.036 was a fault (vllm-project/vime issue 64). The maximum says
little there: single tokens differ by up to 1 (fengyao.notion.site/off-policy-rl)."""
_TEXTS = {
    "not_finite": "the loss or the norm of the gradient is not a finite number, so VeRL or another framework skips the "
    "update",
    "no_variance": f"in {STEPS} steps in a row all episodes of each task had the same reward, so there is nothing to "
    "compare and nothing is learned: the tasks are too easy, too hard, or the scorer always says the same",
    "entropy": f"the entropy of the model's answers is below {_MAX_ENTROPY_SHARE:.0%} of the first step's for {STEPS} "
    "steps: it hardly tries anything else any more (a lower trainer.lr or an algorithm.entropy_coef keeps it trying)",
    "probabilities": f"for {STEPS} steps the engine's probabilities of sampled tokens were not those that the trainer "
    "computes, so it trains on another policy than it believes; algorithm.rollout_correction=token corrects for what "
    "rounding in bf16 does, and in fp32 such a difference means that the engine has other weights:",
    "one_outcome": f"in {STEPS} steps in a row no episode came to an answer, and all ended as",
    "dropped_step": "more episodes of the step were dropped than of others (traces/episodes.jsonl has the causes):",
    "dropped_task": "more episodes of a task are dropped than of others; the model may have found out how to have bad "
    "ones dropped (traces/episodes.jsonl has the causes):",
}
_AT_ONCE = {"not_finite", "dropped_step", "dropped_task"}
_MIN_DROPPED, _MAX_DROPPED_RATIO = 3, 3.0  # episodes; of the share that is dropped of others


@dataclass(frozen=True)
class Alarm:
    """One sign; ``kind`` is a key of ``_TEXTS``."""

    step: int
    kind: str
    text: str


class AlarmWatch:
    def __init__(self) -> None:
        self.alarms: list[Alarm] = []
        self._streaks: Counter[str] = Counter()
        self._first_entropy: float | None = None
        self._is_exact: bool | None = None
        self._played: Counter[int] = Counter()  # by task
        self._dropped: Counter[int] = Counter()
        self._all_played = self._all_dropped = 0
        self._dropped_tasks: set[int] = set()  # that had an alarm

    def observe(self, step: int, row: Mapping[str, Any], episodes: EpisodeCounts) -> list[Alarm]:
        """The alarms that a step raises; in its row of ``metrics.jsonl`` a figure that is not finite is None."""
        signs = dict(self._signs(row, episodes))
        raised = []
        for kind in _TEXTS:
            self._streaks[kind] = self._streaks[kind] + 1 if kind in signs else 0
            is_new_task = kind == "dropped_task" and kind in signs
            if self._streaks[kind] == (1 if kind in _AT_ONCE else STEPS) or is_new_task:
                raised.append(Alarm(step, kind, _TEXTS[kind] + signs[kind]))
        self.alarms += raised
        return raised

    @property
    def reason_to_stop(self) -> str | None:
        if self._streaks["not_finite"] < STEPS:
            return None
        return (
            f"In {STEPS} steps in a row the loss or the norm of the gradient was not a finite number, so nothing is "
            "learned any more. A lower trainer.lr or trainer.grad_clip may help, from an earlier checkpoint."
        )

    def _signs(self, row: Mapping[str, Any], episodes: EpisodeCounts) -> Iterator[tuple[str, str]]:
        """The kinds of signs that a step shows, each with the end of its text."""
        if any(name in row and row[name] is None for name in ("loss", "grad_norm")):
            yield "not_finite", ""
        if episodes.compared_tasks and not episodes.varied_tasks and "teacher_kl" not in row:
            yield "no_variance", ""
        entropy = row.get("entropy")
        if isinstance(entropy, int | float):
            if self._first_entropy is None:
                self._first_entropy = entropy
            if entropy < min(_MAX_ENTROPY, _MAX_ENTROPY_SHARE * self._first_entropy):
                yield "entropy", ""
        if difference := self._difference(row):
            yield "probabilities", f" {difference}"
        if len(episodes.outcomes) == 1 and "answered" not in episodes.outcomes:
            yield "one_outcome", f" {next(iter(episodes.outcomes))}"
        yield from self._drops(episodes)

    def _drops(self, episodes: EpisodeCounts) -> Iterator[tuple[str, str]]:
        """Signs that a step, or a task over all other steps, has more than its share of what is dropped."""
        dropped, played = episodes.dropped.total(), episodes.played.total()
        if _is_more(dropped, played, self._all_dropped, self._all_played):
            yield "dropped_step", f" {dropped} of {played}"
            return  # the step says nothing of its tasks
        self._dropped.update(episodes.dropped)
        self._played.update(episodes.played)
        self._all_dropped += dropped
        self._all_played += played
        for task in episodes.dropped.keys() - self._dropped_tasks:
            dropped, played = self._dropped[task], self._played[task]
            if _is_more(dropped, played, self._all_dropped - dropped, self._all_played - played):
                self._dropped_tasks.add(task)
                yield "dropped_task", f" {dropped} of {played} of task {task}"

    def _difference(self, row: Mapping[str, Any]) -> str | None:
        """How far the engine's probabilities are from the trainer's, if that is too far.

        In the first step both use weights read from disk, so it shows whether both compute in fp32. Tokens of older
        weights differ by what was trained since.
        """
        if row.get("staleness"):
            return None
        highest, mean = row.get("rollout_probs_diff_max"), row.get("rollout_probs_diff_mean")
        if isinstance(highest, int | float):
            if self._is_exact is None:
                self._is_exact = highest < _EXACT
            if self._is_exact and highest > MAX_EXACT_DIFFERENCE:
                return f"up to {highest:.2g}, and {MAX_EXACT_DIFFERENCE:g} is much in fp32"
        if isinstance(mean, int | float) and mean > MAX_MEAN_DIFFERENCE:
            return f"{mean:.2g} on average, and {MAX_MEAN_DIFFERENCE:g} is much"
        return None


def _is_more(dropped: int, played: int, other_dropped: int, others_played: int) -> bool:
    if dropped < _MIN_DROPPED or not others_played:
        return False
    return dropped / played > _MAX_DROPPED_RATIO * other_dropped / others_played
