"""The votes of maj@k: answers that the task's scorer takes for equal are one vote, such as 0.5 and 1/2.

All right answers are one vote, since each equals the ground truth. Wrong ones are compared with each other, and only
where that can decide which vote is the most frequent. Scorers that ask a model, run code or are the user's own compare
with ground truths alone: their votes are texts.
"""

import asyncio
from collections.abc import Mapping, Sequence

from aworld_train.evaluation.results import EvalTask, Evaluation, TaskAttempt
from aworld_train.evaluation.statistics import RIGHT
from aworld_train.interruptible import run_interruptible
from aworld_train.reward.choices import as_label
from aworld_train.reward.score_types import ScoringContext
from aworld_train.reward.scorers import COMPARING, find_scorer
from aworld_train.reward.scoring import score_extracted

MAX_CLASSES = 32
"""Different wrong answers to a task that others are compared with."""
_CONCURRENT = 8

Votes = Mapping[str, Sequence[tuple[str | None, float]]]
"""By task, the vote and the score of each attempt that was scored."""


def votes_of(evaluation: Evaluation, ladder: Sequence[int]) -> Votes:
    """The votes of an evaluation for each k of ``ladder``; empty where no attempt has an answer."""
    scored = {
        task: [attempt for attempt in attempts if attempt.score is not None]
        for task, attempts in evaluation.attempts_by_task.items()
    }
    if all(attempt.figures.extracted is None for attempts in scored.values() for attempt in attempts):
        return {}
    return run_interruptible(_votes(scored, evaluation.tasks, ladder))


async def _votes(
    scored: Mapping[str, Sequence[TaskAttempt]], tasks: Mapping[str, EvalTask], ladder: Sequence[int]
) -> Votes:
    turns = asyncio.Semaphore(_CONCURRENT)

    async def votes(task: EvalTask, attempts: Sequence[TaskAttempt]) -> list[tuple[str | None, float]]:
        async with turns:
            return await _votes_at(task, attempts, ladder)

    results = await asyncio.gather(*(votes(tasks[task], attempts) for task, attempts in scored.items()))
    return dict(zip(scored, results, strict=True))


async def _votes_at(
    task: EvalTask, attempts: Sequence[TaskAttempt], ladder: Sequence[int]
) -> list[tuple[str | None, float]]:
    pairs = [(attempt.figures.extracted, attempt.score or 0.0) for attempt in attempts]
    scorer = (
        next((name for name in (attempts[0].scorer, task.scorer) if name in COMPARING), "")
        if attempts
        else ""
    )
    if not scorer:
        return pairs
    votes: dict[tuple[str, bool], str] = {}
    right_vote = next((answer for answer, score in pairs if answer is not None and score >= RIGHT), "")
    compared = any(map(_is_open, (pairs[:k] for k in ladder if k <= len(pairs))))
    classes: list[str] = []
    for answer, score in pairs:
        if answer is None or (answer, score >= RIGHT) in votes:
            continue
        if score >= RIGHT:
            votes[answer, True] = right_vote
            continue
        vote = as_label(answer, task.correct_answer, task.question)
        for other in classes if compared else ():
            result = await score_extracted(
                find_scorer(scorer), vote, other, ScoringContext(query=task.question)
            )
            if result.score is not None and result.score >= RIGHT:
                vote = other
                break
        else:
            if vote not in classes and len(classes) < MAX_CLASSES:
                classes.append(vote)
        votes[answer, False] = vote
    return [(answer if answer is None else votes[answer, score >= RIGHT], score) for answer, score in pairs]


def _is_open(pairs: Sequence[tuple[str | None, float]]) -> bool:
    """Whether it matters which wrong answers are equal: some are right, and not more than are wrong."""
    answered = [score >= RIGHT for answer, score in pairs if answer is not None]
    return 0 < sum(answered) <= len(answered) / 2
