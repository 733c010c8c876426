"""One attempt at a tiny model: two lessons, each of which ends when a measurement says so, and the gate."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aworld_train.model import warm_start
from aworld_train.model.course import BuildProgress
from aworld_train.model.measurement import Greedy, SampledGroups, greedy, sampled
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

LOWEST_ACCURACY, HIGHEST_ACCURACY = 0.3, 0.52
"""Greedy accuracy that a model is kept at: enough for sampled groups to hold right answers, and so little that
training can raise it by far more than 20 points."""
MIN_MIXED_GROUPS = 0.65
LOWEST_SAMPLED_ACCURACY = 0.3
GATE = (
    f"greedy accuracy {LOWEST_ACCURACY}-{HIGHEST_ACCURACY}; at temperature 1 at least {MIN_MIXED_GROUPS} of the "
    f"groups mixed and an accuracy of {LOWEST_SAMPLED_ACCURACY}"
)

SECOND_LESSONS = 3
TOOL_CHECK_TASKS = 128
GROUP_TASKS = 64


@dataclass(frozen=True)
class Attempt:
    """A model in the making, with the tasks it is shown and the tasks it is measured on."""

    model: Any
    encoder: TranscriptEncoder
    shown: Sequence[ArithmeticTask]
    measured: Sequence[ArithmeticTask]
    seed: int
    course: BuildProgress


@dataclass(frozen=True)
class AcceptedModel:
    """A model that met the gate."""

    model: Any
    encoder: TranscriptEncoder
    greedy: Greedy
    sampled: SampledGroups


def run(attempt: Attempt) -> AcceptedModel | None:
    """Teach both lessons; returns None where one of them did not reach its aim.

    Raises:
        OutOfTime: The build's time is used up.
    """
    return _half_known(attempt) if _learned_tool(attempt) else None


def _learned_tool(attempt: Attempt) -> bool:
    attempt.course.phase = "tool"

    def measure(step: int) -> float:
        found = greedy(attempt.model, attempt.encoder, attempt.measured[:TOOL_CHECK_TASKS])
        attempt.course.measured(step, **asdict(found))
        return found.accuracy

    return warm_start.learn_tool(
        warm_start.Updater(attempt.model, attempt.encoder.preamble),
        warm_start.tool_batches(attempt.encoder, attempt.shown, attempt.seed),
        measure,
        attempt.course.stepped,
    )


def _half_known(attempt: Attempt) -> AcceptedModel | None:
    """The second lesson, from where the first one ended, several times if need be."""
    attempt.course.phase = "guess"
    model, encoder = attempt.model, attempt.encoder
    learned = {name: weight.clone() for name, weight in model.state_dict().items()}
    limit = warm_start.longest_short(attempt.measured)
    for lesson in range(SECOND_LESSONS):
        model.load_state_dict(learned)
        made = warm_start.learn_to_guess(
            warm_start.Updater(model, encoder.preamble, scale=warm_start.GUESS_SCALE),
            warm_start.mixed_batches(encoder, attempt.shown, limit, attempt.seed + lesson),
            lambda step: _through_gate(attempt, step),
            attempt.course.stepped,
        )
        if made:
            return made
    return None


def _through_gate(attempt: Attempt, step: int) -> AcceptedModel | None:
    """Measure, and give the model back if what was measured is inside the gate."""
    likeliest = greedy(attempt.model, attempt.encoder, attempt.measured)
    if not LOWEST_ACCURACY <= likeliest.accuracy <= HIGHEST_ACCURACY:
        attempt.course.measured(step, **asdict(likeliest))
        return None
    groups = sampled(attempt.model, attempt.encoder, attempt.measured[:GROUP_TASKS], attempt.seed)
    attempt.course.measured(
        step,
        **asdict(likeliest),
        mixed_groups=groups.mixed_groups,
        sampled_accuracy=groups.accuracy,
        sampled_tool_use=groups.tool_use,
    )
    if groups.mixed_groups < MIN_MIXED_GROUPS or groups.accuracy < LOWEST_SAMPLED_ACCURACY:
        return None
    return AcceptedModel(attempt.model, attempt.encoder, likeliest, groups)
