"""Makes a run that is resumed the same run in each of its trackers, with every step and the way it ended.

Left alone, VeRL's ``Tracking`` makes a new run then, continues without MLflow when that fails, and reports a failed run
as finished.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aworld_train.adapter.verl import checkpoints
from aworld_train.adapter.verl.trackers import TENSORBOARD, local_store
from aworld_train.atomic import write_text
from aworld_train.json_lines import split_lines
from aworld_train.network import without_passwords
from aworld_train.recipe.trackers import FOLDER, missing_package, missing_sentence

_MLFLOW_RUN = "mlflow-run-id"
_MAX_CAUSE_CHARS = 300


def as_one_run(tracking: Any, run_dir: Path) -> Any:
    class Tracking(tracking):  # type: ignore[misc]
        def __init__(self, **options: Any):
            super().__init__(**options)
            if "wandb" in self.logger:
                repeat_earlier_steps(run_dir)

        def log(self, data: Any, step: int, backend: Any = None) -> None:
            super().log(data, step, backend)
            if "tensorboard" in self.logger:
                # PyTorch's writer holds what it was given for up to two minutes, and a killed run would lose it.
                self.logger["tensorboard"].writer.flush()

        def finish(self, exit_code: int = 0) -> None:
            if "mlflow" in self.logger:
                finish_mlflow(exit_code)
            super().finish(exit_code)

    return Tracking


def prepare_trackers(names: Sequence[str], run_dir: Path, *, project: str, run: str) -> None:
    for name in names:
        if package := missing_package(name):
            raise RuntimeError(missing_sentence(name, package))
    folder = run_dir / FOLDER / TENSORBOARD
    # A folder of the user's own may have other runs, which would lose their steps.
    if "tensorboard" in names and Path(os.environ["TENSORBOARD_DIR"]) == folder.resolve():
        checkpoint = checkpoints.last_checkpoint(run_dir / "checkpoints")
        take_back_later_steps(folder, checkpoint.step + 1 if checkpoint else 0)
    if "mlflow" in names:
        _begin_mlflow_run(run_dir / FOLDER, project, run)


def take_back_later_steps(folder: Path, first_step: int) -> None:
    """Have TensorBoard drop what an earlier start has written of this step and of later ones, which come again."""
    if not any(folder.glob("events.out.tfevents.*")):
        return
    from torch.utils.tensorboard import SummaryWriter

    SummaryWriter(str(folder), purge_step=first_step).close()


def repeat_earlier_steps(run_dir: Path) -> None:
    """Give W&B the steps of earlier starts that it lacks.

    An offline record begins anew with every start, and the end of the one before is lost if its run was
    killed. So the newest one holds the whole run.
    """
    import wandb

    assert wandb.run is not None
    for row in split_lines(run_dir / "metrics.jsonl")[0]:
        if row["step"] >= wandb.run.step:
            figures = {name: value for name, value in row.get("verl", {}).items() if value is not None}
            wandb.log(figures, step=row["step"])


def finish_mlflow(exit_code: int) -> None:
    """VeRL would end MLflow's run as finished."""
    import mlflow

    if mlflow.active_run() is not None:
        mlflow.end_run("FAILED" if exit_code else "FINISHED")


def _begin_mlflow_run(folder: Path, project: str, name: str) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException

    uri = os.environ["MLFLOW_TRACKING_URI"]
    if uri == local_store(folder):
        (folder / "mlflow").mkdir(mode=0o700, exist_ok=True)
    try:
        mlflow.set_tracking_uri(uri)
        if not os.environ.get("MLFLOW_RUN_ID"):
            os.environ["MLFLOW_RUN_ID"] = _mlflow_run_id(folder, uri, project, name)
        logged = mlflow.MlflowClient().get_run(os.environ["MLFLOW_RUN_ID"]).data.params
    except MlflowException as error:
        cause = without_passwords(" ".join(str(error).split())[:_MAX_CAUSE_CHARS])
        # Not from the error, which has the whole address.
        raise RuntimeError(
            f"MLflow cannot be used at {without_passwords(uri)} (MLFLOW_TRACKING_URI): {cause}"
        ) from None
    log_params = mlflow.log_params

    def log_new_params(params: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        # MLflow refuses another value of a parameter, such as the number of steps of a run that is made longer.
        new = {key: value for key, value in params.items() if key not in logged}
        return log_params(new, *arguments, **options)

    mlflow.log_params = log_new_params


def _mlflow_run_id(folder: Path, uri: str, project: str, name: str) -> str:
    import mlflow

    file, place = folder / _MLFLOW_RUN, without_passwords(uri)
    if file.exists():
        run_id, _, its_place = file.read_text().strip().partition(" ")
        if its_place == place:
            return run_id
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(project)
    if experiment is None:
        # Beside a local store, not in the working directory.
        artifacts = (folder / "mlflow" / "artifacts").as_uri() if uri == local_store(folder) else None
        experiment_id = client.create_experiment(project, artifact_location=artifacts)
    else:
        experiment_id = experiment.experiment_id
    run_id = str(client.create_run(experiment_id, run_name=name).info.run_id)
    write_text(file, f"{run_id} {place}\n")
    return run_id
