"""``aworld-train runs``: lists, shows, compares and draws runs, follows and stops them, and makes one again."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import runs_episodes
from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsArgument, RunsOption
from aworld_train.cli.console import err, note, out, print_facts, print_json, print_line, print_table
from aworld_train.cli.runs_checkpoint import checkpoint
from aworld_train.cli.runs_export import export_run, report
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.training.recorded_run import RecordedRun

app = typer.Typer(no_args_is_help=True, help="Look at runs, compare them, and make one again.")
app.command("export")(export_run)
app.command("report")(report)
app.command("checkpoint")(checkpoint)
app.command("episodes")(runs_episodes.episodes)
app.command("episode")(runs_episodes.episode)
app.command("trace-token")(runs_episodes.trace_token)
app.command("prune")(runs_episodes.prune)

_SHOWN = ("reward", "val_accuracy", "loss", "val_loss", "entropy", "seconds", "tokens_per_second")
_STYLES = {"completed": "green", "failed": "red", "killed": "red", "interrupted": "yellow", "running": "cyan"}
_MAX_COLUMN = 40  # characters of a value beside those of other runs; longer ones have lines of their own


@app.command("list")
def list_runs(runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """List the runs below a folder, the one that began last first.

    A run whose process was killed, so that it could not write how it ended, is `killed`.
    """
    from rich.text import Text

    from aworld_train.training.recorded_run import check_runs_folder, find_runs
    from aworld_train.training.sparkline import sparkline

    check_runs_folder(runs)
    found = find_runs(runs)
    if as_json:
        print_json({"runs": [_overview(run) for run in found]})
        return
    if not found:
        note(f"There are no runs in {runs}.")
        return
    rows = []
    for run in found:
        reward = run.summary.get("reward")
        rows.append(
            (
                run.name,
                Text(run.status, _STYLES.get(run.status, "")),
                _steps(run, "/"),
                _gain(run),
                "–" if reward is None else f"{reward:.3f}",
                sparkline(run.summary.get("rewards") or ()),
                _duration(run.summary.get("seconds")),
                run.started[:16].replace("T", " "),
                run.subject,
            )
        )
    print_table(
        ("run", "status", "steps", "accuracy", "reward", "course", "time", "began", "model or agent"),
        rows,
        optional=("course", "began", "reward", "time", "steps"),
    )


@app.command("show")
def show(run: RunArgument, runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """Show how a run went: its result, its figures over the steps, and what it came from."""
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.sparkline import sparkline

    recorded = open_run(run, runs)
    if as_json:
        print_json(
            {
                **_overview(recorded),
                "summary": dict(recorded.summary),
                "manifest": dict(recorded.manifest),
                "figures": {name: recorded.series(name) for name in recorded.figure_names()},
            }
        )
        return
    print_facts(_facts(recorded))
    series = [(name, [value for _, value in recorded.series(name)]) for name in _SHOWN]
    rows = [
        (
            name,
            *(f"{value:.4g}" for value in (values[0], values[-1], min(values), max(values))),
            sparkline(values),
        )
        for name, values in series
        if values
    ]
    out.print()
    print_table(("figure", "first", "last", "least", "greatest", "over the steps"), rows)
    others = [name for name in recorded.figure_names() if name not in _SHOWN]
    if others:
        note(
            f"{len(others)} more figures are in {recorded.path / 'metrics.jsonl'}: {', '.join(others[:6])}, ..."
        )


@app.command("compare")
def compare(names: RunsArgument, runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """Compare runs: the keys in which their recipes differ, and what came of them.

    Accuracies are of each run's own validation tasks, with a 95 % interval. Two runs that differ by less than their
    intervals are not known to differ.

    Examples:
        aworld-train runs compare lr-1e-5 lr-3e-5
        aworld-train runs compare runs/a /other/place/b --json
    """
    from aworld_train.training.recorded_run import open_run, recipe_differences

    if len(names) < 2:
        raise UsageError("Comparing takes two runs or more: aworld-train runs compare A B.")
    recorded = [open_run(name, runs) for name in names]
    differences = recipe_differences(recorded)
    sources = [_source(run) for run in recorded]
    if as_json:
        overviews = [
            {**_overview(run), "source": source} for run, source in zip(recorded, sources, strict=True)
        ]
        print_json({"runs": overviews, "recipe_differences": differences})
        return
    results = [_results(run) for run in recorded]
    rows = [(label, *(result[label] for result in results)) for label in results[0]]
    if len(set(sources)) > 1:
        rows.append(("code", *sources))
    texts = {
        key: ["–" if value is None else str(value) for value in values] for key, values in differences.items()
    }
    long = {key for key, values in texts.items() if max(map(len, values)) > _MAX_COLUMN}
    rows += [(key, *values) for key, values in texts.items() if key not in long]
    print_table(("", *(run.name for run in recorded)), rows)
    for key in texts:
        if key in long:
            out.print()
            print_table(
                ("", "", ""),
                [(key, run.name, value) for run, value in zip(recorded, texts[key], strict=True)],
            )
    if not differences:
        note("Their recipes differ in nothing but the name.")
    if len({run.summary.get("val", {}).get("after", {}).get("n") for run in recorded}) > 1:
        note("The runs were validated on different numbers of tasks.")


@app.command("plot")
def plot(
    names: RunsArgument,
    figures: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            "-f",
            help="A figure of metrics.jsonl, such as loss or verl.actor/grad_norm; repeatable.",
        ),
    ] = None,
    target: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path("runs.png"),
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Draw figures of one or several runs over their steps, as a PNG.

    Examples:
        aworld-train runs plot quickstart
        aworld-train runs plot a b c -f reward -f val_accuracy -o comparison.png
    """
    from aworld_train.training.curve import draw_runs
    from aworld_train.training.recorded_run import open_run

    chosen = figures or ["reward", "val_accuracy"]
    draw_runs([open_run(name, runs) for name in names], chosen, target)
    if as_json:
        print_json({"picture": str(target), "figures": chosen})
    else:
        note(f"The picture is {target}.")


