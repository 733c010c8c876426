"""The launcher's dealings with a real SLURM, in jobs that train nothing: submit, look, follow, stop, requeue."""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aworld_train import launch
from aworld_train import recipe as recipes
from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.launch.attach import attach
from aworld_train.launch.base import JobState, refuse_second_job
from aworld_train.launch.record import LaunchRecord, write_record
from aworld_train.launch.slurm import scheduler
from aworld_train.launch.slurm.launcher import SlurmLauncher, sbatch_options
from tests.code_blocks import code_blocks
from tests.locations import REPOSITORY
from tests.slurm_cluster import NODES, SlurmCluster, require_slurm, slurm_cluster

pytestmark = pytest.mark.timeout(240)
MAX_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    require_slurm()
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder,
        slurm_cluster(Path(folder)) as started,
    ):
        yield started


@pytest.fixture(autouse=True)
def _commands_find_the_cluster(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))


def submit(run_dir: Path, body: str, *options: str) -> LaunchRecord:
    """Submit a script as the launcher does, and leave its record."""
    folder = run_dir / "launch"
    folder.mkdir(parents=True)
    script = folder / "job.sbatch"
    lines = [
        f"#SBATCH {option}" for option in (f"--output={folder}/job-%j.log", "--open-mode=append", *options)
    ]
    script.write_text("\n".join(["#!/bin/bash", *lines, body, ""]))
    job = scheduler.submit(script)
    record = LaunchRecord("slurm", job, log=f"launch/job-{job}.log")
    write_record(run_dir, record)
    return record


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def state(run_dir: Path) -> JobState:
    return SlurmLauncher().status(run_dir).state


def test_the_log_of_a_job_is_followed_to_its_end_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    submit(tmp_path, "echo one; sleep 1; echo two; printf three; exit 3")
    assert list(launch.launcher_of(tmp_path).logs(tmp_path, follow=True)) == ["one", "two", "three"]
    status = SlurmLauncher().status(tmp_path)
    assert (status.state, status.exit_code) == (JobState.ended, 3)
    shown: list[str] = []
    with pytest.raises(TrainingFailure, match=r"ended as FAILED.* before its run began \(exit code 3\)"):
        attach(SlurmLauncher(), tmp_path, shown.append)
    assert shown == ["one", "two", "three"]


def test_a_job_has_the_users_variables_and_no_argument_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCH_TOKEN", "s3cret-value")
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    submit(tmp_path, 'echo "$LAUNCH_TOKEN $AWORLD_TRAIN_SUBMITTED"')
    assert list(SlurmLauncher().logs(tmp_path, follow=True)) == ["s3cret-value 1"]
    assert "s3cret" not in (tmp_path / "launch" / "job.sbatch").read_text()


def test_a_job_is_stopped_and_a_second_one_is_refused_before(tmp_path: Path) -> None:
    record = submit(tmp_path, "sleep 300")
    wait_until(lambda: state(tmp_path) is JobState.running)
    with pytest.raises(UsageError, match=f"has a job already: {record.job} .RUNNING"):
        refuse_second_job(SlurmLauncher(), tmp_path)
    SlurmLauncher().stop(tmp_path)
    status = SlurmLauncher().status(tmp_path)
    assert status.state is JobState.ended
    assert status.detail.startswith("CANCELLED")
    refuse_second_job(SlurmLauncher(), tmp_path)


def test_a_job_that_waits_says_for_what(tmp_path: Path) -> None:
    submit(tmp_path, "true", "--hold")
    status = SlurmLauncher().status(tmp_path)
    assert status.state is JobState.waiting
    assert status.detail == "PENDING (JobHeldUser)"
    SlurmLauncher().stop(tmp_path)


def test_a_job_that_asks_for_more_nodes_than_there_are_is_told_why_it_does_not_start(tmp_path: Path) -> None:
    submit(tmp_path, "true", "--nodes=3")
    line = next(SlurmLauncher().logs(tmp_path, follow=True))
    assert "is PENDING (Partition" in line and "it does not start as it is" in line
    SlurmLauncher().stop(tmp_path)


