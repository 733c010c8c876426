"""The figures of an evaluation in a few lines for people; only what there is something to say about."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aworld_train.evaluation.metrics import Figures

if TYPE_CHECKING:
    from aworld_train.evaluation.contamination import Contamination

_MAX_LABELS = 12
_MAX_CAUSES = 3


def summary_lines(figures: Figures, contamination: "Contamination | None" = None) -> Iterator[str]:
    yield _headline(figures)
    if figures.attempts_per_task > 1:
        yield _over_attempts(figures)
    for grouping, groups in figures.groups.items():
        labels = list(groups.items())[:_MAX_LABELS]
        more = f", and {len(groups) - _MAX_LABELS} more" if len(groups) > _MAX_LABELS else ""
        parts = [f"{label or '(none)'} {_share(group.accuracy)} of {group.n}" for label, group in labels]
        yield f"by {grouping}: {', '.join(parts)}{more}"
    if figures.tool_calls:
        yield f"{figures.tool_calls} tool calls, {figures.tool_errors} errors"
    yield ", ".join(_resources(figures))
    for title, counts in (
        ("outcomes", figures.outcomes),
        ("not scored", figures.unscored),
        ("requests sent again", figures.faults),
        ("to be looked at", figures.suspicions),
    ):
        if counts and (title != "outcomes" or len(counts) > 1):
            yield f"{title}: {_counted(counts)}"
    if figures.parts:
        yield f"parts: {_counted(figures.parts)}"
    if figures.calibration is not None:
        yield f"stated confidence: RMS calibration error {figures.calibration.rms_error:.1%}"
    if contamination is not None:
        yield _trained_on(contamination)
    if figures.errors:
        yield f"{figures.errors} of {figures.attempts} attempts could not be scored; they are in no figure above:"
        for cause, count in list(figures.causes.items())[:_MAX_CAUSES]:
            yield f"  {count} x {cause}"


def _headline(figures: Figures) -> str:
    if figures.accuracy is None or figures.interval is None:
        return f"no attempt of {figures.attempts} could be scored, on {figures.dataset}"
    low, high = figures.interval
    unfinished = (
        "" if figures.is_complete else f", {figures.attempts} of {figures.attempts_expected} attempts"
    )
    return (
        f"accuracy {figures.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}) of {figures.model} on "
        f"{figures.n} tasks of {figures.dataset}{unfinished}"
    )


def _trained_on(found: "Contamination") -> str:
    counts = f"{found.exact} of {found.n} tasks, and {found.near} nearly"
    alike = f", and {found.figure_variants} that differ from one in their numbers alone"
    variants = alike if found.figure_variants else ""
    remarks = [f"{name} has changed since" for name in found.changed]
    remarks += [f"not compared: {reason}" for reason in found.missing]
    remarks += [] if found.is_complete else [f"only {found.rows} rows were compared in time"]
    return f"the model's training data has {counts}{variants}" + "".join(f"; {remark}" for remark in remarks)


def _over_attempts(figures: Figures) -> str:
    parts = [f"avg@{figures.attempts_per_task} {_share(figures.accuracy)}"]
    for name, values in (("pass@", figures.pass_at), ("pass^", figures.pass_all), ("maj@", figures.majority)):
        parts += [f"{name}{k} {_share(value)}" for k, value in values.items() if k > 1]
    return ", ".join(parts)


def _resources(figures: Figures) -> Iterator[str]:
    yield f"{figures.seconds:.0f} s"
    if figures.latency is not None:
        yield f"an attempt {figures.latency.median:.1f} s (median), {figures.latency.p99:.1f} s (99 %)"
    if figures.sampled_tokens.total:
        yield f"{figures.prompt_tokens.total:,} tokens read, {figures.sampled_tokens.total:,} written"
    if figures.cost is not None:
        yield f"cost {figures.cost.total:.2f}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def _counted(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:g}" for name, count in sorted(counts.items()))
