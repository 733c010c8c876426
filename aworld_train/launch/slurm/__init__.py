"""The launcher ``slurm``: submits a job, and inside an allocation runs the recipe over its nodes."""

from aworld_train.launch.slurm.launcher import SlurmLauncher as SlurmLauncher
