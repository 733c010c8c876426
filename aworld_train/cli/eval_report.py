"""``aworld-train eval report``: the reports of an evaluation, written again."""

from dataclasses import asdict

from aworld_train.cli.arguments import RUNS, EvaluationArgument, JsonOption, RunsOption
from aworld_train.cli.console import note, print_json


def report(
    name: EvaluationArgument,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write the reports of an evaluation into its folder, finished or not; an evaluation that ends does so itself.

    `report.html` needs no server: figures, all tasks, and the conversations as far as 24 MB hold them, with texts over
    10,000 characters shortened. `report.md` is a summary, `results.parquet` has a row an attempt, and `inspect.eval` is
    for `inspect view`. They hold what the model and the tools wrote; give them to those who may read that.

    Examples:

        aworld-train eval report eval-quickstart

        aworld-train eval report runs/eval-quickstart --json
    """
    from aworld_train.evaluation.metrics import figures_of
    from aworld_train.evaluation.results import open_evaluation
    from aworld_train.view.eval_report import write_reports

    evaluation = open_evaluation(name, runs)
    figures = figures_of(evaluation)
    written = write_reports(evaluation, figures)
    if as_json:
        print_json({**asdict(written), "figures": figures.to_json()})
        return
    left_out = written.attempts - written.readable
    note(
        f"The report is {written.html}, {written.html.stat().st_size / 1e6:.1f} MB, with {written.attempts} attempts"
        + (f"; the conversations of {left_out} are not in it." if left_out else ".")
    )
    others = [written.markdown, written.table, *([written.inspect_log] if written.inspect_log else [])]
    note(f"Beside it are {', '.join(file.name for file in others)}.")
