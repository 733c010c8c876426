"""Where a run runs: on this machine, on a Ray cluster, under SLURM, or on Kubernetes.

The recipe's ``cluster.launcher``, or ``train --launcher``, names the launcher. Every launcher ends in the same training
run (``aworld_train.training``) with the same run folder. All but ``local`` submit a job that runs the command ``train``
again, where the job's processes are. ``launch.json`` in the run folder says which launcher started the run and which
job it is, so that the run can be found, followed and stopped later, by another process.
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
