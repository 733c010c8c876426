"""The launcher ``kubernetes``: a run as a KubeRay RayJob, with its tool environment beside it."""

from aworld_train.launch.kubernetes.launcher import KubernetesLauncher as KubernetesLauncher
