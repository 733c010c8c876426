"""VeRL's ``main_ppo`` with a controller that shows references to environment variables instead of their values.

    python -m aworld_train.adapter.verl.main --config-path FOLDER --config-name verl

This module replaces the class of the controller and starts VeRL; everything else is VeRL's.
"""

from verl.trainer import main_ppo

from aworld_train.adapter.verl.task_runner import TaskRunner


def main() -> None:
    """Run VeRL with the configuration that the command line names."""
    main_ppo.TaskRunnerV1 = TaskRunner
    main_ppo.main()


if __name__ == "__main__":
    main()
