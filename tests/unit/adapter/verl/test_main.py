"""VeRL's program as a run starts it: with which controller, on which nodes, with which variables for its workers."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from verl.trainer import main_ppo

from aworld_train import waits
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl import fork_server
from aworld_train.adapter.verl import main as program
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE, STAND_IN
from aworld_train.adapter.verl.forwarding import FORWARDED_VARIABLE
from aworld_train.adapter.verl.ray_nodes import JOB_ON_NODES, NODES_VARIABLE
from aworld_train.adapter.verl.task_runner import TaskRunner
from aworld_train.adapter.verl.worker_setup import RENDEZVOUS_VARIABLE


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program did, in an environment without the variables of a run; its changes end with the test."""
    made: list[Any] = []
    for name in (ADDRESS_VARIABLE, NODES_VARIABLE, FORWARDED_VARIABLE, RENDEZVOUS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(program, "start_ray", lambda nodes: made.append(nodes))
    monkeypatch.setattr(program, "variables_for_workers", lambda: {"SEALED": "s"})
    monkeypatch.setattr(sys, "executable", sys.executable)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "run")
    monkeypatch.setattr(program.waits, "report", lambda *arguments: None)  # starts a thread that does not end
    monkeypatch.setattr(main_ppo.ray, "init", lambda **options: made.append(list(waits._open.values())))
    monkeypatch.setattr(main_ppo, "TaskRunnerV1", None)
    monkeypatch.setattr(
        main_ppo, "get_ppo_ray_runtime_env", lambda config: {"env_vars": {"OWN": config}, "working_dir": "w"}
    )
    monkeypatch.setattr(main_ppo, "main", lambda: made.append("VeRL"))
    return made


def test_on_one_node_verl_runs_with_this_package_s_controller(calls: list[Any]) -> None:
    program.run()
    assert calls == ["VeRL"]
    assert main_ppo.TaskRunnerV1 is TaskRunner
    assert main_ppo.get_ppo_ray_runtime_env("c") == {"env_vars": {"OWN": "c"}, "working_dir": "w"}


def test_the_start_of_ray_is_reported_and_then_that_of_the_controller(calls: list[Any]) -> None:
    program.run()
    main_ppo.ray.init()
    assert [wait[:2] for wait in calls[-1]] == [("phase", "starting Ray")]
    assert [wait[:2] for wait in waits._open.values()] == [("phase", "starting the controller")]
    waits.begin_part()


def test_on_several_nodes_ray_is_started_first_and_the_controller_is_beside_its_head(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODES_VARIABLE, "/nodes.json")
    program.run()
    assert calls == [Path("/nodes.json"), "VeRL"]
    assert main_ppo.TaskRunnerV1._default_options["resources"]


@pytest.mark.parametrize("fails", [False, True])
def test_on_a_cluster_that_is_there_workers_get_the_variables_and_the_rendezvous_is_removed(
    fails: bool, calls: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rendezvous = tmp_path / "rendezvous"
    rendezvous.mkdir()

    def train() -> None:
        assert rendezvous.is_dir()
        calls.append(main_ppo.get_ppo_ray_runtime_env("c"))
        if fails:
            raise RuntimeError("out of memory")
        rendezvous.rmdir()  # a folder that is gone is not an error

    monkeypatch.setattr(main_ppo, "main", train)
    monkeypatch.setenv(FORWARDED_VARIABLE, "SEALED")
    monkeypatch.setenv(RENDEZVOUS_VARIABLE, str(rendezvous))
    if fails:
        with pytest.raises(RuntimeError, match="out of memory"):
            program.run()
    else:
        program.run()
    assert calls == [{"env_vars": {"OWN": "c", "SEALED": "s"}, "working_dir": "w"}]
    assert not rendezvous.exists()


@pytest.mark.parametrize("may_run", [True, False])
def test_ray_starts_python_by_a_program_that_asks_for_forks_where_programs_may_run(
    may_run: bool, calls: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, str(tmp_path / "socket"))
    before, stand_in = sys.executable, tmp_path / "python"
    if not may_run:
        monkeypatch.setattr(os, "access", lambda file, mode: (file, mode) != (stand_in, os.X_OK))
    program.run_with_forks()
    assert calls == ["VeRL"]
    assert sys.executable == (str(stand_in) if may_run else before)
    assert stand_in.stat().st_mode & 0o777 == 0o700
    assert stand_in.read_text() == f'#!/bin/sh\nexec {shlex.join(STAND_IN)} "$@"\n'


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ((), ["VeRL"]),
        ((ADDRESS_VARIABLE,), [(program.run_with_forks, 1)]),
        ((ADDRESS_VARIABLE, NODES_VARIABLE), [(program.run, JOB_ON_NODES)]),
    ],
)
def test_verl_runs_in_a_fork_where_there_is_a_fork_server(
    variables: Sequence[str], expected: list[Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "name_vllm_cpu", lambda: calls.append("name"))
    monkeypatch.setattr(program, "import_faster", lambda: calls.append("import"))
    monkeypatch.setattr(fork_server, "run", lambda *arguments: calls.append(arguments))
    for name in variables:
        monkeypatch.setenv(name, "/private/file")
    program.main()
    assert calls == ["name", "import", *expected]
