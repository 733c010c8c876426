"""``aworld-train eval compare``: evaluations against a first one, in pairs of tasks, also as a gate for CI."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli.arguments import RUNS, EvaluationsArgument, JsonOption, RunsOption
from aworld_train.cli.console import err, note, out, print_json, print_line, print_table, visible

if TYPE_CHECKING:
    from rich.text import Text

    from aworld_train.evaluation.comparing import Comparison, EvaluationSummary, Flip
    from aworld_train.evaluation.metrics import GroupFigures

_MAX_LABELS = 12
_ROUNDING = 1e-9  # a difference that is the limit itself does not fail for its last bit


def compare(
    names: EvaluationsArgument,
    fail_if_worse: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Exit with 1 if an evaluation's accuracy is lower than the first's by more than this.",
        ),
    ] = None,
    min_n: Annotated[
        int | None, typer.Option(min=1, help="Exit with 1 if two have fewer tasks in common than this.")
    ] = None,
    flips: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The most tasks won, and the most tasks lost, that are listed; default: 5, of more than two "
            "evaluations none.",
        ),
    ] = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Compare evaluations with the first one, task by task: is one better, and which tasks were won and lost.

    Accuracies of each level, source and tag are beside each other. Only tasks that both have a score of are compared.
    The interval of a difference is a bootstrap over tasks; its p-value is of McNemar's exact test with one attempt a
    task, and of a permutation test with several; with several comparisons it is Holm's. A difference that is not shown
    comes with the smallest one that this many tasks would show in 8 of 10 measurements.

    `--fail-if-worse 0.02` looks at the difference as it was measured: it fails if that is below -0.02, whether or not
    the interval excludes a smaller loss, and passes otherwise, whether or not the interval excludes a larger one. It
    says which of these is so. With `--min-n` a gate does not pass for want of tasks.

    Examples:
        aworld-train eval compare eval-base eval-step-200
        aworld-train eval compare eval-base eval-new --fail-if-worse 0.02 --min-n 200 --json
    """
    from aworld_train.evaluation.comparing import compare_evaluations, summary_of
    from aworld_train.evaluation.results import open_evaluation

    evaluations = [open_evaluation(name, runs) for name in names]
    comparisons = compare_evaluations(evaluations)
    summaries = [summary_of(evaluation) for evaluation in evaluations]
    gates = [_gates(each, fail_if_worse, min_n) for each in comparisons]
    passed = all(gate["passed"] for each in gates for gate in each)
    if as_json:
        print_json(
            {
                "first": asdict(summaries[0]),
                "comparisons": [
                    {**asdict(summary), **each.to_json(), "gates": gate}
                    for summary, each, gate in zip(summaries[1:], comparisons, gates, strict=True)
                ],
                "passed": passed,
            }
        )
    else:
        most_flips = flips if flips is not None else 5 if len(comparisons) == 1 else 0
        _print(summaries, comparisons, most_flips)
        for gate in (gate for each in gates for gate in each):
            note(f"{'passed' if gate['passed'] else 'FAILED'}: {gate['reason']}")
    if not passed:
        raise typer.Exit(1)


def _gates(comparison: "Comparison", fail_if_worse: float | None, min_n: int | None) -> list[dict[str, Any]]:
    gates = []
    if fail_if_worse is not None:
        gates.append(_worse_gate(comparison, fail_if_worse))
    if min_n is not None:
        tasks = comparison.difference.tasks
        reason = f"{comparison.name} and the first have {tasks} tasks in common, and --min-n is {min_n}."
        gates.append({"gate": "min_n", "limit": min_n, "passed": tasks >= min_n, "reason": reason})
    return gates


def _worse_gate(comparison: "Comparison", limit: float) -> dict[str, Any]:
    difference, (low, high) = comparison.difference.difference, comparison.difference.interval
    passed = difference >= -limit - _ROUNDING
    measured = (
        f"{comparison.name} differs by {_points(difference)} points; --fail-if-worse allows {_points(-limit)}"
    )
    if passed and low >= -limit:
        certainty = "the interval excludes a larger loss"
    elif passed:
        certainty = (
            f"the interval, from {_points(low)}, does not exclude a larger loss; more tasks would tell"
        )
    elif high < -limit:
        certainty = "the interval excludes a smaller loss"
    else:
        certainty = (
            f"the interval, to {_points(high)}, does not exclude a smaller loss; more tasks would tell"
        )
    return {
        "gate": "fail_if_worse",
        "limit": limit,
        "passed": passed,
        "interval_excludes": low >= -limit if passed else high < -limit,
        "reason": f"{measured}; {certainty}.",
    }


