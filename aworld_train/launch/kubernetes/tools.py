"""The tool environment of a run on Kubernetes: one pod with the gateway and its workers, isolated as with Docker.

Security contexts, volumes in memory, limits and a NetworkPolicy say what Docker's options do (``env.containers``). The
containers of a pod share its network, so the policy, which the cluster's network plugin has to enforce, keeps tools
from the network. Kubernetes limits processes per pod in the kubelet alone (``podPidsLimit``); the limit per worker is
that of its user.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aworld_train.env.backend import EnvPlan
from aworld_train.env.containers import (
    GATEWAY_PORT,
    SOCKETS,
    WORKER_CAPABILITIES,
    WORKER_FOLDERS,
    gateway_settings,
    new_user,
    worker_settings,
)
from aworld_train.env.directory import EnvDirectory
from aworld_train.env.images import USER
from aworld_train.launch.kubernetes.naming import ROLE_LABEL, RUN_LABEL, RunNames
from aworld_train.serving import channel, env_gateway, worker
from aworld_train.serving.worker.egress import VARIABLE as EGRESS_VARIABLE

SECRET_KEY = "gateway-secret"
_GATEWAY_LIMITS = {"cpu": 1, "memory": "512Mi"}
_PREPARE_LIMITS = {"cpu": "100m", "memory": "64Mi"}
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.MULTILINE | re.IGNORECASE)
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
# A volume in memory belongs to root when it is made: each folder becomes its owner's alone.
_PREPARE = (
    "import json, os, sys\n"
    "for folder, user in json.loads(sys.argv[1]):\n"
    "    os.chmod(folder, 0o700)\n"
    "    os.chown(folder, user, user)\n"
)


@dataclass(frozen=True)
class ToolSize:
    """Limits of each worker; ``memory`` as Kubernetes writes it, such as ``4Gi``."""

    cpus: float
    memory: str

    @property
    def limits(self) -> dict[str, Any]:
        return {"cpu": self.cpus, "memory": self.memory}

    def share(self, part: float) -> str:
        """That part of the memory, in mebibytes."""
        number, unit = self.memory[:-2], self.memory[-2:]
        return f"{int(part * float(number) * _UNITS[unit]) >> 20}Mi"


def channel_key(number: int) -> str:
    return f"channel-{number}"


def tools_url(names: RunNames) -> str:
    return f"http://{names.tools}.{names.namespace}.svc:{GATEWAY_PORT}/mcp"


def tool_manifests(
    names: RunNames,
    plan: EnvPlan,
    image: str,
    size: ToolSize,
    keys: Iterable[str],
    pull: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Deployment, Service and NetworkPolicy of the environment.

    The secrets of ``plan`` are not used; ``keys`` are names of variables for its tool servers, which are keys of its
    Secret.
    """
    users = [new_user(mapped=False) for _ in range(plan.all_workers)]
    sockets = [f"socket-{number}" for number in range(plan.all_workers)]
    workers = [_worker(names, plan, number, user, image, size, keys) for number, user in enumerate(users)]
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "shareProcessNamespace": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **pull,
        "initContainers": [_prepare(image, users)],
        "containers": [_gateway(names, plan, image), *workers],
        "volumes": [
            *({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}} for name in sockets),
            *(
                {
                    "name": _volume(folder, number),
                    "emptyDir": {"medium": "Memory", "sizeLimit": size.share(part)},
                }
                for number in range(plan.all_workers)
                for folder, part in WORKER_FOLDERS.items()
            ),
        ],
    }
    selector = {"matchLabels": names.labels("tools")}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": names.metadata(names.tools, "tools"),
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": selector,
                "template": {"metadata": {"labels": names.labels("tools")}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": names.metadata(names.tools, "tools"),
            "spec": {
                "type": "ClusterIP",
                "selector": names.labels("tools"),
                "ports": [
                    {"name": "mcp", "port": GATEWAY_PORT, "targetPort": GATEWAY_PORT, "protocol": "TCP"}
                ],
            },
        },
        _policy(names, selector),
    ]