@app.command("attach")
def attach(run: RunArgument, runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """Follow a run that another command or a scheduler started, until it ends.

    Shows its log, then its summary, and exits with the run's own code. Ctrl-C ends the following; the run continues.
    """
    from aworld_train import launch
    from aworld_train.cli.train import print_summary
    from aworld_train.launch.attach import attach as follow

    folder = _folder(run, runs)
    shown = note if as_json else print_line
    summary = follow(launch.launcher_of(folder), folder, shown)
    if as_json:
        print_json(summary.to_json())
    else:
        print_summary(summary)


@app.command("logs")
def logs(
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the run has ended.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="Only the last lines.", min=1)] = None,
    runs: RunsOption = RUNS,
) -> None:
    """Print the log of a run: its framework's, or its job's."""
    from collections import deque

    from aworld_train import launch

    if follow and lines is not None:
        raise UsageError("--follow shows a log as it grows, and --lines its end: give one of them.")
    folder = _folder(run, runs)
    printed = launch.launcher_of(folder).logs(folder, follow=follow)
    for line in printed if lines is None else deque(printed, maxlen=lines):
        print_line(line)


@app.command("stop")
def stop(run: RunArgument, runs: RunsOption = RUNS, as_json: JsonOption = False) -> None:
    """End a run, wherever it runs, and wait until it has ended; `train --resume` continues it."""
    from aworld_train import launch

    folder = _folder(run, runs)
    launch.launcher_of(folder).stop(folder)
    if as_json:
        print_json({"run": str(folder), "stopped": True})
    else:
        note(f"The run in {folder} has ended.")


