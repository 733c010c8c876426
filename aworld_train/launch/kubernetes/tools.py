"""The tool environment of a run on Kubernetes, from ``tools.yaml``: one pod with the gateway and its workers.

The containers of a pod share its network, so a NetworkPolicy, which the cluster's network plugin has to enforce, keeps
tools from it. Kubernetes limits processes per pod in the kubelet alone; the limit per worker is that of its user.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

import yaml

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
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.MULTILINE | re.IGNORECASE)
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


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


def render(template: str, **values: Any) -> list[dict[str, Any]]:
    """The objects of a template; each ``$name`` stands for a value, which is written as JSON, a part of YAML."""
    text = Template((files("aworld_train.launch.kubernetes") / template).read_text(encoding="utf-8"))
    return list(
        yaml.safe_load_all(text.substitute({name: json.dumps(value) for name, value in values.items()}))
    )


def channel_key(number: int) -> str:
    return f"channel-{number}"


def tools_url(names: RunNames) -> str:
    return f"http://{names.tools}.{names.namespace}.svc:{GATEWAY_PORT}/mcp"


def tool_manifests(
    names: RunNames, plan: EnvPlan, image: str, size: ToolSize, pull: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Deployment, Service and NetworkPolicy of the environment, whose Secret has the plan's keys."""
    users = [new_user(mapped=False) for _ in range(plan.all_workers)]
    sockets = [_mount(f"socket-{number}", f"{SOCKETS}/{number}") for number in range(plan.all_workers)]
    owners = [(socket["mountPath"], USER) for socket in sockets]
    mounts, volumes = list(sockets), [_volume(socket["name"], "1Mi") for socket in sockets]
    for number, user in enumerate(users):
        for folder, part in WORKER_FOLDERS.items():
            mount = _mount(_volume_name(folder, number), f"/prepare/{number}{folder}")
            mounts.append(mount)
            owners.append((mount["mountPath"], user))
            volumes.append(_volume(mount["name"], size.share(part)))
    gateway = render(
        "tools_gateway.yaml",
        image=image,
        module=env_gateway.__name__,
        secret={"name": names.tools, "key": SECRET_KEY},
        settings=json.dumps(gateway_settings(plan)),
        port=GATEWAY_PORT,
        rights=_rights(user=USER),
        mounts=sockets,
    )
    workers = [_worker(names, plan, number, user, image, size) for number, user in enumerate(users)]
    deployment, *others = render(
        "tools.yaml",
        metadata=names.metadata(names.tools, "tools"),
        labels=names.labels("tools"),
        run_labels={RUN_LABEL: names.run},
        role_label=ROLE_LABEL,
        port=GATEWAY_PORT,
        image=image,
        owners=json.dumps(owners),
        prepare_rights=_rights(user=0, capabilities=["CHOWN"]),
        prepare_mounts=mounts,
        containers=[*gateway, *workers],
        volumes=volumes,
    )
    deployment["spec"]["template"]["spec"] |= pull
    return [deployment, *others]


def _worker(
    names: RunNames, plan: EnvPlan, number: int, user: int, image: str, size: ToolSize
) -> dict[str, Any]:
    settings = worker_settings(plan, number, _working_directory(plan.directory), user)
    return {
        "name": f"worker-{number}",
        "image": image,
        "args": [worker.__name__],
        "env": [
            *(_secret(key, names, key) for key in sorted(plan.keys)),
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
            *(_mount(_volume_name(folder, number), folder) for folder in WORKER_FOLDERS),
        ],
    }


def _working_directory(directory: EnvDirectory) -> str:
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


def _mount(volume: str, path: str) -> dict[str, str]:
    return {"name": volume, "mountPath": path}


def _volume(name: str, size: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def _volume_name(folder: str, number: int) -> str:
    return f"{folder.strip('/').replace('/', '-')}-{number}"
