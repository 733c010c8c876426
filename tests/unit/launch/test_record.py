"""The record by which the job of a run is found again, and what a job's end says about the run."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train import launch
from aworld_train.adapter.episodes.files import write_files
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import EnvironmentFailure, TrainingFailure, UsageError
from aworld_train.launch.attach import attach
from aworld_train.launch.base import DryRun, JobState, JobStatus, LaunchOptions
from aworld_train.launch.job import RECIPE, job_command, job_recipe
from aworld_train.launch.record import LaunchRecord, write_record
from aworld_train.recipe import changes, read
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.run_folder import check_run_folder, open_run_folder
from aworld_train.training.summary import RunSummary

ENDED = JobStatus(JobState.ended, "COMPLETED", 0)
KILLED = JobStatus(JobState.ended, "CANCELLED", 0)


class Scheduler:
    """A launcher whose job has ended."""

    name = "local"

    def __init__(self, status: JobStatus):
        self.end = status

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None: ...

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun: ...

    def status(self, run_dir: Path) -> JobStatus:
        return self.end

    def stop(self, run_dir: Path) -> None: ...

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        yield from ("one", "two")


def submitted(run_dir: Path) -> LaunchRecord:
    record = LaunchRecord("slurm", "12", "cluster", "launch/job-12.log")
    write_record(run_dir, record)
    return record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert launch.read_record(tmp_path) is None
    assert launch.launcher_of(tmp_path).name == "local"
    assert launch.read_record(tmp_path) is None
    record = submitted(tmp_path / "runs" / "a")
    assert launch.read_record(tmp_path / "runs" / "a") == record


@pytest.mark.parametrize("content", ["", "[]", '{"launcher": "slurm"}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "launch.json").write_text(content)
    with pytest.raises(UsageError, match=r"launch\.json"):
        launch.read_record(tmp_path)


def test_a_run_on_this_machine_cannot_be_detached() -> None:
    with pytest.raises(UsageError, match="--detach"):
        launch.find("local").launch(FrameworkProcessor("runs"), LaunchOptions(detach=True))


def test_an_unknown_launcher_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="local, slurm"):
        launch.find("slrum")


def test_a_folder_with_a_submitted_job_alone_holds_no_run(tmp_path: Path) -> None:
    submitted(tmp_path)
    write_files(tmp_path, job_recipe(read({"name": "a"})))
    for resume in (False, True):
        check_run_folder(tmp_path, resume=resume)


def test_the_recipe_of_a_job_is_the_whole_recipe_without_values_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCH_TOKEN", "s3cret-value")
    loaded = read(
        {"name": "a", "env": {"url": "http://h/mcp", "token": "${oc.env:LAUNCH_TOKEN}"}}, ["trainer.steps=3"]
    )
    write_files(tmp_path, job_recipe(loaded))
    file = tmp_path / RECIPE
    assert "s3cret" not in file.read_text()
    assert not changes(read(file).unresolved, loaded.unresolved)
    command = job_command(file, tmp_path.parent, "slurm", resume=True)
    assert command[-5:] == ["--runs", str(tmp_path.parent), "--launcher", "slurm", "--resume"]


def test_a_completed_job_gives_its_summary_and_shows_its_log(tmp_path: Path) -> None:
    submitted(tmp_path)
    RunSummary("a", status="completed", steps_done=2).write(tmp_path)
    shown: list[str] = []
    assert attach(Scheduler(ENDED), tmp_path, shown.append).steps_done == 2
    assert shown == ["one", "two"]


def test_a_failed_job_raises_the_error_of_its_run(tmp_path: Path) -> None:
    submitted(tmp_path)
    summary = RunSummary("a", status="failed", error={"kind": "environment", "message": "It is gone."})
    summary.write(tmp_path)
    with pytest.raises(EnvironmentFailure, match="It is gone"):
        attach(Scheduler(ENDED), tmp_path, lambda _: None)


def test_a_killed_job_is_no_success(tmp_path: Path) -> None:
    submitted(tmp_path)
    RunSummary("a", steps_done=1, steps_planned=4).write(tmp_path)
    with pytest.raises(TrainingFailure, match="CANCELLED after step 1 of 4"):
        attach(Scheduler(KILLED), tmp_path, lambda _: None)


def test_the_summary_of_an_earlier_launch_says_nothing_about_a_job(tmp_path: Path) -> None:
    RunSummary("a", status="completed").write(tmp_path)
    submitted(tmp_path)
    os.utime(tmp_path / "summary.json", (1, 1))
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "completed"
    with pytest.raises(TrainingFailure, match="before its run began"):
        attach(Scheduler(KILLED), tmp_path, lambda _: None)


def test_a_run_goes_on_in_another_place_but_not_on_another_number_of_machines(tmp_path: Path) -> None:
    def unresolved(*overrides: str) -> dict[str, object]:
        return read({"name": "a"}, list(overrides)).unresolved

    first = unresolved("cluster.launcher=slurm", "cluster.nodes=2", "cluster.slurm.time=60")
    open_run_folder(tmp_path / "a", VerlFramework(), first, [], resume=False).close()
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1}\n')
    elsewhere = unresolved("cluster.launcher=ray", "cluster.nodes=2", "cluster.slurm.partition=long")
    open_run_folder(tmp_path / "a", VerlFramework(), elsewhere, [], resume=True).close()
    with pytest.raises(UsageError, match=r"Changed: cluster\.nodes\."):
        open_run_folder(tmp_path / "a", VerlFramework(), unresolved(), [], resume=True)
