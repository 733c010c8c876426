"""Scoring an answer: take the assistant's text, find the answer in it, and call the row's scorer.

Whatever an answer or a scorer does, there is a ``ScoreResult`` within the time limit: a scorer that raises, returns no
score, hangs or crashes costs its own answer and is named in ``cause``. What can hang runs in a worker process
(`workers`): the built-in scorers that say so, and all user-defined ones. The other built-in scorers take a moment, or
wait for a server and are cancelled when their time is over. A scorer or a schema that does not exist is a fault of the
recipe or of the dataset and raises.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from aworld_train.reward.assistant_text import assistant_text
from aworld_train.reward.extraction import check_schema_name, extract
from aworld_train.reward.results import BadResult, describe, read_result
from aworld_train.reward.scored import Score, ScoreOutcome, ScoreResult, ScoringContext
from aworld_train.reward.scorers import Scorer, find_scorer
from aworld_train.reward.settings import ANSWER_SCHEMA, SCORER, RewardSettings
from aworld_train.reward.workers import Job, ScorerFailure, ScorerTimeout, pool

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
    """Score an assistant's text.

    Args:
        prediction: Its final text, or the messages of the episode, of which only the assistant's count.
        ground_truth: The right answer.
        scorer: The task's scorer, which ``settings`` may override; None where the task names none.
        answer_schema: How the answer is marked; likewise.
        query: The task's question.
        info: The row's ``extra_info``.
        episode: Facts of the episode; see ``ScoringContext``.
        settings: How the run scores.

    Raises:
        RewardError: There is no such scorer or schema, or a user-defined scorer cannot be loaded.
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
        return ScoreResult(None, None, ScoreOutcome.error, {}, (), cause, found.name)
    row_info = {**(info or {}), "scorer": scorer or SCORER, "answer_schema": schema}
    context = ScoringContext(query, text, row_info, episode or {}, settings)
    return await score_extracted(found, answer, str(ground_truth), context)


def score_now(prediction: str | Sequence[Mapping[str, Any]], **arguments: Any) -> ScoreResult:
    """`score` for programs without an event loop; a coroutine awaits `score` itself."""
    return asyncio.run(score(prediction, **arguments))


async def score_extracted(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> ScoreResult:
    """Score an extracted answer; None where none was found."""
    if answer is None and not scorer.scores_missing_answers:
        return ScoreResult(0.0, None, ScoreOutcome.no_answer, {}, ("there is no answer",), None, scorer.name)
    run = _run_in_worker if scorer.isolated else _run_in_process
    try:
        score = await run(scorer, answer, ground_truth, context)
    except ScorerTimeout:
        cause = f"the scorer {scorer.name} took longer than {context.settings.timeout:g} seconds"
        return ScoreResult(None, answer, ScoreOutcome.timeout, {}, (), cause, scorer.name)
    except (ScorerFailure, BadResult) as error:
        cause = f"the scorer {scorer.name}: {error}"
    except Exception as error:
        cause = f"the scorer {scorer.name}: {describe(error)}"
    else:
        return _result(scorer, answer, score)
    return ScoreResult(None, answer, ScoreOutcome.error, {}, (), cause, scorer.name)


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
            raise ScorerTimeout from error
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
