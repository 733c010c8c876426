"""The Docker backend: a gateway and K workers in containers; the engine's labels are the only record of them.

A worker has no network, no writable disk, and one entrance: a socket in a volume that the gateway shares. Its tools run
as a user that no other worker on the machine has, without any privilege. The gateway has the one published port and the
secret of the tokens.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aworld_train.env import address, attachments
from aworld_train.env.backend import EnvPlan, ProgressReporter, Size
from aworld_train.env.directory import EnvDirectory
from aworld_train.env.egress import egress_settings, forbidden_networks, machine_addresses
from aworld_train.env.egress_image import build_egress_image, egress_container_options, egress_image_name
from aworld_train.env.images import LABEL, RUNTIME_FOLDER, USER, build
from aworld_train.env.record import Credentials, Record
from aworld_train.env.seccomp import seccomp_option
from aworld_train.errors import DependencyMissing, EnvironmentFailure, UsageError, suggestion
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.serving import channel, env_gateway, worker
from aworld_train.serving.worker.egress import VARIABLE as EGRESS_VARIABLE

DEFAULT_SOCKET = "/var/run/docker.sock"
_ENGINE_SECONDS = 60
_REMOVAL_SECONDS = 10.0
GATEWAY_PORT = 8080
SOCKETS = "/run/aworld"
_EGRESS = "egress"
_COUNTS = f"{SOCKETS}/{_EGRESS}/counts.sock"
_PIDS = 512
_RESERVED_PIDS = 32  # of these, for the worker itself
_FILES = 8192
# What starts tool servers as another user and ends them needs these, and gives them up when it changes its user.
WORKER_CAPABILITIES = ["SETUID", "SETGID", "SETPCAP", "KILL"]
_OOM_CAPABILITY = "SYS_RESOURCE"  # to set the lowest `oom_score_adj` that a tool may give itself
# Users of tools: a range that nothing else uses (https://systemd.io/UIDS-GIDS/), and one for engines whose containers
# have a range of 65,536 users of their own.
_USERS = (0x7000_0000, 0x7FFF_0000)
_MAPPED_USERS = (20_000, 60_000)
_STARTING = "-starting"
_RUNNING = ("running", "restarting", "created")
"""States of a container that the engine runs, or will; one that a user stopped stays so."""
_LOG_FILES = {"max-size": "10m", "max-file": "3"}
# Writable folders of a worker, in memory, with the share of its memory that each may take. With what else outlives the
# processes of tools they leave room for the worker, so that the kernel, when memory runs out, can end tools alone.
WORKER_FOLDERS = {"/workspace": 0.25, "/home/agent": 0.125, "/tmp": 0.125}
_SHARED_MEMORY = 0.0625  # of its memory, for /dev/shm
_BYTES_FOR_A_FILE = 8 << 10  # of a folder: an empty file takes the kernel about 1 KB
_SYSCTLS = {
    "kernel.shm_rmid_forced": "1",  # shared memory goes with the last process that has it
    "kernel.msgmni": "32",  # message queues, of 16 KB each, do not
    "kernel.sem": "250 32000 100 128",
}


def engine_answers() -> bool:
    try:
        return bool(_client().ping())
    except Exception:
        return False


def engine_host(environment: Mapping[str, str] = os.environ) -> str:
    """The engine's address: that of ``DOCKER_HOST``, else that of the docker command's current context."""
    from docker.context import ContextAPI

    if host := environment.get("DOCKER_HOST"):
        return host
    context = ContextAPI.get_context(environment.get("DOCKER_CONTEXT"))
    if context is None:
        raise UsageError(
            "The current Docker context does not exist: choose one (docker context ls, docker context use), or set "
            "DOCKER_HOST."
        )
    return DEFAULT_SOCKET if context.name == "default" else str(context.Host)


def refuse_ssh(host: str) -> None:
    if host.startswith("ssh://"):
        raise UsageError(
            f"The Docker engine at {host} is another machine's, and what an environment listens on there cannot be "
            "reached from here. Run aworld-train on that machine, or use an engine of this one (docker context use "
            "default, or DOCKER_HOST)."
        )


def build_image(
    directory: EnvDirectory,
    report_progress: ProgressReporter,
    *,
    only: tuple[str, ...] = (),
    pull: bool,
    rebuild: bool,
) -> str:
    return build(_engine(), directory, report_progress, only=only, pull=pull, rebuild=rebuild)


class DockerBackend:
    name = "docker"

    def __init__(self) -> None:
        self._client = _engine()

    def find(self, name: str) -> Record | None:
        return next(iter(self.records(name)), None)

    def prepare(self, plan: EnvPlan, report_progress: ProgressReporter) -> str:
        if plan.egress:
            build_egress_image(
                self._client, report_progress, pull=plan.settings.pull, rebuild=plan.settings.rebuild
            )
        return build(
            self._client,
            plan.directory,
            report_progress,
            only=plan.settings.servers,
            pull=plan.settings.pull,
            rebuild=plan.settings.rebuild,
        )

    def start(self, plan: EnvPlan) -> Record:
        from docker.errors import APIError

        try:
            self.remove(plan.name)
            self._create(plan)
            record = self.find(plan.name)
            assert record is not None
            if plan.owner is not None:
                _start_supervisor(plan.name, plan.owner)
            return record
        except APIError as error:
            self.remove(plan.name)
            raise EnvironmentFailure(
                f"{plan.name!r} could not be started: {error.explanation or error}"
            ) from error
        except BaseException:
            self.remove(plan.name)
            raise

    def mark_ready(self, record: Record) -> None:
        """Rename its gateway, whose name marks an environment that is still starting."""
        for container in self._containers(record.name):
            if container.name.endswith(_STARTING):
                container.rename(container.name.removesuffix(_STARTING))

    def stop(self, record: Record) -> None:
        self.remove(record.name)

    def runs(self, record: Record) -> bool:
        """Whether its gateway runs, or is being started again by the engine."""
        gateways = [one for one in self._containers(record.name) if one.labels[f"{LABEL}.role"] == "gateway"]
        return any(one.status in _RUNNING for one in gateways)

    def logs(self, record: Record, lines: int, follow: bool) -> Iterator[str]:
        containers = self._containers(record.name)
        if follow:
            yield from _follow(containers, lines)
            return
        stamped = []
        for container in containers:
            written = container.logs(tail=lines, timestamps=True).decode(errors="replace")
            for line in written.splitlines():
                moment, _, text = line.partition(" ")
                stamped.append((moment, f"{_part_name(container)} | {text}"))
        yield from [line for _, line in sorted(stamped)[-lines:]]

    def exists(self, name: str) -> bool:
        """Whether there is something of that name; its network is created first and removed last."""
        label = {"label": f"{LABEL}.environment={name}"}
        return bool(self._client.networks.list(filters=label) or self._client.volumes.list(filters=label))

    def records(self, name: str | None = None) -> list[Record]:
        label = f"{LABEL}.environment"
        filters = {"label": f"{label}={name}" if name else label}
        parts: dict[str, _Parts] = defaultdict(_Parts)
        for network in self._client.networks.list(filters=filters):
            parts[network.attrs["Labels"][label]].network = network.attrs["Labels"]
        for volume in self._client.volumes.list(filters=filters):
            parts[volume.attrs["Labels"][label]].volumes.append(volume.name)
        for container in self._containers(name):
            parts[container.labels[label]].containers.append(container)
        return [_record(name, parts[name]) for name in sorted(parts)]

    def _containers(self, name: str | None = None) -> list[Any]:
        label = f"{LABEL}.environment" + (f"={name}" if name else "")
        # `ignore_removed`: one may be removed between listing and inspecting it.
        containers: list[Any] = self._client.containers.list(
            all=True, filters={"label": label}, ignore_removed=True
        )
        return sorted(containers, key=_part_name)

    def _create(self, plan: EnvPlan) -> None:
        info = self._client.info()
        _check_runtime(plan.settings.runtime, info)
        network = self._client.networks.create(
            f"aworld-{plan.name}",
            driver="bridge",
            options={"com.docker.network.bridge.enable_icc": "false"},
            labels={f"{LABEL}.environment": plan.name, **_description(plan)},
            check_duplicate=True,
        )
        # A volume of its own: the proxy must not see the sockets at which workers are reached.
        ways_out = self._volume(plan.name, _EGRESS) if plan.egress else {}
        sockets: dict[str, dict[str, str]] = {}
        for number in range(plan.all_workers):
            volume = self._volume(plan.name, str(number))
            self._run_worker(plan, number, volume | ways_out, info)
            sockets |= volume
        if plan.egress:
            self._run_egress(plan, network.name, ways_out, info["NCPU"])
        self._run_gateway(plan, network.name, sockets | ways_out, info["NCPU"])

    def _run_worker(
        self, plan: EnvPlan, number: int, volumes: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        from docker.errors import APIError

        image = self._client.images.get(plan.prepared)
        security = " ".join(info.get("SecurityOptions") or [])
        user = new_user(mapped="name=rootless" in security or "name=userns" in security)
        mounts, attached = _attachments(plan)
        settings = worker_settings(plan, number, image.attrs["Config"].get("WorkingDir") or "/", user)
        options = {
            "name": f"aworld-{plan.name}-worker-{number}",
            "hostname": f"worker-{number}",
            "labels": {**_labels(plan, "worker"), f"{LABEL}.number": str(number)},
            "environment": {
                **plan.keys,
                **attached,
                "HOME": "/home/agent",
                "AWORLD_WORKER": json.dumps(settings),
                EGRESS_VARIABLE: json.dumps(dict(plan.egress_passwords)),
                channel.VARIABLE: channel.derive_secret(plan.credentials.secret, number),
            },
            "network_mode": "none",
            "runtime": plan.settings.runtime or None,
            "volumes": volumes,
            "mounts": mounts,
            **_container_limits(plan.settings.size, info["NCPU"]),
            **_worker_rights(plan.settings.size, user),
        }
        try:
            self._run(plan.prepared, [worker.__name__], **options)
        except APIError as error:
            # Of an engine that is itself in a container, or another user's than root.
            if "operation not permitted" not in str(error).lower():
                raise
            self._client.containers.get(options["name"]).remove(force=True)
            options["cap_add"] = WORKER_CAPABILITIES
            self._run(plan.prepared, [worker.__name__], **options)

    def _run(self, image: str, command: list[str] | None = None, **options: Any) -> None:
        """Start a container, without the proxies of the user's ``~/.docker/config.json``: they may hold a password."""
        self._client.containers.run(image, command, detach=True, use_config_proxy=False, **options)

    def _run_egress(self, plan: EnvPlan, network: str, volumes: Mapping[str, Any], cores: int) -> None:
        self._run(
            egress_image_name(),
            name=f"aworld-{plan.name}-egress",
            labels=_labels(plan, "egress"),
            environment={"AWORLD_EGRESS": json.dumps(self._egress_settings(plan))},
            network=network,
            volumes=volumes,
            nano_cpus=int(min(1.0, cores) * 1e9),
            log_config={"Type": "json-file", "Config": _LOG_FILES},
            **egress_container_options(),
        )

    def _run_gateway(self, plan: EnvPlan, network: str, volumes: Mapping[str, Any], cores: int) -> None:
        self._run(
            plan.prepared,
            [env_gateway.__name__],
            name=f"aworld-{plan.name}-gateway{_STARTING}",
            labels={**_labels(plan, "gateway"), **_description(plan)},
            environment={
                "AWORLD_SECRET": plan.credentials.secret,
                "AWORLD_DESKTOP_PASSWORD": plan.credentials.desktop_password,
                "AWORLD_GATEWAY": json.dumps(gateway_settings(plan)),
            },
            network=network,
            volumes=volumes,
            ports={f"{GATEWAY_PORT}/tcp": (plan.host, plan.port)},
            user=f"{USER}:{USER}",
            **_container_limits(Size(1.0, 512 << 20), cores),
        )

    def _volume(self, name: str, part: str) -> dict[str, dict[str, str]]:
        volume = self._client.volumes.create(
            f"aworld-{name}-{part}",
            driver="local",
            driver_opts={"type": "tmpfs", "device": "tmpfs", "o": f"size=1m,uid={USER},gid={USER},mode=0700"},
            labels={f"{LABEL}.environment": name},
        )
        return {volume.name: {"bind": f"{SOCKETS}/{part}", "mode": "rw"}}

    def _egress_settings(self, plan: EnvPlan) -> dict[str, Any]:
        pools = [
            pool["Subnet"]
            for network in self._client.networks.list()
            for pool in (network.attrs["IPAM"]["Config"] or [])
            if "Subnet" in pool
        ]
        addresses = (
            machine_addresses() if "://" not in engine_host() or engine_host().startswith("unix") else ()
        )
        sockets = [_egress_socket(number) for number in range(plan.all_workers)]
        forbidden = forbidden_networks((*pools, *addresses))
        return egress_settings(plan.egress, plan.egress_passwords, sockets, _COUNTS, forbidden)

    def remove(self, name: str) -> None:
        from docker.errors import APIError

        deadline = time.monotonic() + _REMOVAL_SECONDS
        while True:
            try:
                self._remove_parts(name)
                return
            except APIError as error:
                # The engine refuses what another program is just removing, or still has.
                if time.monotonic() > deadline:
                    raise EnvironmentFailure(
                        f"Something of {name!r} could not be removed: {error.explanation or error}"
                    ) from error
            time.sleep(0.2)

    def _remove_parts(self, name: str) -> None:
        from docker.errors import NotFound

        label = {"label": f"{LABEL}.environment={name}"}
        volumes = {volume.name for volume in self._client.volumes.list(filters=label)}
        for container in self._containers(name):
            # The engine makes a volume that was removed anew, without its label.
            volumes |= {mount["Name"] for mount in container.attrs["Mounts"] if mount["Type"] == "volume"}
            with contextlib.suppress(NotFound):
                container.remove(force=True, v=True)
        for volume in volumes:
            with contextlib.suppress(NotFound):
                self._client.volumes.get(volume).remove(force=True)
        for network in self._client.networks.list(filters=label):
            with contextlib.suppress(NotFound):
                network.remove()


