"""Which tasks are kept, by what a solver's attempts came to, with tools and without: each is dropped for one reason.

A task is inconsistent if the solver repeats another answer more often than it gives the task's, for then the task is
more likely wrong than hard.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from aworld_train.errors import UsageError
from aworld_train.evaluation.results import Evaluation
from aworld_train.evaluation.statistics import RIGHT
from aworld_train.evaluation.votes import votes_of


class DropReason(StrEnum):
    """Why a task is dropped, in the order in which tasks are looked at; JSON has the names."""

    failed = "not made: an attempt failed by no fault of the model"
    no_proposal = "not made: the model proposed no task"
    no_tool = "not made: the model called no tool"
    left_out = "left out by the build: repeated, nearly another, or of --against"
    unscored = "not measured: no attempt could be scored"
    inconsistent = "inconsistent: the solver's most frequent answer is another one"
    too_hard = "too hard: solved less often than --min-solved"
    too_easy = "too easy: solved more often than --max-solved"
    no_tools_needed = "needs no tools: solved without them more often than --max-without-tools"


@dataclass(frozen=True)
class Bounds:
    """Shares of attempts that may be right: with the tools at least and at most, and without them at most."""

    min_solved: float = 0.25
    max_solved: float = 0.75
    max_without_tools: float = 0.25

    def check(self) -> None:
        if not 0 < self.min_solved <= self.max_solved <= 1:
            raise UsageError(
                f"--min-solved is {self.min_solved:g} and --max-solved {self.max_solved:g}: a task has to be solved "
                "once at least, and the lower bound cannot be above the upper one. Give 0 < MIN <= MAX <= 1."
            )
        if not 0 <= self.max_without_tools <= 1:
            raise UsageError(f"--max-without-tools is {self.max_without_tools:g}: it is a share from 0 to 1.")


@dataclass(frozen=True)
class Solved:
    """The attempts at a task that were scored and those that were right; ``outvoted`` by one repeated other answer."""

    scored: int
    right: int
    outvoted: bool

    @property
    def share(self) -> float:
        return self.right / self.scored if self.scored else 0.0

    @property
    def may_be_kept(self) -> bool:
        """Whether there are bounds with which the task is kept."""
        return self.right > 0 and not self.outvoted


def solved_of(evaluation: Evaluation) -> dict[str, Solved]:
    """By task's name."""
    attempts = int(evaluation.settings["attempts"])
    votes = votes_of(evaluation, [attempts])
    found = {}
    for task_id, task in evaluation.tasks.items():
        scores = evaluation.scores[task_id]
        right = sum(score >= RIGHT for score in scores)
        wrong = Counter(vote for vote, score in votes.get(task_id, ()) if vote is not None and score < RIGHT)
        found[task.name] = Solved(len(scores), right, max(wrong.values(), default=0) > max(right, 1))
    return found


def verdict(with_tools: Solved, without: Solved, bounds: Bounds) -> DropReason | None:
    """Why a task is dropped; None if it is kept."""
    if not with_tools.scored:
        return DropReason.unscored
    if with_tools.outvoted:
        return DropReason.inconsistent
    if with_tools.share < bounds.min_solved:
        return DropReason.too_hard
    if with_tools.share > bounds.max_solved:
        return DropReason.too_easy
    if not without.scored:
        return DropReason.unscored
    return DropReason.no_tools_needed if without.share > bounds.max_without_tools else None
