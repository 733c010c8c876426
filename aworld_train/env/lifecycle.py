"""The life of a tool environment: it is started, tested, found again and stopped, whatever backend runs it.

It is up when a call of each of its tool servers has returned. A name keeps its token, and if possible its port, until
it is taken down: the connection of an environment that died is valid again after a restart.
"""

import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import psutil

from aworld_train.env import address, attachments, registry
from aworld_train.env.backend import EnvPlan, EnvSettings, ProgressReporter, Remark, worker_count
from aworld_train.env.backend_choice import Backend, choose_backend, open_backend, usable_backends
from aworld_train.env.client_servers import MANIFEST
from aworld_train.env.connection import EnvConnection
from aworld_train.env.directory import EnvDirectory, find_directory
from aworld_train.env.egress import described_rules, egress_passwords, egress_rules
from aworld_train.env.health import MORE_TIME, REPORT_SECONDS, check_servers, read_health
from aworld_train.env.interpreter import lock_packages
from aworld_train.env.keys import choose_servers, read_keys
from aworld_train.env.record import Credentials, Record
from aworld_train.errors import EnvironmentFailure, UsageError, options_as_arguments
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.serving import tokens

_LOG_LINES = 15
_RECOVERY_SECONDS = 10.0
"""Seconds that an environment may take to answer again before it counts as broken and is replaced."""
_LOOK_SECONDS = 1.0  # between looks at what was removed of an environment that starts
_LOCK_SECONDS = 60.0
_TRIAL_NAME = 40  # characters of the environment's name, which may have 63 with what is added
_BUILD_LOCK_SECONDS = 3600.0


@options_as_arguments(
    {
        "--vnc": "up(desktop=True)",
        **{f"--{field.name.replace('_', '-')}": f"up({field.name}=...)" for field in fields(EnvSettings)},
    }
)
def up(
    docker_dir: str | Path | Mapping[str, Any],
    settings: EnvSettings | None = None,
    *,
    owner_pid: int | None = None,
    report_progress: ProgressReporter = lambda _: None,
    **changes: Any,
) -> EnvConnection:
    """Start an environment and test its tools; one that is up with the same settings is returned at once.

    One that is up with other settings stays up until they have been tried beside it, with one worker. This call blocks;
    in async code, run it in a thread.

    Args:
        docker_dir: Name or path of the environment directory, or a desktop client's configuration of servers: a JSON
            file, or its content.
        owner_pid: A process; the environment is stopped when it ends, whatever the cause.
        report_progress: Called with a line about each step.
        **changes: Fields of the settings, such as ``workers=2``.

    Raises EnvironmentFailure if it did not come up (nothing of it is left running), or the name is taken.
    """
    settings = replace(settings or EnvSettings(), **changes)
    directory = find_directory(docker_dir)
    if settings.desktop and not directory.manifest.desktop:
        raise UsageError(
            f"{directory.name} has no desktop for --vnc: its {MANIFEST} does not say `desktop: true`, for which its "
            "image needs Xvfb, x11vnc, a window manager and noVNC (docker/gaia-mcp-server has them)."
        )
    for remark in directory.remarks:
        report_progress(Remark(remark))
    keys = {**directory.values, **read_keys(directory.manifest, settings.env_file, report_progress)}
    enabled = choose_servers(directory.manifest, settings.servers, keys, report_progress)
    backend = choose_backend(
        settings.backend, {name: directory.manifest.servers[name] for name in enabled}, report_progress
    )
    if backend.name != "docker" and (settings.egress is not None or settings.egress_hosts):
        raise UsageError("--egress needs the docker backend: a process has the network of this machine.")
    rules = egress_rules(directory.manifest, enabled, keys, settings.egress, settings.egress_hosts)
    lock_packages(directory, report_progress, renew=settings.rebuild)
    name = registry.checked(settings.name or directory.name)
    data = attachments.find_data(settings.data, for_containers=backend.name == "docker")
    owner = _owner(owner_pid)
    with registry.locked(name, _BUILD_LOCK_SECONDS, report_progress):
        old = find(name)
        if old is not None:
            _refuse_if_in_use(old, owner, directory)
        plan = EnvPlan(
            name=name,
            directory=directory,
            settings=settings,
            servers=enabled,
            workers=worker_count(directory, settings.workers, settings.sessions),
            credentials=_new_credentials(settings),
            keys=keys,
            starter=ProcessIdentity.of(os.getpid()),
            owner=owner,
            host=address.listen_address(settings.host),
            port=settings.port,
            data=data,
            egress=rules,
            egress_passwords=egress_passwords(rules),
        )
        plan = replace(plan, fingerprint=_fingerprint(plan, backend))
        if old is not None and not (settings.rebuild or settings.pull) and _matches(old, plan, backend):
            return old.connection
        plan = replace(plan, prepared=backend.prepare(plan, report_progress))
        if old is not None:
            plan = _replace_old(old, plan, backend, report_progress)
        plan = replace(plan, port=_choose_port(plan, old))
        report_progress(f"Starting {name} with {plan.workers} worker{'s' if plan.workers > 1 else ''}.")
        try:
            return _start(backend, plan, report_progress)
        except EnvironmentFailure:
            # Between choosing a port and listening on it, another program may have taken it.
            if settings.port or address.is_free(plan.host, plan.port):
                raise
            return _start(backend, replace(plan, port=address.free_port(plan.host)), report_progress)


