"""MLflow, which is not installed where the tests run: what happens without its server, and at a second start."""

import json
import re
from pathlib import Path

import pytest

from tests.aworld_environment import mlflow_python, run_with

SECONDS = 120
ONE_START = """
import json, os, sys
from pathlib import Path
from aworld_train.adapter.verl.tracked_run import finish_mlflow, prepare_trackers
try:
    prepare_trackers(["mlflow"], Path(sys.argv[1]), project="p", run="r")
except RuntimeError as failure:
    sys.exit(str(failure))
import mlflow
mlflow.start_run(run_id=os.environ["MLFLOW_RUN_ID"])
mlflow.log_params(json.loads(sys.argv[2]))
mlflow.log_metrics({"reward": 0.5}, step=int(sys.argv[3]))
finish_mlflow(int(sys.argv[4]))
client = mlflow.MlflowClient()
runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
print(json.dumps([[run.info.run_name, run.info.status, run.data.params] for run in runs]))
"""


def start(run: Path, params: dict[str, str], step: int, exit_code: int) -> object:
    (run / "trackers").mkdir(parents=True, exist_ok=True)
    done = run_with(
        mlflow_python(),
        "-c",
        ONE_START,
        str(run),
        json.dumps(params),
        str(step),
        str(exit_code),
        timeout=SECONDS,
        MLFLOW_TRACKING_URI=f"sqlite:///{run}/trackers/mlflow/mlflow.db",
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
def test_a_second_start_is_the_same_run_also_with_other_parameters(tmp_path: Path) -> None:
    assert start(tmp_path, {"steps": "4", "lr": "1"}, 1, 1) == [["r", "FAILED", {"steps": "4", "lr": "1"}]]
    second = start(tmp_path, {"steps": "8", "lr": "1", "more": "x"}, 2, 0)
    assert second == [["r", "FINISHED", {"steps": "4", "lr": "1", "more": "x"}]]


@pytest.mark.timeout(600)
def test_a_server_that_does_not_answer_ends_the_start_with_its_address(tmp_path: Path) -> None:
    (tmp_path / "trackers").mkdir()
    with pytest.raises(AssertionError) as failed:
        run_with(
            mlflow_python(),
            "-c",
            ONE_START,
            str(tmp_path),
            "{}",
            "1",
            "0",
            timeout=SECONDS,
            MLFLOW_TRACKING_URI="http://user:hidden@127.0.0.1:9",
            MLFLOW_HTTP_REQUEST_MAX_RETRIES="2",
            MLFLOW_HTTP_REQUEST_TIMEOUT="15",
        )
    message = str(failed.value)
    assert re.search(r"MLflow cannot be used at http://\S*127\.0\.0\.1:9 \(MLFLOW_TRACKING_URI\): ", message)
    assert "hidden" not in message
    assert "Traceback" not in message