def test_a_requeued_job_starts_again_and_is_followed_through(tmp_path: Path) -> None:
    record = submit(
        tmp_path, "echo start ${SLURM_RESTART_COUNT:-0}; [[ $SLURM_RESTART_COUNT ]] || sleep 300", "--requeue"
    )
    lines = SlurmLauncher().logs(tmp_path, follow=True)
    assert next(lines) == "start 0"
    scheduler.requeue(record.job)
    assert "start 1" in list(lines)


def test_a_job_is_asked_to_save_and_stop_before_its_limit(tmp_path: Path) -> None:
    recipe = recipes.load({"cluster": {"launcher": "slurm", "slurm": {"save_before": 180}}})
    (signal,) = [option for option in sbatch_options(recipe, tmp_path) if option.startswith("--signal=")]
    # SLURM compares the time that is left at every half minute.
    submit(tmp_path, "trap 'echo asked; exit' USR1; sleep 120 & wait", signal, "--time=3")
    lines = SlurmLauncher().logs(tmp_path, follow=True)
    # SLURM's daemon may note a process that had ended before it was signalled.
    assert [line for line in lines if not line.startswith("slurmstepd")] == ["asked"]


def test_the_scheduler_s_refusal_is_one_sentence_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailure, match=r"SLURM refused sbatch: .*invalid partition"):
        submit(tmp_path, "true", "--partition=none")
    assert launch.read_record(tmp_path) is None


def test_a_job_that_slurm_does_not_know_any_more_is_unknown(tmp_path: Path) -> None:
    write_record(tmp_path, LaunchRecord("slurm", "999999"))
    assert state(tmp_path) is JobState.unknown


def test_a_program_runs_once_on_each_other_node_with_what_is_sent_to_it(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from aworld_train.launch.slurm.allocation import current_allocation, nodes_for_run\n"
        "nodes = nodes_for_run(current_allocation(), 2, Path('/shared'))\n"
        "print(*nodes.addresses, flush=True)\n"
        "subprocess.run([*nodes.command, 'bash', '-c', 'echo node $SLURMD_NODENAME got $(cat)'], input=b'word')\n"
    )
    interpreter = f"PYTHONPATH={REPOSITORY} {sys.executable}"
    submit(tmp_path, f"{interpreter} {program}", "--nodes=2", "--ntasks-per-node=1", "--exclusive")
    lines = list(SlurmLauncher().logs(tmp_path, follow=True))
    assert lines[0] == " ".join(NODES)
    assert [line for line in lines if line.endswith("node n2 got word")]
    assert not [line for line in lines if "node n1" in line]


def test_the_script_for_containers_makes_a_ray_cluster_of_its_nodes_and_ends_as_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    for name in ("ray", "aworld-train", "python"):
        (programs / name).write_text(
            f"#!/bin/bash\necho \"$SLURMD_NODENAME $PLACE {name} ${{*//$'\\n'/ }}\" >> {log}\n"
            f'case "{name} $*" in\n'
            "    *--block*) exec sleep 300 ;;\n"
            f"    python*) until grep -q -- --block {log}; do sleep 0.1; done ;;\n"
            "    aworld-train*) exit 3 ;;\n"
            "esac\n"
        )
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (script,) = [block.text for block in code_blocks() if block.title == "container.sbatch"]
    # A command that runs another, as apptainer does, in the place of pyxis' options.
    script = re.sub(r"(?m)^container=.*$", "container=(env PLACE=inside)", script)
    submit(tmp_path, script.replace("gpu:8", "gpu:2"))
    output = list(SlurmLauncher().logs(tmp_path, follow=True))
    assert SlurmLauncher().status(tmp_path).exit_code == 3, output
    first, second = (
        [line for line in log.read_text().splitlines() if line.startswith(name)] for name in NODES
    )
    assert [line.split(" ", 3)[1:3] for line in first] == [
        ["inside", name] for name in ("ray", "python", "aworld-train")
    ]
    assert first[0].endswith("ray start --head --port=6379")
    assert first[-1].endswith("aworld-train train recipe.yaml --launcher ray")
    assert second == [
        "n2 inside ray health-check --address=n1:6379",
        "n2 inside ray start --block --address=n1:6379",
    ]