def _print(
    summaries: Sequence["EvaluationSummary"], comparisons: Sequence["Comparison"], most_flips: int
) -> None:
    _print_table(summaries, comparisons)
    _print_groups(summaries)
    for comparison in comparisons:
        print_line(f"\n{_sentence(summaries[0].name, comparison)}")
        _print_flips("won", comparison.won, most_flips)
        _print_flips("lost", comparison.lost, most_flips)
        for warning in comparison.warnings:
            err.print(f"warning: {warning}", markup=False, soft_wrap=True, style="yellow")


def _print_table(summaries: Sequence["EvaluationSummary"], comparisons: Sequence["Comparison"]) -> None:
    rows: list[list[str | Text]] = []
    for number, summary in enumerate(summaries):
        cells = _difference_cells(comparisons[number - 1]) if number else [""] * 4
        rows.append(
            [summary.name, _accuracy(summary), str(summary.n), str(summary.errors), *cells, summary.subject]
        )
    columns = (
        "accuracy (95 %)",
        "tasks",
        "errors",
        "difference (95 %)",
        "p",
        "won",
        "lost",
        "model or agent",
    )
    print_table(("evaluation", *columns), rows)


def _print_groups(summaries: Sequence["EvaluationSummary"]) -> None:
    for grouping in dict.fromkeys(name for summary in summaries for name in summary.groups):
        groups = [summary.groups.get(grouping, {}) for summary in summaries]
        labels = list(dict.fromkeys(label for each in groups for label in each))
        rows = [
            [label or "(none)", *(_accuracy(each[label]) if label in each else "" for each in groups)]
            for label in labels[:_MAX_LABELS]
        ]
        print_line("")
        print_table((grouping, *(summary.name for summary in summaries)), rows)
        if len(labels) > _MAX_LABELS:
            note(f"{len(labels) - _MAX_LABELS} more are in --json.")


def _accuracy(figures: "EvaluationSummary | GroupFigures") -> str:
    if figures.accuracy is None or figures.interval is None:
        return "–"
    low, high = figures.interval
    return f"{figures.accuracy:.1%} ({100 * low:.1f} to {100 * high:.1f})"


def _difference_cells(comparison: "Comparison") -> list["str | Text"]:
    from rich.text import Text

    difference = comparison.difference
    low, high = difference.interval
    colour = ("green" if difference.difference > 0 else "red") if comparison.is_shown else ""
    return [
        Text(f"{_points(difference.difference)} ({_points(low)} to {_points(high)})", colour),
        f"{comparison.p_value:.3f}" if comparison.p_value >= 0.001 else "<0.001",
        str(difference.won),
        str(difference.lost),
    ]


def _sentence(first: str, comparison: "Comparison") -> str:
    difference = comparison.difference
    better = "better" if difference.difference > 0 else "worse"
    size = f"{abs(100 * difference.difference):.1f} points"
    if comparison.is_shown:
        return (
            f"{comparison.name} is {better} than {first}: by {size} on {difference.tasks} tasks in common, and chance "
            f"makes such a difference in {max(comparison.p_value, 0.0001):.2%} of cases."
        )
    return (
        f"It is not shown that {comparison.name} and {first} differ: {size} on {difference.tasks} tasks in common "
        f"(p {comparison.p_value:.2f}). That many tasks show a difference of {100 * difference.smallest:.1f} points or "
        "more."
    )


def _print_flips(verb: str, flips: Sequence["Flip"], most: int) -> None:
    if not flips or not most:
        return
    out.print(f"{verb} {len(flips)}{f', of which {most} are' if len(flips) > most else ''}:", style="dim")
    for flip in flips[:most]:
        scores = f"{flip.before:.2f} → {flip.after:.2f}"
        print_line(f"  #{flip.index:<5} {scores}  {visible(flip.question, '')}")


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"
