"""VeRL's ``main_ppo`` with a controller that shows references to environment variables instead of their values.

    python -m aworld_train.adapter.verl.main --config-path FOLDER --config-name verl

This module starts Ray on the nodes of the run, if there are several, replaces the class of the controller and starts
VeRL; everything else is VeRL's.
"""

import os
from pathlib import Path

from aworld_train.adapter.verl.ray_nodes import NODES_VARIABLE, start_ray


def main() -> None:
    """Run VeRL with the configuration that the command line names."""
    several = NODES_VARIABLE in os.environ
    if several:
        start_ray(Path(os.environ[NODES_VARIABLE]))
    # Importing VeRL takes long, and reads the variables that say which Ray there is.
    from verl.trainer import main_ppo

    from aworld_train.adapter.verl.task_runner import TaskRunner, on_first_node

    main_ppo.TaskRunnerV1 = on_first_node(TaskRunner) if several else TaskRunner
    main_ppo.main()


if __name__ == "__main__":
    main()
