"""Machines as they are: on each, doctor and train say the same, and a run begins or is refused before its framework."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import warm

RECIPE = """\
name: t
extends: base/cpu.yaml
model: {path: model}
env: {docker_dir: calculator-mcp-server, backend: process}
dataset: {train: data/train.parquet, val: data/val.parquet}
trainer: {steps: 1}
"""
WITHOUT_USER = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
# A loopback interface alone, a name that no resolver knows, and Docker's default of shared memory.
ALONE = 'ip link set lo up; hostname nowhere; mount -t tmpfs -o size=64m none /dev/shm; exec "$@"'
IN_NAMESPACE = ("unshare", "--net", "--uts", "--mount", "sh", "-c", ALONE, "sh")
NO_STATE = "AWORLD_TRAIN_STATE"


@dataclass(frozen=True)
class Machine:
    """A machine, and why it is refused.

    Attributes:
        variables: Environment variables; None: not set.
        inside: The program that runs the command there.
        folder: The name of the working folder; empty: any.
        refused: Part of what doctor and train print; empty where a run can start.
        noted: Part of what doctor prints.
        is_slow: Whether its programs start without the warm interpreters; other tests hold the code by itself.
    """

    variables: dict[str, str | None] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    folder: str = ""
    refused: str = ""
    noted: str = ""
    is_slow: bool = False


MACHINES = {
    "a home that cannot be written": Machine({"HOME": "/proc", NO_STATE: None}, refused=NO_STATE),
    "a user without an entry": Machine(
        {"HOME": None, NO_STATE: None}, WITHOUT_USER, refused=NO_STATE, is_slow=True
    ),
    "a variable of another launcher": Machine({"NNODES": "4"}, refused="NNODES=4 in this shell"),
    "variables of torchrun and of a job that has ended": Machine(
        {
            **{
                "RANK": "3",
                "WORLD_SIZE": "8",
                "LOCAL_RANK": "3",
                "MASTER_ADDR": "n9",
                "MASTER_PORT": "29500",
            },
            **{"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"},
        }
    ),
    "variables of Jupyter": Machine(
        {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}, is_slow=True
    ),
    "a locale without UTF-8": Machine({"LC_ALL": "C", "PYTHONUTF8": "0"}, folder="Übung", is_slow=True),
    "a SOCKS proxy": Machine({"ALL_PROXY": "socks5://me:secret@127.0.0.1:9"}, noted="names a SOCKS proxy"),
    "a container without a network": Machine(
        {}, IN_NAMESPACE, noted="67 MB of 67 MB are free in", is_slow=True
    ),
    "other characters": Machine(folder='a=b,c {x} #%; it\'s "q" [x] Übung-模型'),
    "a reference": Machine(folder="${x}", refused="has '${' in its path"),
    "a long name": Machine(folder="x" * 200),
}


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A folder with a model and data, where any user may read."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    for arguments in (
        ("dataset", "build", "arithmetic", "--out", "data", "--limit", "200"),
        ("model", "tiny", "--out", "model"),
    ):
        built = warm.run("-m", "aworld_train", *arguments, cwd=folder, timeout=300)
        assert built.returncode == 0, built.stderr
    (folder / "recipe.yaml").write_text(RECIPE)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


def environment_of(machine: Machine, folder: Path) -> dict[str, str]:
    given = {**os.environ, NO_STATE: str(folder.parent / "state"), **machine.variables}
    return {name: value for name, value in given.items() if value is not None}


def made_folder(name: str, made: Path) -> Path:
    """A working folder on a machine; skips the test where there can be no such machine."""
    machine = MACHINES[name]
    if machine.inside and subprocess.run([*machine.inside, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make such a machine")
    folder = made / (machine.folder or name)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    for shared in ("model", "data", "recipe.yaml"):
        if not (folder / shared).exists():
            (folder / shared).symlink_to(made / shared)
    return folder


def run(machine: Machine, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = environment_of(machine, folder)
    command = ["-m", "aworld_train", *arguments]
    if not machine.inside:
        return warm.run(*command, cwd=folder, env=environment, timeout=300)
    return subprocess.run(
        [*machine.inside, sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if machine.is_slow else ())
        for name, machine in MACHINES.items()
    ],
)
def test_doctor_and_train_say_the_same_of_a_machine(name: str, made: Path) -> None:
    machine, folder = MACHINES[name], made_folder(name, made)
    examined = run(machine, folder, "doctor", "recipe.yaml")
    started = run(machine, folder, "train", "recipe.yaml", *(() if machine.refused else ("--dry-run",)))
    printed = examined.stdout + examined.stderr
    assert machine.noted in printed
    assert machine.refused in printed
    assert machine.refused in started.stderr
    assert (bool(examined.returncode), bool(started.returncode)) == (bool(machine.refused),) * 2, (
        printed + started.stderr
    )
    assert "secret" not in printed + started.stdout + started.stderr
    if not machine.refused:
        assert f"{folder}/runs/t" in shlex.split(started.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if not machine.refused])
def test_a_run_comes_to_its_first_step_on_a_machine(name: str, made: Path) -> None:
    machine, folder, printed = MACHINES[name], made_folder(name, made), ""
    command = [*machine.inside, sys.executable, "-m", "aworld_train", "train", "recipe.yaml"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment_of(machine, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stdout or ():
            printed += line
            if "step 0/1" in line:
                process.send_signal(signal.SIGINT)
    assert "step 0/1" in printed, printed
