"""A workspace with real data and a real small model, made once for all end-to-end tests through the command line.

Where several processes run the tests, the first that asks makes it, and the others wait and find it.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import warm
from tests.parallel import SHARED_FOLDER

REPOSITORY = Path(__file__).parents[2]
CLI = [sys.executable, "-m", "aworld_train"]
STARTED_BY = "AWORLD_TRAIN_TESTS_PROCESS"
"""The environment variable by which processes of a run are known to the tests that started it."""
SMALL = [
    "trainer.steps=4",
    "trainer.batch_size=4",
    "trainer.microbatch_size=16",
    "trainer.save_every=1",
    "trainer.val_every=4",
    "rollout.n=4",
    "dataset.val_limit=16",
]
"""Overrides that make a run short: what is tested is how it goes, not what is learned."""
QUICKSTART_STEPS, QUICKSTART_VAL_TASKS = 3, 128


@dataclass
class Workspace:
    """Where the tests run: data/arithmetic, models/tiny, and the runs they make.

    Attributes:
        path: Its folder.
        starts: How often this process has started VeRL.
    """

    path: Path
    starts: int = 0

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``make`` gave to the first who asked for ``name``."""
        kept = self.path / f"{name}.json"
        with (self.path / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(make()))
        made: dict[str, Any] = json.loads(kept.read_text())
        return made

    @property
    def model_report(self) -> dict[str, Any]:
        """What was said when the model was put there."""
        return self.once("model", self._make_data_and_model)

    def _make_data_and_model(self) -> dict[str, Any]:
        data = self.run("dataset", "build", "arithmetic", "--out", "data/arithmetic")
        assert data.returncode == 0, data.stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HF_HUB_OFFLINE", "1")
            done = self.run("model", "tiny", "--json", "--out", "models/tiny")
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def quickstart(self) -> dict[str, Any]:
        """The summary of a run of the quickstart, shorter than it is."""

        def train() -> dict[str, Any]:
            shorter = [f"trainer.{key}={QUICKSTART_STEPS}" for key in ("steps", "val_every", "save_every")]
            shorter.append(f"dataset.val_limit={QUICKSTART_VAL_TASKS}")
            done = self.run("train", "recipes/quickstart.yaml", "--json", *shorter, seconds=1200)
            assert done.returncode == 0, done.stderr
            summary: dict[str, Any] = json.loads(done.stdout)
            return summary

        return self.once("quickstart", train)

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    def start(
        self, *arguments: str, python: Path | None = None, also: Path | None = None
    ) -> "subprocess.Popen[str] | warm.Started":
        """Start ``aworld-train`` in the background, in a session of its own, in a fork of a warm interpreter.

        Args:
            arguments: Of the command.
            python: The interpreter that is started instead.
            also: A folder from which its processes import too.
        """
        environment = self._environment(arguments, python, also)
        if python is None:
            return warm.Started(*CLI[1:], *arguments, cwd=self.path, env=environment)
        return subprocess.Popen(
            [str(python), *CLI[1:], *arguments],
            cwd=self.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *arguments: str, seconds: float = 800, python: Path | None = None, also: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``aworld-train`` to its end; ``python`` and ``also`` as in ``start``."""
        if python is None:
            command = (*CLI[1:], *arguments)
            kind = warm.VERL if arguments[0] in ("eval", "rollout") else warm.PROGRAMS
            environment = self._environment(arguments, python, also)
            return warm.run(*command, cwd=self.path, env=environment, timeout=seconds, kind=kind)
        process = self.start(*arguments, python=python, also=also)
        assert isinstance(process, subprocess.Popen)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _environment(
        self, arguments: Sequence[str], python: Path | None, also: Path | None
    ) -> dict[str, str]:
        self.starts += arguments[0] == "train"
        path = os.pathsep.join(map(str, filter(None, (REPOSITORY, also))))
        return {
            **os.environ,
            **({"PYTHONPATH": path} if python or also else {}),
            "AWORLD_TRAIN_STATE": str(self.path / "state"),
            STARTED_BY: str(os.getpid()),
        }

    def summary(self, name: str) -> dict[str, Any]:
        return json.loads((self.runs / name / "summary.json").read_text())

    def metrics(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.runs / name / "metrics.jsonl").read_text().splitlines()]

    def episodes(self, name: str) -> list[dict[str, Any]]:
        file = self.runs / name / "traces" / "episodes.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    shared = os.environ.get(SHARED_FOLDER)
    space = Workspace((Path(shared) if shared else tmp_path_factory.getbasetemp()) / "e2e")
    space.path.mkdir(exist_ok=True)
    assert space.model_report
    return space


def wait_for(
    what: str,
    condition: Callable[[], Any],
    seconds: float,
    process: "subprocess.Popen[str] | warm.Started",
) -> Any:
    """Poll until ``condition`` gives something; a process that ends first is an error that shows its output.

    At most a fifth of a processor is spent on it: some conditions look at every process of the machine.
    """
    deadline = time.monotonic() + seconds
    while (began := time.monotonic()) < deadline:
        if found := condition():
            return found
        check_seconds = time.monotonic() - began
        if process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"the run ended with {process.returncode} before {what}\n{out}\n{err}")
        time.sleep(max(0.1, 4 * check_seconds))
    raise AssertionError(f"no {what} within {seconds} seconds")


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def environments_of(run: list[psutil.Process]) -> list[psutil.Process]:
    """The processes of the tool environments that a run has started, which have no variables of its own."""
    owners = {f"--owner={process.pid} " for process in run}
    supervisors = [
        process
        for process in psutil.process_iter()
        if any(owner in " ".join(command_line(process)) for owner in owners)
        and "--detach" in command_line(process)
    ]
    return [member for one in supervisors for member in (one, *one.children(recursive=True))]


def find(processes: list[psutil.Process], *words: str) -> psutil.Process | None:
    """The innermost process whose command line has all the words."""
    found = None
    for process in processes:
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if all(word in line for word in words) and "process_supervisor.py" not in line:
            found = process
    return found


def assert_all_gone(processes: list[psutil.Process], seconds: float = 30) -> None:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not alive, [p.cmdline() for p in alive]


@pytest.fixture(autouse=True)
def _nothing_is_left_running(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may leave a process of a run behind, whatever happened in it; its report says how often VeRL started."""
    before = workspace.starts
    yield
    request.node.user_properties.append(("starts", workspace.starts - before))
    left = [p for p in psutil.process_iter(["name"]) if p.info["name"] in ("raylet", "gcs_server")]
    mine = [p for p in left if _is_ours(p)]
    for process in mine:
        process.kill()
    assert not mine, f"left running: {mine}"


def _is_ours(process: psutil.Process) -> bool:
    try:
        return process.environ().get(STARTED_BY) == str(os.getpid())
    except psutil.Error:
        return False