@app.command("samplers")
def samplers(
    run: RunArgument,
    number: Annotated[int, typer.Argument(help="How many are to sample from now on.")],
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Change how many samplers a running run with `trainer.mode: separate_async` has.

    New ones get the weights that were delivered last; the turns of those that end continue on the others. A run that is
    resumed has `rollout.samplers` again.
    """
    from aworld_train.training.run_requests import ask_for_samplers

    folder = ask_for_samplers(run, number, runs)
    if as_json:
        print_json({"run": str(folder), "samplers": number})
    else:
        note(
            f"The run in {folder} will have {number} {'sampler' if number == 1 else 'samplers'} in a moment."
        )


@app.command("clean")
def clean(as_json: JsonOption = False) -> None:
    """Remove what killed runs, evaluations and environments left in the folder for temporary files.

    Only what belongs to you and provably to no living process; every start does the same. Run folders stay.
    """
    from aworld_train import env

    removed = env.clean_leftovers()
    if as_json:
        print_json({"removed": [str(path) for path in removed]})
        return
    for path in removed:
        note(f"Removed {path}.")
    if not removed:
        note("There is nothing to remove.")


@app.command("reproduce")
def reproduce(
    run: RunArgument,
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="The recipe to write; default: RUN-again.yaml.")
    ] = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Write a run's recipe for another run, and print the command that makes it.

    The data must be what they were. What else differs from then (versions, code, model, machine) is said.

    Exits with 2 if data have changed or are missing.
    """
    from aworld_train import recipe as recipes
    from aworld_train.atomic import write_text
    from aworld_train.training.recorded_run import open_run

    recorded = open_run(run, runs)
    _refuse_other_data(recorded)
    name = f"{recorded.name}-again"
    file = target or Path(f"{name}.yaml")
    if file.exists():
        raise UsageError(f"{file} exists. Name another file with --out, or remove it.")
    changes = _changes(recorded)
    write_text(file, recipes.dump({**recorded.recipe, "name": name}), 0o644)
    arguments = ["aworld-train", "train", str(file), *(["--runs", str(runs)] if runs != RUNS else [])]
    if as_json:
        print_json({"recipe": str(file), "command": arguments, "changes": changes})
        return
    for change in changes:
        note(change)
    typer.echo(shlex.join(arguments))


@app.command("watch")
def watch(run: RunArgument, runs: RunsOption = RUNS) -> None:
    """Show the live screen of a run that another terminal, or a job, trains, until it ends.

    Ctrl-C ends the watching; the run continues. Where the output is not a terminal there is a line for each step.

    Example:
        aworld-train runs watch quickstart
    """
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.run_status import follow
    from aworld_train.training.screen import train_progress

    recorded = open_run(run, runs)
    if recorded.evaluation or recorded.status != "running":
        subject = "an evaluation" if recorded.evaluation else recorded.status
        raise UsageError(
            f"{recorded.name} is {subject}, so no training can be watched. See `runs show {run}`."
        )
    with train_progress(err, quiet=False) as progress:
        ended = follow(recorded.path, progress)
    note(f"{ended.name} is {ended.status}. See `aworld-train runs show {run}`.")


def _folder(run: str, runs: Path) -> Path:
    """The folder of a run that may not have begun yet: its job has a record there before it has a recipe."""
    from aworld_train.launch.record import record_file
    from aworld_train.training.recorded_run import open_run

    for folder in (runs / run, Path(run)):
        if record_file(folder).is_file():
            return folder.resolve()
    return open_run(run, runs).path


def _overview(run: "RecordedRun") -> dict[str, Any]:
    return {
        "name": run.name,
        "path": str(run.path),
        "status": run.status,
        "subject": run.subject,
        **{key: run.summary.get(key) for key in ("steps_done", "steps_planned", "val", "reward", "seconds")},
        "started": run.started or None,
        "error": run.summary.get("error"),
    }


def _facts(run: "RecordedRun") -> dict[str, str]:
    attempts = run.attempts
    last: Mapping[str, Any] = attempts[-1] if attempts else {}
    error = run.summary.get("error") or {}
    facts = {
        "run": f"{run.name}: {run.status}",
        **_results(run),
        "error": str(error.get("message", "")),
        "alarms": "; ".join(str(alarm.get("text", alarm)) for alarm in run.summary.get("alarms") or ()),
        "attempts": f"{len(attempts)}, from steps {', '.join(str(a.get('from_step')) for a in attempts)}"
        if attempts
        else "",
        "model or agent": _model(run),
        "code": _source(run),
        "versions": ", ".join(
            f"{name} {version}" for name, version in (run.manifest.get("packages") or {}).items()
        ),
        "machine": ", ".join(
            str(part) for part in (last.get("host"), last.get("processor"), *(last.get("gpus") or ())) if part
        ),
        "image": str((last.get("environment") or {}).get("image") or ""),
        "command": str(last.get("command", "")),
        "checkpoint": str(run.summary.get("checkpoint") or ""),
        "folder": str(run.path),
    }
    return {name: value for name, value in facts.items() if value}


def _results(run: "RecordedRun") -> dict[str, str]:
    summary = run.summary
    rewards = [value for _, value in run.series("reward")]
    seconds = [value for _, value in run.series("seconds")]
    outcomes = summary.get("outcomes") or {}
    return {
        "model or agent": run.subject or "–",
        "steps": _steps(run, " of "),
        "accuracy before": _accuracy(run.validation("before")),
        "accuracy after": _accuracy(run.validation("after")),
        "reward, last step": f"{rewards[-1]:.3f}" if rewards else "–",
        "seconds a step": f"{sum(seconds) / len(seconds):.1f}" if seconds else "–",
        "time": _duration(summary.get("seconds")),
        "outcomes": ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items())) or "–",
    }


