"""The RayJob of a run (KubeRay, ``ray.io/v1``): a head without GPUs, and one worker pod for each machine of the recipe.

Fields are those of KubeRay 1.5 and later, which gives the cluster a token:
https://github.com/ray-project/kuberay/blob/master/docs/reference/api.md
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE
from aworld_train.launch.cluster_job import FILE, ClusterJob
from aworld_train.launch.cluster_nodes import CPUS_BESIDE, Demand
from aworld_train.launch.kubernetes.naming import RunNames
from aworld_train.recipe.schema import KubernetesSection

JOB_FOLDER = "/etc/aworld-train"
"""Where the head mounts the ConfigMap of the job."""
RECIPE_FILE = "recipe.yaml"
_HEAD_CPUS = CPUS_BESIDE + 1
_HEAD_MEMORY = "16Gi"
_KEPT_SECONDS = 600  # the cluster, and so its pods' logs, after the job has ended
_USER = 1000  # that of docker/trainer/Dockerfile, and of Ray's own images
_CLAIM, _SHM, _JOB = "runs", "shm", "job"


def ray_job(
    names: RunNames,
    section: KubernetesSection,
    demand: Demand,
    job: ClusterJob,
    *,
    on_gpus: bool,
    variables: Iterable[str],
    tools_url: str | None,
) -> dict[str, Any]:
    """The RayJob.

    Args:
        names: The names of the run.
        section: ``cluster.kubernetes`` of the recipe.
        demand: Machines and GPUs.
        job: What the head runs.
        on_gpus: Whether the GPUs are real.
        variables: Names of the variables in the Secret of the trainer.
        tools_url: MCP endpoint of the tool environment, if the run has its own.
    """
    command = job.command(Path(JOB_FOLDER, FILE))
    gpus = demand.gpus_per_node
    limits: dict[str, Any] = {"cpu": section.cpus, "memory": section.memory}
    if on_gpus:
        limits[section.gpu_resource] = gpus
    head = _container(
        "ray-head",
        section,
        {"cpu": _HEAD_CPUS, "memory": _HEAD_MEMORY},
        {"name": _JOB, "mountPath": JOB_FOLDER},
    ) | {
        "env": [
            {"name": JOB_VARIABLES_VARIABLE, "value": ",".join(sorted(variables))},
            *([{"name": "MCP_SERVER_URL", "value": tools_url}] if tools_url else []),
        ],
        "envFrom": [{"secretRef": {"name": names.variables}}],
    }
    job_volume = {"name": _JOB, "configMap": {"name": names.job_config}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": names.metadata(names.run, "job"),
        "spec": {
            "entrypoint": shlex.join(command),
            "submissionMode": "K8sJobMode",
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "backoffLimit": 0,
            "rayClusterSpec": {
                "rayVersion": section.ray_version,
                "authOptions": {"mode": "token"},
                "headGroupSpec": {
                    "rayStartParams": {"num-gpus": "0", "dashboard-host": "0.0.0.0"},
                    "template": _pod(names, "head", head, section, {}, job_volume),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "trainers",
                        "replicas": demand.nodes,
                        "minReplicas": demand.nodes,
                        "maxReplicas": demand.nodes,
                        "rayStartParams": {"num-gpus": str(gpus)},
                        "template": _pod(
                            names,
                            "trainer",
                            _container("ray-worker", section, limits),
                            section,
                            {
                                "nodeSelector": dict(section.node_selector),
                                "tolerations": list(section.tolerations),
                            },
                        ),
                    }
                ],
            },
        },
    }


def image_pull(section: KubernetesSection) -> dict[str, Any]:
    """What a pod says about how its images are pulled."""
    secrets = [{"name": name} for name in section.pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}


def job_config(names: RunNames, job: ClusterJob, recipe: str) -> dict[str, Any]:
    """The ConfigMap with the description of the job and its recipe, neither of which holds a secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(names.job_config, "job"),
        "data": {FILE: job.to_json(), RECIPE_FILE: recipe},
    }


def _container(
    name: str, section: KubernetesSection, limits: Mapping[str, Any], *mounts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": section.image,
        # A request as large as the limit: what is promised is there.
        "resources": {"requests": dict(limits), "limits": dict(limits)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": _CLAIM, "mountPath": section.folder},
            {"name": _SHM, "mountPath": "/dev/shm"},
            *({**mount, "readOnly": True} for mount in mounts),
        ],
    }


def _pod(
    names: RunNames,
    role: str,
    container: dict[str, Any],
    section: KubernetesSection,
    placement: Mapping[str, Any],
    *volumes: dict[str, Any],
) -> dict[str, Any]:
    return {
        "metadata": {"labels": names.labels(role)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # A claim's folder often belongs to root, and the image's user has to write there.
            "securityContext": {"fsGroup": _USER, "fsGroupChangePolicy": "OnRootMismatch"},
            **{key: value for key, value in placement.items() if value},
            **image_pull(section),
            "containers": [container],
            "volumes": [
                {"name": _CLAIM, "persistentVolumeClaim": {"claimName": section.claim}},
                {"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": section.shared_memory}},
                *volumes,
            ],
        },
    }
