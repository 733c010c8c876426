"""``aworld-train runs attach``, ``logs``, ``stop`` and ``clean``: runs that another process works on."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from aworld_train.adapter.base import SAMPLERS_REQUEST
from aworld_train.cli.runs import app
from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.training.run_files import holder_of, is_in_use
from tests.run_folders import make_run

PROGRAM = """
import json, signal, sys, time
from pathlib import Path
from aworld_train.training import run_files
folder = Path(sys.argv[1])
lock = run_files.lock_folder(folder)
log = (folder / "logs" / "verl.log").open("a")

def end(*_):
    log.write("interrupted\\n"); log.flush()
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"status": "interrupted", "error": {"kind": "interrupted", "message": "Interrupted."}}
    (folder / "summary.json").write_text(json.dumps(summary))
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
log.write("step 1\\n"); log.flush()
print("working", flush=True)
time.sleep(float(sys.argv[2]))
log.write("step 2\\n"); log.flush()
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "state"))
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@contextmanager
def working(folder: Path, seconds: float) -> Iterator["subprocess.Popen[str]"]:
    (folder / "logs").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(folder), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "working\n"
        try:
            yield process
        finally:
            process.kill()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_run_is_followed_to_its_end(runs: Path) -> None:
    folder = make_run(runs, "one")
    with working(folder, 2):
        assert is_in_use(folder)
        attached = run("attach", "one", "--json")
    assert attached.exit_code == 0, attached.output
    assert json.loads(attached.stdout)["status"] == "completed"
    assert "step 1\nstep 2\n" in attached.stderr


def test_a_run_is_stopped_and_can_be_stopped_once(runs: Path) -> None:
    folder = make_run(runs, "one")
    with working(folder, 60) as process:
        holder = holder_of(folder)
        assert holder is not None and holder.process.pid == process.pid
        stopped = run("stop", "one")
        assert stopped.exit_code == 0, stopped.output
        assert process.wait(10) == 143
    assert not is_in_use(folder)
    assert isinstance(run("stop", "one").exception, UsageError)
    followed = run("attach", "one").exception
    assert isinstance(followed, TrainingFailure) and "Interrupted." in followed.message


def test_a_process_with_the_same_pid_later_is_not_touched(runs: Path) -> None:
    folder = make_run(runs, "one")
    with working(folder, 60) as process:
        holder = holder_of(folder)
        assert holder is not None
        other = {"process": f"{holder.process}0", "host": "elsewhere", "since": holder.since}
        (folder / "run.lock").write_text(json.dumps(other))
        refused = run("stop", "one").exception
        assert isinstance(refused, UsageError) and "elsewhere" in refused.message
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)


def test_another_number_of_samplers_is_asked_for_where_a_run_has_samplers(runs: Path) -> None:
    synchronous, over, folder = (make_run(runs, name) for name in ("synchronous", "over", "one"))
    for run_folder in (over, folder):
        recipe = run_folder / "recipe.yaml"
        recipe.write_text(
            yaml.safe_dump({**yaml.safe_load(recipe.read_text()), "trainer": {"mode": "separate_async"}})
        )
    with working(folder, 60):
        assert json.loads(run("samplers", "one", "3", "--json").stdout) == {"run": str(folder), "samplers": 3}
        assert (folder / SAMPLERS_REQUEST).read_text() == "3\n"
        refused = [
            ("one", "0", "1 to 16"),
            ("over", "2", "not running"),
            (synchronous.name, "2", "mode: sync,"),
        ]
        for name, number, reason in refused:
            error = run("samplers", name, number).exception
            assert isinstance(error, UsageError) and reason in error.message


def test_a_log_is_printed_whole_or_its_end(runs: Path) -> None:
    folder = make_run(runs, "one")
    missing = run("logs", "one").exception
    assert isinstance(missing, UsageError) and "no log yet" in missing.message
    (folder / "logs").mkdir()
    (folder / "logs" / "verl.log").write_text("one\n[two]\nthree\n")
    assert run("logs", "one").stdout == "one\n[two]\nthree\n"
    assert run("logs", "one", "-n", "2").stdout == "[two]\nthree\n"
    assert run("logs", "one", "--follow").stdout == "one\n[two]\nthree\n"
    assert isinstance(run("logs", "one", "-f", "-n", "2").exception, UsageError)