def _accuracy(validation: Mapping[str, Any]) -> str:
    from aworld_train.evaluation.statistics import wilson_interval

    accuracy, n = validation.get("accuracy"), validation.get("n")
    if accuracy is None or not n:
        return "–"
    low, high = wilson_interval(accuracy * n, n)
    return f"{accuracy:.1%} ({low:.0%} to {high:.0%}, n {n})"


def _steps(run: "RecordedRun", of: str) -> str:
    if run.evaluation:
        return "–"
    return f"{run.summary.get('steps_done', 0)}{of}{run.summary.get('steps_planned', '?')}"


def _gain(run: "RecordedRun") -> str:
    before, after = (run.validation(which).get("accuracy") for which in ("before", "after"))
    shown = ["–" if value is None else f"{value:.1%}" for value in (before, after)]
    if run.evaluation:
        return shown[1]
    return "–" if before is None and after is None else " → ".join(shown)


def _duration(seconds: Any) -> str:
    from aworld_train.training.progress import clock

    return clock(round(seconds)) if isinstance(seconds, int | float) else "–"


def _model(run: "RecordedRun") -> str:
    identity = run.model.get("revision") or (run.model.get("fingerprint") or "")[:16]
    return f"{run.subject} ({identity})" if identity else run.subject


def _source(run: "RecordedRun") -> str:
    source = run.manifest.get("source") or {}
    if not source:
        return ""
    changed = source.get("changed_files", 0) + source.get("untracked_files", 0)
    return f"{source.get('commit', '')[:12]} on {source.get('branch')}" + (
        f", {changed} files changed" if changed else ""
    )


def _refuse_other_data(run: "RecordedRun") -> None:
    from aworld_train.atomic import sha256_of

    faults = []
    for name, recorded in (run.manifest.get("data_sha256") or {}).items():
        file = Path(name)
        if "${" in name:
            continue  # the reference to a variable: `train --resume` checks it, a new run takes what it refers to
        if not file.is_file():
            faults.append(f"{name} is missing")
        elif sha256_of(file) != recorded:
            faults.append(f"{name} has changed")
    if faults:
        raise UsageError(
            f"{run.path} cannot be made again: {', '.join(faults)}. Build the data again as they were: "
            "the manifest.json beside them says from what."
        )


def _changes(run: "RecordedRun") -> Sequence[str]:
    from importlib import metadata

    from aworld_train import __version__
    from aworld_train.training.provenance import model_identity, source_code

    changes = []
    versions = {"aworld-train": run.manifest.get("aworld_train"), **(run.manifest.get("packages") or {})}
    for package, recorded in versions.items():
        try:
            current = __version__ if package == "aworld-train" else metadata.version(package)
        except metadata.PackageNotFoundError:
            current = "missing"
        if recorded != current:
            changes.append(f"{package} is {current}; it was {recorded}.")
    recorded_source = run.manifest.get("source") or {}
    source, _ = source_code(Path.cwd())
    if recorded_source and (source or {}).get("commit") != recorded_source.get("commit"):
        changes.append(f"The code was at commit {recorded_source.get('commit')}.")
    if recorded_source.get("changed_files"):
        changes.append(f"The code had changes that were not committed: {run.path / 'source.diff'}.")
    if run.model and "${" not in str(run.model.get("name")):
        current_model = model_identity(run.model.get("name")) or {}
        if any(current_model.get(key) != run.model.get(key) for key in ("revision", "fingerprint")):
            changes.append(f"The model {run.model.get('name')} is not the one it was.")
    return changes
