"""Where a run runs, as ``cluster.launcher`` says: on this machine, on a Ray cluster, under SLURM, or on Kubernetes.

Every launcher ends in the same training run (``aworld_train.training``). All but ``local`` submit a job that runs the
command ``train`` again; ``launch.json`` in the run folder says which, so that another process finds and stops it.
"""

from aworld_train.launch.base import JobState as JobState
from aworld_train.launch.base import LaunchOptions as LaunchOptions
from aworld_train.launch.base import find as find
from aworld_train.launch.base import launcher_of as launcher_of
from aworld_train.launch.record import read_record as read_record
