"""What a run has on Kubernetes: the objects that are written to a file, and the Secrets, which never are.

The Secrets are made when they are applied, from the environment variables and key files of that moment, and go to
``kubectl`` through a pipe:

    python -m aworld_train.launch.kubernetes.plan RUN_FOLDER | kubectl apply -f -
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE
from aworld_train.env.backend import EnvPlan, EnvSettings
from aworld_train.env.directory import find_directory
from aworld_train.env.egress import egress_rules
from aworld_train.env.keys import choose_servers, read_keys
from aworld_train.env.record import Credentials
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.launch.cluster_job import FILE, ClusterJob
from aworld_train.launch.cluster_nodes import CPUS_BESIDE, Demand
from aworld_train.launch.job import RECIPE, job_command, job_variables
from aworld_train.launch.kubernetes.naming import RunNames, names_of
from aworld_train.launch.kubernetes.tools import (
    SECRET_KEY,
    ToolSize,
    channel_key,
    render,
    tool_manifests,
    tools_url,
)
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.recipe import LoadedRecipe, dump, read
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.reward_checks import runs_code
from aworld_train.recipe.schema import KubernetesSection, Recipe
from aworld_train.serving import channel, tokens

_TOKEN_SECONDS = 30 * 24 * 3600
_STARTS_ENVIRONMENT = (
    *("docker_dir", "mcp_servers", "backend", "egress", "egress_hosts", "workers", "scoring_workers"),
    *("env_file", "data", "runtime"),
)
"""Keys of ``env`` that say how an environment is started; in the job it runs already."""

JOB_FOLDER = "/etc/aworld-train"
"""Where the head mounts the ConfigMap of the job."""
RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True)
class KubernetesPlan:
    """A run on Kubernetes, whose folder on the claim has the path that pods see."""

    loaded: LoadedRecipe
    run_dir: PurePosixPath
    resume: bool

    @property
    def recipe(self) -> Recipe:
        return self.loaded.recipe

    @property
    def names(self) -> RunNames:
        return names_of(self.recipe.name, self.recipe.cluster.kubernetes.namespace)

    @property
    def _pull(self) -> dict[str, Any]:
        secrets = [{"name": name} for name in self.recipe.cluster.kubernetes.pull_secrets]
        return {"imagePullSecrets": secrets} if secrets else {}

    def manifests(self) -> list[dict[str, Any]]:
        config, ray_job = self._trainer_manifests()
        environment = self.environment()
        return [config, *(self._tool_manifests(environment) if environment else []), ray_job]

    def secrets(self) -> list[dict[str, Any]]:
        """With their values: for a pipe, never for a file."""
        names, environment = self.names, self.environment()
        variables = self._variables()
        if environment is None:
            return [_secret(names, names.variables, "job", variables)]
        secret, now = environment.credentials.secret, int(time.time())
        token = tokens.sign(secret, environment.name, issued=now, expires=now + _TOKEN_SECONDS)
        of_tools = {
            SECRET_KEY: secret,
            **{
                channel_key(number): channel.derive_secret(secret, number)
                for number in range(environment.all_workers)
            },
            **environment.keys,
        }
        return [
            _secret(names, names.variables, "job", {**variables, "MCP_SERVER_TOKEN": token}),
            _secret(names, names.tools, "tools", of_tools),
        ]

    def environment(self) -> EnvPlan | None:
        """The tool environment that the run has of its own, with a new secret; None if it has none."""
        env = self.recipe.env
        if env.started_from is None:
            return None
        directory = find_directory(env.started_from)
        file = Path(env.env_file).expanduser() if env.env_file else None
        keys = {**directory.values, **read_keys(directory.manifest, file)}
        servers = choose_servers(directory.manifest, tuple(env.servers), keys, lambda _: None)
        rules = egress_rules(
            directory.manifest, servers, keys, env.egress.value if env.egress else None, env.egress_hosts
        )
        if rules:
            raise UsageError(
                f"The servers {', '.join(sorted(rules))} of {directory.name} reach hosts by name through a "
                "proxy, and a NetworkPolicy knows no names; the rendered environment reaches nothing. Set "
                "env.egress=none, choose other servers (env.servers), or run the environment with Docker elsewhere and "
                "name it in env.url."
            )
        if env.data:
            raise UsageError(
                "env.data is a folder of this machine, which the tools' pod cannot mount. Run the environment with "
                "Docker elsewhere and name it in env.url."
            )
        scoring = int(runs_code(self.recipe, ())) if env.scoring_workers is None else env.scoring_workers
        return EnvPlan(
            name=self.names.tools,
            directory=directory,
            settings=EnvSettings(scoring_workers=scoring),
            servers=servers,
            workers=env.workers or 1,
            credentials=Credentials(tokens.new_secret(), "", 0, 0),
            keys=keys,
            starter=ProcessIdentity.of(os.getpid()),
        )

    def _trainer_manifests(self) -> list[dict[str, Any]]:
        """The ConfigMap and the RayJob (KubeRay), without secrets."""
        names, cluster, section = self.names, self.recipe.cluster, self.recipe.cluster.kubernetes
        _check(section, Demand(cluster.nodes, cluster.gpus_per_node))
        runs, recipe = Path(self.run_dir).parent, Path(JOB_FOLDER, RECIPE_FILE)
        command = job_command(recipe, runs, "kubernetes", resume=self.resume)
        job = ClusterJob.of(self.recipe, self.run_dir, section.folder, command)
        environment = [{"name": JOB_VARIABLES_VARIABLE, "value": ",".join(sorted(self._variables()))}]
        if self.recipe.env.started_from is not None:
            environment.append({"name": "MCP_SERVER_URL", "value": tools_url(names)})
        limits: dict[str, Any] = {"cpu": section.cpus, "memory": section.memory}
        if not on_cpu(self.recipe):
            limits[section.gpu_resource] = cluster.gpus_per_node
        config, ray_job = render(
            "trainer.yaml",
            metadata=names.metadata(names.run, "job"),
            config_metadata=names.metadata(names.job_config, "job"),
            config={FILE: job.to_json(), RECIPE_FILE: dump(self._recipe_of_job())},
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
            nodes=cluster.nodes,
            gpus=str(cluster.gpus_per_node),
        )
        groups = ray_job["spec"]["rayClusterSpec"]
        head, worker = (
            group["template"]["spec"] for group in (groups["headGroupSpec"], *groups["workerGroupSpecs"])
        )
        head |= self._pull
        worker |= self._pull
        if section.node_selector:
            worker["nodeSelector"] = dict(section.node_selector)
        if section.tolerations:
            worker["tolerations"] = list(section.tolerations)
        return [config, ray_job]

    def _tool_manifests(self, environment: EnvPlan) -> list[dict[str, Any]]:
        section = self.recipe.cluster.kubernetes
        if not section.env_image:
            file = self.recipe.env.mcp_servers
            source = f"--docker-dir {self.recipe.env.docker_dir}" if file is None else f"--mcp-servers {file}"
            raise UsageError(
                "cluster.kubernetes.env_image is not set: the image of the tool environment in a registry of the "
                f"cluster. `aworld-train env build {source}` makes it; push it."
            )
        size = ToolSize(section.env_cpus, section.env_memory)
        return tool_manifests(self.names, environment, section.env_image, size, self._pull)

    def _variables(self) -> dict[str, str]:
        """The variables of the training pods; what tools need, the pod of the tools has."""
        return job_variables(replace(self.loaded, unresolved=self._recipe_of_job()))

    def _recipe_of_job(self) -> dict[str, Any]:
        """The recipe for the head, where the tool environment runs already."""
        tree: dict[str, Any] = deepcopy(dict(self.loaded.unresolved))
        if self.recipe.env.started_from is not None:
            tree["env"] = {key: value for key, value in tree["env"].items() if key not in _STARTS_ENVIRONMENT}
        return tree


def plan_in(run_dir: Path) -> KubernetesPlan:
    file = run_dir / RECIPE
    if not file.is_file():
        raise UsageError(f"There is no {file}: render the run first, with `train ... --launcher kubernetes`.")
    return KubernetesPlan(read(str(file)), PurePosixPath("/"), resume=False)


def _check(section: KubernetesSection, demand: Demand) -> None:
    missing = [key for key in ("image", "claim") if not getattr(section, key)]
    if missing:
        raise UsageError(
            f"{' and '.join(f'cluster.kubernetes.{key}' for key in missing)} not set: the launcher kubernetes needs "
            "the image of the trainer's pods, and the PersistentVolumeClaim with runs, datasets and models."
        )
    if section.cpus < demand.cpus_per_node:
        raise UsageError(
            f"cluster.kubernetes.cpus is {section.cpus}, and {demand.gpus_per_node} GPU of a training pod take "
            f"{demand.cpus_per_node}."
        )


def _secret(names: RunNames, name: str, role: str, values: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": names.metadata(name, role),
        "type": "Opaque",
        "stringData": dict(values),
    }


def main() -> int:
    """Print the Secrets of the run in a folder, as one List in JSON; returns an exit code."""
    try:
        items = plan_in(Path(sys.argv[1])).secrets()
    except AworldTrainError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    if sys.stdout.isatty():
        sys.stderr.write("error: The output holds secrets: pipe it to `kubectl apply -f -`.\n")
        return UsageError.exit_code
    sys.stdout.write(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
