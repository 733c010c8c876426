"""An evaluation as a page of Markdown, for pull requests and notes.

What models, tools and datasets wrote is in it with every character escaped that Markdown or HTML reads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aworld_train.evaluation.metrics import Figures, GroupFigures
from aworld_train.evaluation.results import Evaluation

NAME = "report.md"
_MAX_TASKS = 25
_QUESTION_CHARS = 100
# What Markdown reads within a line, and what GitHub makes links of.
_MARKUP = re.compile(r"([\\`*_\[\]|~>$^@#]|(?<=:)/(?=/)|(?<=www)\.)", re.IGNORECASE)
_SETTINGS = ("attempts", "temperature", "top_p", "top_k", "seed", "agent", "concurrency", "model_url")


def markdown_report(evaluation: Evaluation, figures: Figures) -> str:
    lines = [f"# Evaluation {escaped(evaluation.name)}", "", _headline(figures), ""]
    lines += _table(("", ""), _overview(figures))
    ladder = {"pass@k": figures.pass_at, "pass^k": figures.pass_all, "maj@k": figures.majority}
    if len(figures.pass_at) > 1:
        lines += ["", "## Several attempts", ""]
        lines += _table(
            ("", *(f"k = {k}" for k in figures.pass_at)),
            [
                (name, *(percent(values.get(k)) for k in figures.pass_at))
                for name, values in ladder.items()
                if values
            ],
        )
    for grouping, groups in figures.groups.items():
        lines += ["", f"## By {grouping}", ""]
        lines += _table((grouping, "tasks", "accuracy", "95 % interval", "errors"), _group_rows(groups))
    for title, counts in (
        ("Outcomes", figures.outcomes),
        ("Errors by cause", figures.causes),
        ("Answers that could not be scored", figures.unscored),
        ("Requests that were sent again", figures.faults),
        ("Signs of reward hacking", figures.suspicions),
    ):
        if counts:
            lines += ["", f"## {title}", ""]
            lines += _table(("", "attempts"), [(escaped(name), str(count)) for name, count in counts.items()])
    lines += _unsolved(evaluation)
    lines += ["", "## Settings", ""]
    lines += _table(
        ("", ""),
        [
            (name, escaped(str(evaluation.settings[name])))
            for name in _SETTINGS
            if evaluation.settings.get(name) is not None
        ],
    )
    return "\n".join(lines) + "\n"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def interval_text(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f} %"


def escaped(text: str) -> str:
    """A text in one line that is neither Markdown nor HTML, without controls and marks of direction."""
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "�" for character in line)
    return _MARKUP.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))


def _headline(figures: Figures) -> str:
    model, dataset = escaped(figures.model), escaped(figures.dataset)
    if figures.accuracy is None:
        return f"**{model}** on {dataset}: no attempt of {figures.attempts} could be scored."
    each = (
        "one attempt each" if figures.attempts_per_task == 1 else f"{figures.attempts_per_task} attempts each"
    )
    done = (
        ""
        if figures.is_complete
        else f" Unfinished: {figures.attempts} of {figures.attempts_expected} attempts."
    )
    return (
        f"**{model}** on {dataset}: **{percent(figures.accuracy)}** (95 % interval "
        f"{interval_text(figures.interval)}) over {figures.n} tasks, {each}; {figures.errors} attempts without a "
        f"score.{done}"
    )


def _overview(figures: Figures) -> Iterator[tuple[str, str]]:
    yield "attempts", f"{figures.attempts:,} of {figures.attempts_expected:,}"
    yield "without a score", f"{figures.errors:,}"
    yield "tool calls", f"{figures.tool_calls:,}, {figures.tool_errors:,} errors"
    if figures.correct_with_tool is not None:
        yield "right answers with a tool", percent(figures.correct_with_tool)
    for name, quantity in (("prompt", figures.prompt_tokens), ("sampled", figures.sampled_tokens)):
        yield f"{name} tokens", f"{quantity.total:,}, {quantity.mean:,.0f} an attempt"
    if figures.turns:
        yield "turns", f"{figures.turns.mean:.1f} an attempt, {figures.turns.max} at most"
    if figures.latency:
        latency = figures.latency
        yield (
            "seconds of an attempt",
            f"{latency.median:.1f} median, {latency.p90:.1f} p90, {latency.p99:.1f} p99",
        )
        yield "of which", f"{percent(latency.model_share)} model, {percent(latency.tool_share)} tools"
    if figures.cost:
        yield "cost", f"{figures.cost.total:.4f}, {figures.cost.per_task:.6f} a task"
    if figures.calibration:
        yield "calibration error (RMS)", percent(figures.calibration.rms_error)
        yield "Brier score", f"{figures.calibration.brier:.3f}"
    for name, mean in figures.parts.items():
        yield f"part {escaped(name)}", f"{mean:.3f}"
    yield "duration", f"{figures.seconds:,.0f} s"


def _group_rows(groups: Mapping[str, GroupFigures]) -> Iterator[tuple[str, ...]]:
    for label, group in groups.items():
        yield (
            escaped(label) or "(none)",
            str(group.n),
            percent(group.accuracy),
            interval_text(group.interval),
            str(group.errors),
        )


def _unsolved(evaluation: Evaluation) -> Sequence[str]:
    unsolved = [
        task
        for task in evaluation.tasks.values()
        if (scores := evaluation.scores[task.id]) and not any(scores)
    ]
    if not unsolved:
        return []
    shown = f", the first {_MAX_TASKS} of {len(unsolved)}" if len(unsolved) > _MAX_TASKS else ""
    rows = [
        (
            str(task.index),
            escaped(task.level),
            escaped(task.question[:_QUESTION_CHARS]),
            escaped(task.correct_answer[:_QUESTION_CHARS]),
        )
        for task in unsolved[:_MAX_TASKS]
    ]
    return [
        "",
        f"## Tasks without a right answer{shown}",
        "",
        *_table(("index", "level", "question", "right answer"), rows),
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(header), _row(["---"] * len(header)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