def _new_credentials(settings: EnvSettings) -> Credentials:
    issued = int(time.time())
    return Credentials(
        secret=tokens.new_secret(),
        token_id=secrets.token_hex(8),
        issued=issued,
        expires=issued + int(settings.ttl),
        desktop_password=secrets.token_urlsafe(9) if settings.desktop else "",
    )


def _replace_old(old: Record, plan: EnvPlan, backend: Backend, report_progress: ProgressReporter) -> EnvPlan:
    """Stop the old environment once the plan works beside it; returns the plan with the old credentials, if valid."""
    if plan.port not in (0, old.port):
        address.check_free(plan.host, plan.port)
    if old.missing:
        report_progress(f"Stopping {plan.name}, which lacks {', '.join(old.missing)}.")
    elif old.ready and _answers(old):
        _try_out(backend, plan, report_progress)
        report_progress(f"Stopping {plan.name}, which has other settings.")
    open_backend(old.backend).stop(old)
    # With the old secret, tokens that were revoked would be valid again.
    was_revoked = registry.take_revocation(plan.name)
    new = plan.credentials
    if not old.credentials.secret:
        report_progress(f"Its token is lost with its gateway: {plan.name} gets another one.")
    elif not was_revoked and old.credentials.expires > new.issued:
        return replace(plan, credentials=replace(old.credentials, desktop_password=new.desktop_password))
    return plan


def down(name: str) -> bool:
    """Stop an environment and forget it, log included; returns whether it was running."""
    with registry.locked(name, _LOCK_SECONDS):
        record = find(name)
        running = False
        if record is not None:
            _refuse_if_elsewhere(record)
            backend = open_backend(record.backend)
            running = backend.runs(record)
            backend.stop(record)
        registry.log_path(name).unlink(missing_ok=True)
        registry.take_revocation(name)
        return running


def orphans() -> list[str]:
    """Names of environments that no program uses: their start was interrupted, or their owner has ended."""
    names = []
    for backend in usable_backends():
        for record in backend.records():
            if record.is_elsewhere:
                continue
            abandoned = not record.ready and not _is_alive(record.starter)
            if abandoned or (record.owner is not None and not _is_alive(record.owner)):
                names.append(record.name)
    return sorted(set(names))


def down_orphans() -> list[str]:
    names = orphans()
    for name in names:
        with registry.locked(name, _LOCK_SECONDS):
            for backend in usable_backends():
                backend.remove(name)
            registry.log_path(name).unlink(missing_ok=True)
    return names


def find(name: str) -> Record | None:
    records = (backend.find(name) for backend in usable_backends())
    return next((record for record in records if record is not None), None)


