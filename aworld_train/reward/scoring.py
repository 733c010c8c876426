"""Scoring an answer: take the assistant's text, find the answer in it, and call the row's scorer.

Whatever an answer or a scorer does, there is a ``ScoreResult`` within the time limit: a scorer that raises, hangs or
crashes costs its own answer and is named in ``cause``. What can hang runs in a worker process (`workers`). A scorer or
a schema that does not exist is a fault of the recipe or of the dataset and raises.

Where a scorer in a worker process fails, it is called with the ground truth as the answer. If it fails on that too,
there is no score. If it does not, the answer is the reason, and scores 0 (``too_hard``): after a timeout that it spent
computing at once, and after any other failure once it has failed on the answer again. So does an answer that judges
refuse or give no readable verdict on, twice, while they give one on the ground truth.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from msgspec.structs import replace as changed

from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.interruptible import run_interruptible
from aworld_train.reward.assistant_text import assistant_text
from aworld_train.reward.choices import as_label
from aworld_train.reward.extraction import check_schema_name, extract
from aworld_train.reward.results import BadResult, describe, read_result
from aworld_train.reward.score_types import Score, ScoringContext, TooHard
from aworld_train.reward.scorers import COMPARING, Scorer, ScorerKind, find_scorer
from aworld_train.reward.settings import ANSWER_SCHEMA, SCORER, RewardSettings
from aworld_train.reward.workers import Job, NoFreeWorker, ScorerFailure, ScorerTimeout, pool

_MAX_DEPTH = 20  # of lists and mappings in a row's extra_info, as scorers in worker processes get it


async def score(
    prediction: str | Sequence[Mapping[str, Any]],
    *,
    ground_truth: str,
    scorer: str | None = None,
    answer_schema: str | None = None,
    query: str = "",
    info: Mapping[str, Any] | None = None,
    episode: Mapping[str, Any] | None = None,
    settings: RewardSettings | None = None,
) -> ScoreResult:
    """Score an assistant's text, or the messages of an episode, of which only the assistant's count.

    ``settings`` may override the task's ``scorer`` and ``answer_schema``; ``info`` is the row's ``extra_info``.
    """
    settings = settings or RewardSettings()
    schema = settings.answer_schema or answer_schema or ANSWER_SCHEMA
    found = find_scorer(settings.scorer or scorer or SCORER)
    check_schema_name(schema)
    try:
        text = assistant_text(prediction)
        answer = extract(text, schema)
    except Exception as error:
        cause = f"the answer cannot be read by the schema {schema}: {describe(error)}"
        return ScoreResult(0.0, None, ScoreOutcome.too_hard, {}, (cause,), None, found.name)
    row_info = {**(info or {}), "scorer": scorer or SCORER, "answer_schema": schema}
    context = ScoringContext(query, text, row_info, episode or {}, settings)
    return await score_extracted(found, answer, str(ground_truth), context)


def score_now(prediction: str | Sequence[Mapping[str, Any]], **arguments: Any) -> ScoreResult:
    """`score` for programs and notebooks; a coroutine awaits `score` itself."""
    return run_interruptible(score(prediction, **arguments))


async def score_extracted(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> ScoreResult:
    attempt = _Attempt(scorer, answer, ground_truth, context)
    if answer is None and not scorer.scores_missing_answers:
        return attempt.zero(ScoreOutcome.no_answer, "there is no answer")
    if answer is not None and scorer.name in COMPARING:
        question = f"{context.query}\n\n{context.info.get('question') or ''}"
        label = as_label(answer, ground_truth, question)
        if label != answer:
            return changed(await _score_by(replace(attempt, answer=label)), extracted=answer)
    references = _references(context)
    if len(references) < 2 or scorer.delegates or scorer.kind is ScorerKind.reward_function:
        return await _score_by(attempt)
    if scorer.takes_references:
        lines = "\n".join(f"- {reference}" for reference in references)
        return await _score_by(replace(attempt, ground_truth=f"any one of these:\n{lines}"))
    return await _best(attempt, references)


@dataclass(frozen=True)
class _Attempt:
    """An answer to be scored by a scorer, and the results that this may have."""

    scorer: Scorer
    answer: str | None
    ground_truth: str
    context: ScoringContext

    async def run(self) -> Score:
        return await (_run_in_worker if self.scorer.isolated else _run_in_process)(self)

    def result(self, score: Score) -> ScoreResult:
        if score.value is None:
            reasons = score.steps or (f"the scorer {self.scorer.name} abstained without a reason",)
            return self._result(score, ScoreOutcome.abstained, reasons[-1])
        return self._result(score, ScoreOutcome.no_answer if self.answer is None else ScoreOutcome.scored)

    def zero(self, outcome: ScoreOutcome, step: str) -> ScoreResult:
        return self._result(Score(0.0, steps=(step,)), outcome)

    def failure(self, error: Exception, too_hard: bool = False) -> ScoreResult:
        name = self.scorer.name
        if isinstance(error, ScorerTimeout):
            cause = f"the scorer {name} {error}"
        elif isinstance(error, TooHard | ScorerFailure | BadResult | NoFreeWorker):
            cause = f"the scorer {name}: {error}"
        else:
            cause = f"the scorer {name}: {describe(error)}"
        if too_hard:
            return self.zero(ScoreOutcome.too_hard, cause)
        outcome = ScoreOutcome.timeout if isinstance(error, ScorerTimeout) else ScoreOutcome.error
        return self._result(Score(None), outcome, cause)

    async def copes_with_ground_truth(self) -> bool:
        """Whether the scorer gives a score, of any value, where the ground truth is the answer."""
        info = {**self.context.info}
        if "solution_str" in info:  # of a reward function, which reads the answer from there
            info["solution_str"] = self.ground_truth
        context = replace(self.context, text=self.ground_truth, info=info)
        try:
            score = await replace(self, answer=self.ground_truth, context=context).run()
        except Exception:
            return False
        return score.value is not None

    def may_be_at_fault(self, error: Exception) -> bool:
        """Whether the answer may cause a failure: an asynchronous scorer's is more probably its server's."""
        if isinstance(error, ScorerTimeout):
            return error.computing
        return not self.scorer.is_async and not isinstance(error, NoFreeWorker)

    def _result(self, score: Score, outcome: ScoreOutcome, cause: str | None = None) -> ScoreResult:
        return ScoreResult(
            score.value, self.answer, outcome, score.parts, score.steps, cause, self.scorer.name
        )


def _references(context: ScoringContext) -> list[str]:
    references = _plain(context.info.get("ground_truths"))
    return [str(reference) for reference in references] if isinstance(references, list) else []


async def _best(attempt: _Attempt, references: list[str]) -> ScoreResult:
    """The best score against any reference; one that could not be compared leaves no score below a full one."""
    results = []
    for reference in references:
        result = await _score_by(replace(attempt, ground_truth=reference))
        if result.score is not None and result.score >= 1.0:
            return result
        results.append(result)
    if missing := [result for result in results if result.score is None]:
        return missing[0]
    return max(results, key=lambda result: result.score or 0.0)


async def _score_by(attempt: _Attempt) -> ScoreResult:
    try:
        score = await attempt.run()
        if score.value is None and score.is_provoked:
            return await _provoked(attempt, score)
        return attempt.result(score)
    except Exception as error:
        first = error
    if isinstance(first, TooHard):
        return attempt.failure(first, too_hard=True)
    if not attempt.may_be_at_fault(first) or not await attempt.copes_with_ground_truth():
        return attempt.failure(first)
    if isinstance(first, ScorerTimeout):
        return attempt.failure(first, too_hard=True)
    try:
        return attempt.result(await attempt.run())
    except Exception as second:
        return attempt.failure(second, too_hard=attempt.may_be_at_fault(second))


async def _provoked(attempt: _Attempt, first: Score) -> ScoreResult:
    """The result for an answer that a judge gave no verdict on: 0 if it gives one on the ground truth alone."""
    if not await attempt.copes_with_ground_truth():
        return attempt.result(first)
    score = await attempt.run()
    if score.value is not None or not score.is_provoked:
        return attempt.result(score)
    step = f"the scorer {attempt.scorer.name} has a verdict on the ground truth and none on this answer"
    result = attempt.zero(ScoreOutcome.too_hard, step)
    return changed(result, parts={**score.parts, "provoked": 1.0}, steps=(*score.steps, step))


async def _run_in_process(attempt: _Attempt) -> Score:
    scorer, context = attempt.scorer, attempt.context
    arguments = (attempt.answer, attempt.ground_truth, context)[: scorer.arguments]
    if not scorer.is_async:
        return read_result(scorer.function(*arguments))
    limit = asyncio.timeout(None if scorer.delegates else context.settings.timeout)
    try:
        async with limit:
            return read_result(await scorer.function(*arguments))
    except TimeoutError as error:
        if limit.expired():
            raise ScorerTimeout(context.settings.timeout) from error
        raise


async def _run_in_worker(attempt: _Attempt) -> Score:
    scorer = attempt.scorer
    job = Job(
        kind=scorer.kind,
        reference=scorer.reference,
        answer=attempt.answer,
        ground_truth=attempt.ground_truth,
        context=None if scorer.arguments == 2 else _plain_context(attempt.context),
        seconds=attempt.context.settings.timeout,
        processor_seconds=scorer.max_processor_seconds,
    )
    return await asyncio.wrap_future(pool(waits=scorer.is_async).submit(job))


def _plain_context(context: ScoringContext) -> dict[str, Any]:
    values = {field.name: getattr(context, field.name) for field in fields(context)}
    return {**_plain(values), "settings": context.settings.to_plain()}


def _plain(value: Any, depth: int = 0) -> Any:
    """The value as plain data that any process can read; a framework may have put arrays or objects there."""
    if type(value) in (bool, int, float, str, type(None)):
        return value
    if depth > _MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        return _plain(value.tolist(), depth + 1)
    return str(value)