def _policy(names: RunNames, selector: dict[str, Any]) -> dict[str, Any]:
    """The run's own pods may reach the gateway; nothing else gets in, and nothing gets out, names included."""
    of_run = {
        "matchLabels": {RUN_LABEL: names.run},
        "matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": ["head", "trainer"]}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(names.tools, "tools"),
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [{"podSelector": of_run}], "ports": [{"port": GATEWAY_PORT, "protocol": "TCP"}]}
            ],
            "egress": [],
        },
    }


def _prepare(image: str, users: list[int]) -> dict[str, Any]:
    """Gives every folder to its owner before the other containers start."""
    owners = [(f"{SOCKETS}/{number}", USER) for number in range(len(users))]
    mounts = [_mount(f"socket-{number}", folder) for number, (folder, _) in enumerate(owners)]
    for number, user in enumerate(users):
        for folder in WORKER_FOLDERS:
            path = f"/prepare/{number}{folder}"
            owners.append((path, user))
            mounts.append(_mount(_volume(folder, number), path))
    return {
        "name": "prepare",
        "image": image,
        "command": ["python3", "-P", "-c", _PREPARE, json.dumps(owners)],
        "resources": {"requests": _PREPARE_LIMITS, "limits": _PREPARE_LIMITS},
        "securityContext": _rights(user=0, capabilities=["CHOWN"]),
        "volumeMounts": mounts,
    }


def _gateway(names: RunNames, plan: EnvPlan, image: str) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": GATEWAY_PORT}, "periodSeconds": 5, "timeoutSeconds": 3}
    return {
        "name": "gateway",
        "image": image,
        "args": [env_gateway.__name__],
        "env": [
            _secret("AWORLD_SECRET", names, SECRET_KEY),
            {"name": "AWORLD_DESKTOP_PASSWORD", "value": ""},
            {"name": "AWORLD_GATEWAY", "value": json.dumps(gateway_settings(plan))},
        ],
        "ports": [{"name": "mcp", "containerPort": GATEWAY_PORT, "protocol": "TCP"}],
        "readinessProbe": probe,
        "livenessProbe": probe | {"initialDelaySeconds": 60, "failureThreshold": 6},
        "resources": {"requests": _GATEWAY_LIMITS, "limits": _GATEWAY_LIMITS},
        "securityContext": _rights(user=USER),
        "volumeMounts": [
            _mount(f"socket-{number}", f"{SOCKETS}/{number}") for number in range(plan.all_workers)
        ],
    }


def _worker(
    names: RunNames, plan: EnvPlan, number: int, user: int, image: str, size: ToolSize, keys: Iterable[str]
) -> dict[str, Any]:
    settings = worker_settings(plan, number, _working_directory(plan.directory), user)
    return {
        "name": f"worker-{number}",
        "image": image,
        "args": [worker.__name__],
        "env": [
            *(_secret(key, names, key) for key in sorted(keys)),
            {"name": "HOME", "value": "/home/agent"},
            {"name": "AWORLD_WORKER", "value": json.dumps(settings)},
            {"name": EGRESS_VARIABLE, "value": "{}"},
            _secret(channel.VARIABLE, names, channel_key(number)),
        ],
        "resources": {"requests": size.limits, "limits": size.limits},
        # Root, without what makes it mighty: it only starts tools as their own user and ends them, as with Docker.
        "securityContext": _rights(user=0, capabilities=WORKER_CAPABILITIES),
        "volumeMounts": [
            _mount(f"socket-{number}", f"{SOCKETS}/{number}"),
            *(_mount(_volume(folder, number), folder) for folder in WORKER_FOLDERS),
        ],
    }


def _working_directory(directory: EnvDirectory) -> str:
    """Where the image has the directory's files, which its Dockerfile says."""
    folders = _WORKDIR.findall((directory.path / "Dockerfile").read_text(encoding="utf-8"))
    return str(folders[-1]) if folders else "/"


def _rights(*, user: int, capabilities: Iterable[str] = ()) -> dict[str, Any]:
    added = list(capabilities)
    return {
        "runAsUser": user,
        "runAsGroup": user,
        "runAsNonRoot": user != 0,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _secret(variable: str, names: RunNames, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": names.tools, "key": key}}}


def _mount(volume: str, path: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": path}


def _volume(folder: str, number: int) -> str:
    return f"{folder.strip('/').replace('/', '-')}-{number}"
