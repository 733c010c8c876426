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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from aworld_train.interruptible import run_interruptible
from aworld_train.reward.assistant_text import assistant_text
from aworld_train.reward.choices import as_label
from aworld_train.reward.extraction import check_schema_name, extract
from aworld_train.reward.results import BadResult, describe, read_result
from aworld_train.reward.scored import Score, ScoreOutcome, ScoreResult, ScoringContext, TooHard
from aworld_train.reward.scorers import COMPARING, Scorer, ScorerKind, find_scorer
from aworld_train.reward.settings import ANSWER_SCHEMA, SCORER, RewardSettings
from aworld_train.reward.workers import Job, NoFreeWorker, ScorerFailure, ScorerTimeout, pool

_Run = Callable[[Scorer, str | None, str, ScoringContext], Awaitable[Score]]
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

    ``scorer`` and ``answer_schema`` are the task's (None: it names none), which ``settings`` may override; ``info`` is
    the row's ``extra_info``.
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
    """Score an extracted answer; None where none was found."""
    if answer is None and not scorer.scores_missing_answers:
        return ScoreResult(0.0, None, ScoreOutcome.no_answer, {}, ("there is no answer",), None, scorer.name)
    if answer is not None and scorer.name in COMPARING:
        question = f"{context.query}\n\n{context.info.get('question') or ''}"
        label = as_label(answer, ground_truth, question)
        if label != answer:
            return replace(await _score_by(scorer, label, ground_truth, context), extracted=answer)
    references = _references(context)
    if len(references) < 2 or scorer.delegates or scorer.kind is ScorerKind.reward_function:
        return await _score_by(scorer, answer, ground_truth, context)
    if scorer.takes_references:
        lines = "\n".join(f"- {reference}" for reference in references)
        return await _score_by(scorer, answer, f"any one of these:\n{lines}", context)
    return await _best(scorer, answer, references, context)


def _references(context: ScoringContext) -> list[str]:
    references = _plain(context.info.get("ground_truths"))
    return [str(reference) for reference in references] if isinstance(references, list) else []


async def _best(
    scorer: Scorer, answer: str | None, references: list[str], context: ScoringContext
) -> ScoreResult:
    """The best score of an answer against any reference.

    Without a full score, a reference that could not be compared leaves the answer without a score: it may be right.
    """
    results = []
    for reference in references:
        result = await _score_by(scorer, answer, reference, context)
        if result.score is not None and result.score >= 1.0:
            return result
        results.append(result)
    if missing := [result for result in results if result.score is None]:
        return missing[0]
    return max(results, key=lambda result: result.score or 0.0)


async def _score_by(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> ScoreResult:
    run = _run_in_worker if scorer.isolated else _run_in_process
    try:
        score = await run(scorer, answer, ground_truth, context)
        if score.value is None and score.is_provoked:
            return await _provoked(run, scorer, answer, ground_truth, context, score)
        return _result(scorer, answer, score)
    except Exception as error:
        first = error
    if isinstance(first, TooHard):
        return _failure(scorer, answer, context, first, too_hard=True)
    if not _may_be_by_the_answer(scorer, first) or not await _copes_with_ground_truth(
        run, scorer, ground_truth, context
    ):
        return _failure(scorer, answer, context, first)
    if isinstance(first, ScorerTimeout):
        return _failure(scorer, answer, context, first, too_hard=True)
    try:
        return _result(scorer, answer, await run(scorer, answer, ground_truth, context))
    except Exception as second:
        too_hard = _may_be_by_the_answer(scorer, second)
        return _failure(scorer, answer, context, second, too_hard=too_hard)


async def _provoked(
    run: _Run, scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext, first: Score
) -> ScoreResult:
    """The result for an answer that a judge gave no verdict on: 0 if it gives one on the ground truth alone."""
    if not await _copes_with_ground_truth(run, scorer, ground_truth, context):
        return _result(scorer, answer, first)
    score = await run(scorer, answer, ground_truth, context)
    if score.value is not None or not score.is_provoked:
        return _result(scorer, answer, score)
    steps = (
        *score.steps,
        f"the scorer {scorer.name} has a verdict on the ground truth and none on this answer",
    )
    parts = {**score.parts, "provoked": 1.0}
    return ScoreResult(0.0, answer, ScoreOutcome.too_hard, parts, steps, None, scorer.name)


def _may_be_by_the_answer(scorer: Scorer, error: Exception) -> bool:
    """Whether a failure may be caused by the answer: an asynchronous scorer's is more probably its server's."""
    if isinstance(error, ScorerTimeout):
        return error.computing
    return not scorer.is_async and not isinstance(error, NoFreeWorker)


async def _copes_with_ground_truth(
    run: _Run, scorer: Scorer, ground_truth: str, context: ScoringContext
) -> bool:
    try:
        score = await run(scorer, ground_truth, ground_truth, _with_ground_truth(context, ground_truth))
    except Exception:
        return False
    return score.value is not None


def _failure(
    scorer: Scorer, answer: str | None, context: ScoringContext, error: Exception, too_hard: bool = False
) -> ScoreResult:
    if isinstance(error, ScorerTimeout):
        cause = f"the scorer {scorer.name} {error}"
    elif isinstance(error, TooHard | ScorerFailure | BadResult | NoFreeWorker):
        cause = f"the scorer {scorer.name}: {error}"
    else:
        cause = f"the scorer {scorer.name}: {describe(error)}"
    if too_hard:
        return ScoreResult(0.0, answer, ScoreOutcome.too_hard, {}, (cause,), None, scorer.name)
    outcome = ScoreOutcome.timeout if isinstance(error, ScorerTimeout) else ScoreOutcome.error
    return ScoreResult(None, answer, outcome, {}, (), cause, scorer.name)


def _with_ground_truth(context: ScoringContext, ground_truth: str) -> ScoringContext:
    info = {**context.info}
    if "solution_str" in info:  # of a reward function, which reads the answer from there
        info["solution_str"] = ground_truth
    return replace(context, text=ground_truth, info=info)


def _result(scorer: Scorer, answer: str | None, score: Score) -> ScoreResult:
    if score.value is None:
        cause = score.steps[-1] if score.steps else f"the scorer {scorer.name} abstained without a reason"
        return ScoreResult(None, answer, ScoreOutcome.abstained, score.parts, score.steps, cause, scorer.name)
    outcome = ScoreOutcome.no_answer if answer is None else ScoreOutcome.scored
    return ScoreResult(score.value, answer, outcome, score.parts, score.steps, None, scorer.name)


async def _run_in_process(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> Score:
    arguments = (answer, ground_truth) if scorer.arguments == 2 else (answer, ground_truth, context)
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


async def _run_in_worker(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> Score:
    job = Job(
        kind=scorer.kind,
        reference=scorer.reference,
        answer=answer,
        ground_truth=ground_truth,
        context=None if scorer.arguments == 2 else _plain_context(context),
        seconds=context.settings.timeout,
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
