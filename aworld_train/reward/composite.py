"""``composite``: whether the answer is right, its format and its effort, as a weighted sum with gates.

The score is the sum of weight times part, so weights that sum to 1 keep it between 0 and 1 and a negative weight is a
penalty. A gate is a part that must be above 0, or the score is 0. The parts, each between 0 and 1 and each reported
whether it has a weight or not:

- ``correct``: the score of the scorer in the settings, else of the task's own; without that score the composite has
  none either.
- ``format``: 1 if there is an answer in the form of the row's schema and all tags are balanced.
- ``tool_use``: 1 if at least one tool call succeeded.
- ``length``: 1 up to ``max_chars`` characters of the assistant's text, falling to 0 at twice that.
- ``cost``: 1 up to ``max_calls`` tool calls, falling to 0 at twice that.
"""

import re
from collections.abc import Iterator
from typing import Any

from aworld_train.episode.outcome import Outcome
from aworld_train.errors import RewardError, suggestion
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.scorers import find_scorer, register_scorer
from aworld_train.reward.settings import SCORER, CompositeSettings

PARTS = ("correct", "format", "tool_use", "length", "cost")

_TAGS = ("answer", "think", "tool_call")


def composite_faults(settings: CompositeSettings) -> Iterator[tuple[str, str]]:
    for key, names in (("weights", tuple(settings.weights)), ("gates", settings.gates)):
        for name in names:
            if name not in PARTS:
                hint = suggestion(name, PARTS)
                yield key, f"has {name!r}, which is not one of {', '.join(PARTS)}.{hint}"
    for name, weight in settings.weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            yield "weights", f"must be numbers, {name} has {weight!r}"
    if not any(settings.weights.values()):
        yield "weights", "has no weight but 0, so every score would be 0"
    if settings.correct == "composite":
        yield "correct", "cannot be composite itself: name a scorer that says whether an answer is right"
    for key in ("max_chars", "max_calls"):
        if getattr(settings, key) < 1:
            yield key, f"must be at least 1, it is {getattr(settings, key)!r}"


def check_composite(settings: CompositeSettings) -> None:
    for key, fault in composite_faults(settings):
        raise RewardError(f"The scorer composite: `{key}` {fault}")
    if settings.correct:
        find_scorer(settings.correct)


@register_scorer("composite", scores_missing_answers=True, delegates=True)
async def composite(answer: str | None, ground_truth: str, context: ScoringContext) -> Score:
    """The weighted sum of the parts, or 0 where a gate's part is not above 0; None where ``correct`` has no score."""
    from aworld_train.reward.scoring import score_extracted

    settings = context.settings.composite
    check_composite(settings)
    scorer = find_scorer(settings.correct or context.info.get("scorer") or SCORER)
    if scorer.delegates:  # the task's own scorer is composite, which cannot delegate to itself
        scorer = find_scorer(SCORER)
    correct = await score_extracted(scorer, answer, ground_truth, context)
    steps = [f"{scorer.name}: {step}" for step in correct.steps]
    parts = {
        "format": float(answer is not None and not (_broken_turn(context) or _malformed(context.text))),
        "tool_use": float(_count(context, "tool_call_count") > _count(context, "tool_error_count")),
        "length": _falling(len(context.text), settings.max_chars),
        "cost": _falling(_count(context, "tool_call_count"), settings.max_calls),
    }
    parts |= {f"{scorer.name}_{name}": value for name, value in correct.parts.items()}
    if correct.score is None:
        cause = f"{scorer.name} has no score ({correct.outcome}): {correct.cause}"
        return Score(None, parts, (*steps, cause))
    parts = {"correct": correct.score, **parts}
    closed = [gate for gate in settings.gates if parts[gate] <= 0]
    total = sum(weight * parts[name] for name, weight in settings.weights.items())
    terms = " + ".join(f"{weight:g} x {name} {parts[name]:g}" for name, weight in settings.weights.items())
    steps += [f"{terms} = {total:g}", *(f"the gate {gate} is shut: 0" for gate in closed)]
    return Score(0.0 if closed else total, parts, tuple(steps))


def _broken_turn(context: ScoringContext) -> bool:
    return bool(context.episode.get("outcome") == Outcome.wrong_format.value)


def _malformed(text: str) -> bool:
    """Whether a tag is unclosed, nested in itself, or, but for the thinking's, closed without being open."""
    for name in _TAGS:
        is_closing = [match.group() == f"</{name}>" for match in re.finditer(rf"</?{name}>", text)]
        if name == "think" and is_closing[:1] == [True]:
            is_closing = is_closing[1:]
        if len(is_closing) % 2 or any(closes != bool(index % 2) for index, closes in enumerate(is_closing)):
            return True
    return False


def _count(context: ScoringContext, name: str) -> int:
    value: Any = context.episode.get(name)
    return int(value or 0)


def _falling(amount: int, limit: int) -> float:
    return min(1.0, max(0.0, 2.0 - amount / limit))