def _labels(plan: EnvPlan, role: str) -> dict[str, str]:
    return {f"{LABEL}.environment": plan.name, f"{LABEL}.role": role}


def _start_supervisor(name: str, owner: ProcessIdentity) -> None:
    subprocess.Popen(
        [sys.executable, "-P", "-m", "aworld_train.env.container_supervisor", name, str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _attachments(plan: EnvPlan) -> tuple[list[Any], dict[str, str]]:
    if plan.data is None:
        return [], {}
    from docker.types import Mount

    # The engine refuses a mount of this type, unlike a volume, where the engine's machine does not have the folder.
    mount = Mount(attachments.MOUNT_POINT, str(plan.data), type="bind", read_only=True)
    return [mount], {attachments.VARIABLE: attachments.MOUNT_POINT}


def worker_settings(plan: EnvPlan, number: int, working_directory: str, user: int) -> dict[str, Any]:
    return {
        "socket": f"{SOCKETS}/{number}/worker.sock",
        "manifest": f"{RUNTIME_FOLDER}/manifest.json",
        "python": "python3",
        "here": working_directory,
        "workspace": "/workspace",
        "servers": list(plan.servers),
        "folders": None,
        "user": {"id": user, "max_processes": _PIDS - _RESERVED_PIDS},
        "own_user": USER,
        "egress": _egress_socket(number) if plan.egress else None,
        "desktop": plan.settings.desktop,
    }


def gateway_settings(plan: EnvPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "host": "0.0.0.0",
        "port": GATEWAY_PORT,
        "limits": dict(plan.settings.limits),
        "sockets": [f"{SOCKETS}/{number}/worker.sock" for number in range(plan.all_workers)],
        "scoring": plan.settings.scoring_workers,
        "egress": _COUNTS if plan.egress else None,
    }


def _egress_socket(number: int) -> str:
    return f"{SOCKETS}/{_EGRESS}/{number}.sock"


def _check_runtime(runtime: str, info: Mapping[str, Any]) -> None:
    runtimes = sorted(info.get("Runtimes") or {})
    if runtime and runtime not in runtimes:
        raise UsageError(
            f"The Docker engine has no runtime {runtime!r} (--runtime).{suggestion(runtime, runtimes)} It has: "
            f"{', '.join(runtimes)}."
        )


def new_user(*, mapped: bool) -> int:
    """A user for one worker's tools, who shares no kernel limit and no access right with others."""
    low, high = _MAPPED_USERS if mapped else _USERS
    return low + secrets.randbelow(high - low)


def _worker_rights(size: Size, user: int) -> dict[str, Any]:
    """What a worker may do that a gateway may not: start tools as another user, in folders that are that user's."""
    return {
        "user": "0:0",
        "cap_add": [*WORKER_CAPABILITIES, _OOM_CAPABILITY],
        "tmpfs": {
            folder: f"rw,exec,nosuid,nodev,size={int(share * size.memory)},"
            f"nr_inodes={int(share * size.memory) // _BYTES_FOR_A_FILE},uid={user},gid={user},mode=0700"
            for folder, share in WORKER_FOLDERS.items()
        },
        "shm_size": int(_SHARED_MEMORY * size.memory),
        "sysctls": _SYSCTLS,
        "ulimits": [{"Name": "nofile", "Soft": _FILES, "Hard": _FILES}],
    }


def _container_limits(size: Size, cores: int) -> dict[str, Any]:
    return {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", seccomp_option()],
        "pids_limit": _PIDS,
        "nano_cpus": int(min(size.cpus, cores) * 1e9),
        "mem_limit": size.memory,
        "memswap_limit": size.memory,
        "restart_policy": {"Name": "always"},
        "log_config": {"Type": "json-file", "Config": _LOG_FILES},
    }


def _description(plan: EnvPlan) -> dict[str, str]:
    """The record's fields as labels, from which `_record` reads them; none of them is secret."""
    credentials = plan.credentials
    fields = {
        "host": plan.host,
        "port": plan.port,
        "workers": plan.workers,
        "token-id": credentials.token_id,
        "issued": credentials.issued,
        "expires": credentials.expires,
        "directory": str(plan.directory.path),
        "fingerprint": plan.fingerprint,
        "data": plan.data or "",
        "machine": address.machine(),
        "owner": plan.owner or "",
        "starter": plan.starter,
        "parts": " ".join(
            [
                *(["egress", "volume-egress"] if plan.egress else []),
                "gateway",
                *(f"{part}-{number}" for part in ("worker", "volume") for number in range(plan.all_workers)),
                "network",
            ]
        ),
    }
    return {f"{LABEL}.{name}": str(value) for name, value in fields.items()}


@dataclass
class _Parts:
    network: Mapping[str, str] = field(default_factory=dict)  # its labels
    volumes: list[str] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)

    def names(self, environment: str) -> set[str]:
        volumes = {f"volume-{name.removeprefix(f'aworld-{environment}-')}" for name in self.volumes}
        running = [_part_name(one) for one in self.containers if one.status in _RUNNING]
        return {*(["network"] if self.network else []), *volumes, *running}


def _record(name: str, parts: _Parts) -> Record:
    gateway = next((one for one in parts.containers if one.labels[f"{LABEL}.role"] == "gateway"), None)
    described = gateway.labels if gateway else parts.network
    labels = {key.removeprefix(f"{LABEL}."): value for key, value in described.items()}
    names = parts.names(name)
    variables = dict(entry.split("=", 1) for entry in gateway.attrs["Config"]["Env"]) if gateway else {}
    return Record(
        name=name,
        backend="docker",
        host=labels.get("host", "127.0.0.1"),
        port=int(labels.get("port", 0)),
        workers=int(labels.get("workers", 0)),
        credentials=Credentials(
            secret=variables.get("AWORLD_SECRET", ""),
            token_id=labels.get("token-id", ""),
            issued=int(labels.get("issued", 0)),
            expires=int(labels.get("expires", 0)),
            desktop_password=variables.get("AWORLD_DESKTOP_PASSWORD", ""),
        ),
        directory=labels.get("directory", ""),
        fingerprint=labels.get("fingerprint", ""),
        machine=labels.get("machine", address.machine()),
        owner=_process(labels.get("owner", "")),
        starter=_process(labels.get("starter", "")),
        ready=gateway is not None and not gateway.name.endswith(_STARTING),
        handle={
            "gateway": gateway.id if gateway else "",
            "image": gateway.attrs.get("Image", "") if gateway else "",
            "missing": [part for part in labels.get("parts", "gateway").split() if part not in names],
        },
        data=labels.get("data", ""),
    )


def _process(label: str) -> ProcessIdentity | None:
    """The process that a label names; None for one that cannot be told from others, as labels had it before."""
    try:
        return ProcessIdentity.read(label)
    except ValueError:
        return None


def _part_name(container: Any) -> str:
    """Its part in the environment: ``gateway``, ``worker-0``, ..."""
    number = container.labels.get(f"{LABEL}.number")
    return str(container.labels[f"{LABEL}.role"]) + (f"-{number}" if number is not None else "")


def _follow(containers: list[Any], lines: int) -> Iterator[str]:
    import queue
    import threading

    written: queue.Queue[str | None] = queue.Queue()

    def listen(container: Any) -> None:
        for chunk in container.logs(stream=True, follow=True, tail=lines):
            for line in chunk.decode(errors="replace").splitlines():
                written.put(f"{_part_name(container)} | {line}")
        written.put(None)

    for container in containers:
        threading.Thread(target=listen, args=(container,), daemon=True).start()
    open_ones = len(containers)
    while open_ones:
        line = written.get()
        if line is None:
            open_ones -= 1
        else:
            yield line


def _engine() -> Any:
    try:
        client = _client()
        client.ping()
        return client
    except (DependencyMissing, UsageError):
        raise
    except Exception as error:
        raise EnvironmentFailure(
            f"No Docker engine answers at {engine_host()} ({_reason(error)}). Start it, see that this user may use "
            "it, set DOCKER_HOST, or use --backend process."
        ) from error


@lru_cache(maxsize=1)
def _client() -> Any:
    import docker

    refuse_ssh(engine_host())
    return docker.from_env(timeout=_ENGINE_SECONDS)


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error) or type(error).__name__
