"""Where a run runs, as ``cluster.launcher`` says: on this machine, on a Ray cluster, under SLURM, or on Kubernetes.

Every launcher ends in the same training run (``aworld_train.training``). All but ``local`` submit a job that runs the
command ``train`` again; ``launch.json`` in the run folder says which, so that another process finds and stops it.
"""

from aworld_train.launch.base import JobState, JobStatus, Launcher, LaunchOptions, find, launcher_of
from aworld_train.launch.record import LaunchRecord, read_record, write_record

__all__ = [
    "JobState",
    "JobStatus",
    "LaunchOptions",
    "LaunchRecord",
    "Launcher",
    "find",
    "launcher_of",
    "read_record",
    "write_record",
]
