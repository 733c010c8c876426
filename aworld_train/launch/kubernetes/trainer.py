"""The RayJob of a run (KubeRay), from ``trainer.yaml``, with the description of the job and its recipe for the head."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE
from aworld_train.launch.cluster_job import FILE, ClusterJob
from aworld_train.launch.cluster_nodes import CPUS_BESIDE, Demand
from aworld_train.launch.kubernetes.naming import RunNames
from aworld_train.launch.kubernetes.templates import image_pull, render
from aworld_train.recipe.schema import KubernetesSection

JOB_FOLDER = "/etc/aworld-train"
"""Where the head mounts the ConfigMap of the job."""
RECIPE_FILE = "recipe.yaml"


def trainer_manifests(
    names: RunNames,
    section: KubernetesSection,
    demand: Demand,
    job: ClusterJob,
    *,
    recipe: str,
    on_gpus: bool,
    variables: Iterable[str],
    tools_url: str | None,
) -> list[dict[str, Any]]:
    """ConfigMap and RayJob, neither of which holds a secret; ``variables`` are names in the trainer's Secret."""
    environment = [{"name": JOB_VARIABLES_VARIABLE, "value": ",".join(sorted(variables))}]
    if tools_url:
        environment.append({"name": "MCP_SERVER_URL", "value": tools_url})
    limits: dict[str, Any] = {"cpu": section.cpus, "memory": section.memory}
    if on_gpus:
        limits[section.gpu_resource] = demand.gpus_per_node
    config, ray_job = render(
        "trainer.yaml",
        metadata=names.metadata(names.run, "job"),
        config_metadata=names.metadata(names.job_config, "job"),
        config={FILE: job.to_json(), RECIPE_FILE: recipe},
        config_name=names.job_config,
        entrypoint=shlex.join(job.command(Path(JOB_FOLDER, FILE))),
        ray_version=section.ray_version,
        image=section.image,
        folder=section.folder,
        claim=section.claim,
        shared_memory=section.shared_memory,
        job_folder=JOB_FOLDER,
        head_labels=names.labels("head"),
        head_cpus=CPUS_BESIDE + 1,
        head_env=environment,
        variables_secret=names.variables,
        worker_labels=names.labels("trainer"),
        worker_limits=limits,
        nodes=demand.nodes,
        gpus=str(demand.gpus_per_node),
    )
    cluster = ray_job["spec"]["rayClusterSpec"]
    head, worker = (
        group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    )
    head |= image_pull(section)
    worker |= image_pull(section)
    if section.node_selector:
        worker["nodeSelector"] = dict(section.node_selector)
    if section.tolerations:
        worker["tolerations"] = list(section.tolerations)
    return [config, ray_job]