def _try_out(backend: Backend, plan: EnvPlan, report_progress: ProgressReporter) -> None:
    trial = f"{plan.name[:_TRIAL_NAME]}-trial-{secrets.token_hex(4)}"
    report_progress(f"Trying beside {plan.name}, which stays up until this works.")
    beside = replace(
        plan,
        name=trial,
        port=address.free_port(plan.host),
        workers=1,
        settings=replace(plan.settings, scoring_workers=min(plan.settings.scoring_workers, 1)),
        owner=plan.starter,
    )
    with registry.locked(trial, _LOCK_SECONDS):
        try:
            _start(backend, beside, report_progress)
        except EnvironmentFailure as error:
            raise EnvironmentFailure(
                f"{plan.name!r} stays up as it was, because it does not start with what has changed: "
                f"{error.message.replace(trial, plan.name)}"
            ) from error
        finally:
            backend.remove(trial)
            registry.log_path(trial).unlink(missing_ok=True)


def _start(backend: Backend, plan: EnvPlan, report_progress: ProgressReporter) -> EnvConnection:
    deadline = time.monotonic() + plan.settings.wait
    record = backend.start(plan)
    try:
        _wait_until_healthy(backend, record, plan, report_progress)
        calls = {
            name: call
            for name in plan.servers
            if (call := plan.directory.manifest.servers[name].test) is not None
        }
        remaining = max(deadline - time.monotonic(), 5.0)
        connection = record.connection
        check_servers(connection.mcp_url, connection.token, calls, remaining, report_progress)
        backend.mark_ready(record)
        return connection
    except BaseException as error:
        written = _log_excerpt(backend, record)
        backend.stop(record)
        if isinstance(error, EnvironmentFailure):
            raise EnvironmentFailure(f"{error.message} {written}") from error
        raise


def _wait_until_healthy(
    backend: Backend, record: Record, plan: EnvPlan, report_progress: ProgressReporter
) -> None:
    wait = plan.settings.wait
    began = reported = looked = time.monotonic()
    while True:
        health = read_health(record.health)
        if health is not None and health["name"] != record.name:
            raise EnvironmentFailure(f"Port {record.port} was taken by {health['name']!r} meanwhile.")
        if health is not None and health["broken"]:
            server, reason = next(iter(health["broken"].items()))
            raise EnvironmentFailure(f"The tool server {server!r} does not start: {reason}.")
        if health is not None and _all_ready(health, plan):
            return
        if not backend.runs(record):
            raise EnvironmentFailure(f"{record.name!r} ended while it was starting.")
        now = time.monotonic()
        if now - looked >= _LOOK_SECONDS:
            looked = now
            current = backend.find(record.name)
            if current is not None and current.missing:
                lost = ", ".join(current.missing)
                raise EnvironmentFailure(
                    f"{lost} of {record.name!r} was removed while it was starting; start it again."
                )
        if now - began > wait:
            raise EnvironmentFailure(
                f"{record.name!r} was not ready at {record.health} within {wait:.0f} s and was stopped: "
                f"{_what_is_missing(health, plan)}. {MORE_TIME}"
            )
        if now - reported >= REPORT_SECONDS:
            reported = now
            report_progress(
                f"Waiting for {record.name}, {now - began:.0f} of {wait:.0f} s: {_what_is_missing(health, plan)}."
            )
        time.sleep(0.1)


def _what_is_missing(health: Mapping[str, Any] | None, plan: EnvPlan) -> str:
    if health is None:
        return "its gateway does not answer yet"
    counts = [health["workers"], health["scoring"]]
    ready, starting, silent = (
        sum(count[state] for count in counts) for state in ("ready", "cleaning", "down")
    )
    parts = [f"ready workers: {ready} of {plan.all_workers}"]
    if starting:
        servers = f" ({', '.join(health['starting'])})" if health["starting"] else ""
        parts.append(f"starting tool servers{servers}: {starting}")
    if silent:
        parts.append(f"not heard of yet: {silent}")
    if health["egress"] is not None and health["egress"]["status"] != "ok":
        parts.append("the egress proxy does not answer")
    return ", ".join(parts)


