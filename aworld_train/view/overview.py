"""Runs side by side: what a list shows of each, and in what several differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.errors import AworldTrainError
from aworld_train.training.recorded_run import RecordedRun, find_runs, recipe_differences
from aworld_train.view.curves import FIGURES, interval, thinned
from aworld_train.view.episodes import MAX_QUESTION_CHARS
from aworld_train.view.folder import REPORT, RunsFolder

_SUMMARY_FACTS = (
    *("checkpoint", "episodes", "trained_episodes", "tool_calls", "tool_errors", "outcomes", "suspicions"),
    *("unscored", "environment_losses", "restarts", "remark"),
)
_SETTINGS = ("dataset", "tasks", "attempts", "temperature", "top_p", "top_k")
_MAX_TASKS = 200


def run_list(folder: RunsFolder) -> list[dict[str, Any]]:
    """The runs, the one that began last first; of one that cannot be read the reason."""
    rows = []
    for run in find_runs(folder.path):
        try:
            rows.append(overview(run))
        except AworldTrainError as error:  # its recipe
            rows.append({"name": run.name, "status": "unreadable", "error": error.message, "started": ""})
    return sorted(rows, key=lambda row: row["started"], reverse=True)


def overview(run: RecordedRun) -> dict[str, Any]:
    error = run.summary.get("error")
    return {
        "name": run.name,
        "status": run.status,
        "started": run.started,
        **{name: run.summary.get(name) for name in ("seconds", "steps_done", "steps_planned", "reward")},
        "before": _accuracy(run.validation("before")),
        "after": _accuracy(run.validation("after")),
        "rewards": run.summary.get("rewards") or [],
        "alarms": len(run.summary.get("alarms") or ()),
        "error": error.get("message") if isinstance(error, dict) else None,
        "subject": run.subject,
        "has_report": (run.path / REPORT).is_file(),
        "has_store": (run.path / "store" / "run.json").is_file(),
    }


def facts(run: RecordedRun) -> dict[str, Any]:
    last: Mapping[str, Any] = run.attempts[-1] if run.attempts else {}
    source = run.manifest.get("source") or {}
    return {
        "folder": str(run.path),
        **{name: last.get(name) for name in ("command", "host", "gpus")},
        "attempts": len(run.attempts),
        "code": source.get("commit"),
        "branch": source.get("branch"),
        "changed_files": source.get("changed_files"),
        **{name: run.summary.get(name) for name in _SUMMARY_FACTS},
        "alarms": [
            alarm if isinstance(alarm, dict) else {"text": str(alarm)}
            for alarm in run.summary.get("alarms") or ()
        ],
        "evaluation": _evaluation(run),
    }


def comparison(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    names = [*FIGURES, "val_accuracy"]
    return {
        "runs": [overview(run) for run in runs],
        "differences": recipe_differences(runs),
        "series": {
            name: lines for name in names if any(lines := [thinned(run.series(name)) for run in runs])
        },
    }


def common_tasks(folder: RunsFolder, runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """The tasks that all runs have episodes of, those first whose mean rewards differ most."""
    by_run = []
    for run in runs:
        store = folder.store(run)
        if store is None:
            return []
        by_run.append({task.id: task for task in store.tasks()})
    shared = set(by_run[0]).intersection(*by_run[1:]) if by_run else set()
    rows: list[dict[str, Any]] = []
    for task in shared:
        heads = [tasks[task] for tasks in by_run]
        means = [head.mean_reward for head in heads if head.mean_reward is not None]
        rows.append(
            {
                "id": task,
                "index": heads[0].index,
                "source": heads[0].source,
                "question": heads[0].question[:MAX_QUESTION_CHARS],
                "rewards": [head.mean_reward for head in heads],
                "episodes": [head.episodes for head in heads],
                "spread": max(means) - min(means) if means else 0.0,
            }
        )
    return sorted(rows, key=lambda row: (-row["spread"], row["index"], row["id"]))[:_MAX_TASKS]


def _evaluation(run: RecordedRun) -> dict[str, Any] | None:
    if not run.evaluation:
        return None
    return {
        "settings": {name: run.evaluation.get(name) for name in _SETTINGS},
        "groups": run.summary.get("groups") or {},
        "attempts": run.summary.get("attempts"),
        "attempts_expected": run.summary.get("attempts_expected"),
    }


def _accuracy(validation: Mapping[str, Any]) -> dict[str, Any] | None:
    accuracy, n = validation.get("accuracy"), validation.get("n")
    if accuracy is None:
        return None
    return {
        "accuracy": accuracy,
        "n": n,
        "interval": interval(accuracy, n),
        "errors": validation.get("errors"),
    }
