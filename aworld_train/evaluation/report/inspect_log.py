"""The log of an evaluation that Inspect AI reads: a sample a task, an epoch an attempt."""

from pathlib import Path

from aworld_train import __version__
from aworld_train.errors import ExportError
from aworld_train.evaluation.results import Evaluation
from aworld_train.evaluation.tally import PHASE
from aworld_train.store.export.exporting import INSPECT_SUFFIX, ExportCounts, export
from aworld_train.store.export.formats import ExportFormat
from aworld_train.store.export.writer import ExportedEvaluation, ExportedRun
from aworld_train.training.run_store import open_run_store

NAME = f"inspect{INSPECT_SUFFIX}"


def write_inspect_log(evaluation: Evaluation, file: Path) -> ExportCounts | None:
    """Write the attempts whose texts are kept; None, and no file, if there are none."""
    settings = evaluation.settings
    with open_run_store(evaluation.run) as store:
        run = ExportedRun(
            evaluation.name,
            store.location.run,
            str(settings.get("model") or ""),
            store.blob,
            __version__,
            evaluation.run.recipe,
            ExportedEvaluation(
                dataset=", ".join(map(str, settings.get("dataset") or ())),
                tasks=int(settings["tasks"]),
                attempts=int(settings["attempts"]),
                sampling={
                    name: settings[name]
                    for name in ("temperature", "top_p", "top_k", "seed")
                    if settings.get(name) is not None
                },
                model_url=settings.get("model_url"),
                is_complete=len(evaluation.attempts) >= evaluation.expected,
            ),
        )
        try:
            return export(
                store,
                run,
                ExportFormat.inspect,
                file,
                condition=f"phase={PHASE} and status=ended",
                force=True,
            )
        except ExportError:
            file.unlink(missing_ok=True)
            return None