def _all_ready(health: Mapping[str, Any], plan: EnvPlan) -> bool:
    ready = (health["workers"]["ready"], health["scoring"]["ready"])
    return ready == (plan.workers, plan.settings.scoring_workers) and (
        health["egress"] is None or health["egress"]["status"] == "ok"
    )


def _log_excerpt(backend: Backend, record: Record) -> str:
    try:
        lines = list(backend.logs(record, _LOG_LINES, follow=False))
    except (OSError, EnvironmentFailure):
        lines = []
    written = "\n".join(lines).replace(record.credentials.secret or "\0", "[secret]").rstrip()
    return f"The last lines of its log:\n{written}" if written else "It wrote nothing to its log."


def _owner(pid: int | None) -> ProcessIdentity | None:
    if pid is None:
        return None
    try:
        return ProcessIdentity.of(pid)
    except psutil.NoSuchProcess as error:
        raise UsageError(f"Process {pid}, which the environment is to end with, does not exist.") from error


def _is_alive(process: ProcessIdentity | None) -> bool:
    return process is not None and process.find() is not None


def _fingerprint(plan: EnvPlan, backend: Backend) -> str:
    """A hash of everything that decides what runs, except for the port."""
    settings = plan.settings
    inputs = [
        {"files": plan.directory.digest(), "path": str(plan.directory.path), "python": sys.executable},
        [
            *(
                backend.name,
                plan.host,
                plan.workers,
                asdict(settings.size),
                list(plan.servers),
                settings.desktop,
            ),
            *(settings.runtime, settings.scoring_workers, described_rules(plan.egress), settings.ttl),
        ],
        {"keys": dict(plan.keys), "limits": dict(settings.limits), "version": _runtime_digest()},
        attachments.identity(plan.data),
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _runtime_digest() -> str:
    folder = Path(tokens.__file__).parent
    hashed = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _matches(record: Record, plan: EnvPlan, backend: Backend) -> bool:
    is_same = record.ready and record.owner == plan.owner and record.fingerprint == plan.fingerprint
    if (
        not is_same
        or record.missing
        or plan.port not in (0, record.port)
        or record.credentials.expires <= time.time()
    ):
        return False
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while backend.runs(record) and time.monotonic() < deadline:
        if _answers(record):
            return True
        time.sleep(0.2)
    return False


def _answers(record: Record) -> bool:
    health = read_health(record.health)
    return health is not None and health["name"] == record.name and health["status"] == "ok"


def _refuse_if_in_use(record: Record, owner: ProcessIdentity | None, directory: EnvDirectory) -> None:
    """Refuse an environment that another process owns or starts, or that has another directory or no owner."""
    _refuse_if_elsewhere(record)
    is_starting = (
        not record.ready and _is_alive(record.starter) and record.starter != ProcessIdentity.of(os.getpid())
    )
    if not is_starting and not open_backend(record.backend).runs(record):
        return
    if is_starting and record.starter is not None:
        holder = f"is being started by process {record.starter.pid}"
    elif record.owner == owner:
        if not record.directory or Path(record.directory) == directory.path:
            return
        holder = f"is that of {record.directory}, not of {directory.path}"
    elif record.owner is None:
        holder = "was started by hand, not to end with another process"
    elif _is_alive(record.owner):
        holder = f"belongs to process {record.owner.pid}"
    else:
        return
    raise EnvironmentFailure(
        f"An environment {record.name!r} is there already and {holder}; choose another name with --name, or "
        f"stop it with `aworld-train env down {record.name}`."
    )


def _refuse_if_elsewhere(record: Record) -> None:
    if record.is_elsewhere:
        raise EnvironmentFailure(
            f"The environment {record.name!r} was started on {record.machine}: stop it there, choose another "
            f"name, or delete {registry.record_path(record.name)} if that machine is gone."
        )


def _choose_port(plan: EnvPlan, old: Record | None) -> int:
    if plan.port:
        address.check_free(plan.host, plan.port)
        return plan.port
    if old is not None and old.port and address.is_free(plan.host, old.port):
        return old.port
    return address.free_port(plan.host)
