"""VeRL's ``main_ppo``, whose controller shows the configuration with references and not with what they stand for.

    python -m aworld_train.adapter.verl.main --config-path FOLDER --config-name verl

Everything else is VeRL's own: it is given another class for its controller, and started.
"""

from verl.trainer import main_ppo

from aworld_train.adapter.verl.task_runner import TaskRunner


def main() -> None:
    """Run VeRL with the configuration that the command line names."""
    main_ppo.TaskRunnerV1 = TaskRunner
    main_ppo.main()


if __name__ == "__main__":
    main()
