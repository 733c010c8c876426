"""Scoring an answer: what the assistant said, the answer in it, and what the row's scorer says of that.

Whatever an answer or a scorer does, there is a ``ScoreResult`` within the time limit: a scorer that raises, returns no
score, is stuck or takes its process with it costs its own answer and is named in ``cause``. What can be stuck runs in a
worker process (`workers`): the built-in scorers that say so, and all of one's own. The other built-in ones take a
moment, or wait for a server and are given up when their time is over. A scorer or a schema that does not exist is a
fault of the recipe or of the dataset and raises.
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

_DEPTH = 20  # of lists and mappings in a row's extra_info, as own scorers see it


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
    """Score what an assistant said.

    Args:
        prediction: Its final text, or the messages of the episode, of which only its own count.
        ground_truth: The right answer.
        scorer: The task's, unless ``settings`` has one in its place; None where it names none.
        answer_schema: How the answer is marked; likewise.
        query: What was asked.
        info: The row's ``extra_info``.
        episode: Facts of the episode; see ``ScoringContext``.
        settings: How the run scores.

    Raises:
        RewardError: There is no such scorer or schema, or one's own scorer cannot be loaded.
    """
    settings = settings or RewardSettings()
    schema = settings.answer_schema or answer_schema or ANSWER_SCHEMA
    asked = find_scorer(settings.scorer or scorer or SCORER)
    check_schema_name(schema)
    try:
        text = assistant_text(prediction)
        answer = extract(text, schema)
    except Exception as error:
        cause = f"the answer cannot be read by the schema {schema}: {describe(error)}"
        return ScoreResult(None, None, ScoreOutcome.error, {}, (), cause, asked.name)
    about = {**(info or {}), "scorer": scorer or SCORER, "answer_schema": schema}
    context = ScoringContext(query, text, about, episode or {}, settings)
    return await score_extracted(asked, answer, str(ground_truth), context)


def score_now(prediction: str | Sequence[Mapping[str, Any]], **arguments: Any) -> ScoreResult:
    """`score` for programs without an event loop; a coroutine awaits `score` itself."""
    return asyncio.run(score(prediction, **arguments))


async def score_extracted(
    scorer: Scorer, answer: str | None, ground_truth: str, context: ScoringContext
) -> ScoreResult:
    """Ask a scorer about an answer that was found, or was not (None)."""
    if answer is None and not scorer.wants_no_answer:
        return ScoreResult(0.0, None, ScoreOutcome.no_answer, {}, ("there is no answer",), None, scorer.name)
    seconds = context.settings.timeout
    ask = _in_worker if scorer.isolated else _here
    try:
        said = await ask(scorer, answer, ground_truth, context)
    except ScorerTimeout:
        cause = f"the scorer {scorer.name} took longer than {seconds:g} seconds"
        return ScoreResult(None, answer, ScoreOutcome.timeout, {}, (), cause, scorer.name)
    except (ScorerFailure, BadResult) as error:
        cause = f"the scorer {scorer.name}: {error}"
    except Exception as error:
        cause = f"the scorer {scorer.name}: {describe(error)}"
    else:
        return _scored(scorer, answer, said)
    return ScoreResult(None, answer, ScoreOutcome.error, {}, (), cause, scorer.name)


def _scored(scorer: Scorer, answer: str | None, said: Score) -> ScoreResult:
    if said.value is None:
        why = said.steps[-1] if said.steps else f"the scorer {scorer.name} cannot tell"
        return ScoreResult(None, answer, ScoreOutcome.abstained, said.parts, said.steps, why, scorer.name)
    outcome = ScoreOutcome.no_answer if answer is None else ScoreOutcome.scored
    return ScoreResult(said.value, answer, outcome, said.parts, said.steps, None, scorer.name)


async def _here(scorer: Scorer, answer: str | None, truth: str, context: ScoringContext) -> Score:
    given = (answer, truth) if scorer.arguments == 2 else (answer, truth, context)
    if not scorer.is_async:
        return read_result(scorer.function(*given))
    limit = asyncio.timeout(None if scorer.delegates else context.settings.timeout)
    try:
        async with limit:
            return read_result(await scorer.function(*given))
    except TimeoutError as error:
        if limit.expired():
            raise ScorerTimeout from error
        raise


async def _in_worker(scorer: Scorer, answer: str | None, truth: str, context: ScoringContext) -> Score:
    known = None if scorer.arguments == 2 else _plain_context(context)
    job = Job(scorer.reference, answer, truth, known, context.settings.timeout)
    return await asyncio.wrap_future(pool(waits=scorer.is_async).submit(job))


def _plain_context(context: ScoringContext) -> dict[str, Any]:
    values = {field.name: getattr(context, field.name) for field in fields(context)}
    return {**_plain(values), "settings": context.settings.to_plain()}


def _plain(value: Any, depth: int = 0) -> Any:
    """As values that any process can read, whatever a framework put there."""
    if type(value) in (bool, int, float, str, type(None)):
        return value
    if depth > _DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        return _plain(value.tolist(), depth + 1)
    return str(value)
