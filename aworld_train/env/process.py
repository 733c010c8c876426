"""The process backend: gateway and workers run as processes of this machine, under a supervisor.

They get only common variables of the caller's environment: tools must not see the keys of the person who trains the
agent. Secrets are passed in variables, since every user of the machine can read a command line. Each session has
folders of its own, which are emptied after it, but a tool can do whatever this user can do.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from aworld_train import process_supervisor, temporary
from aworld_train.env import address, attachments, registry
from aworld_train.env.backend import EnvPlan, ProgressReporter
from aworld_train.env.interpreter import find_interpreter, install_packages
from aworld_train.env.record import Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.serving.worker.wipe import empty

_PASSED_VARIABLES = {
    *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TZ", "USER"),
    *("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
    *("REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
}
"""Variables of the caller's environment that every server gets, with those named ``LC_*``."""
_SUPERVISOR_START_SECONDS = 30.0
_STOP_SECONDS = 2 * process_supervisor.GRACE + 2.0
_FOLLOW_SECONDS = 0.3
_MAX_FOLDER_LENGTH = 50  # of the 107 characters that a socket's path may have


class ProcessBackend:
    name = "process"

    def records(self) -> list[Record]:
        return [record for record in map(registry.read, registry.names()) if record is not None]

    def find(self, name: str) -> Record | None:
        return registry.read(name)

    def prepare(self, plan: EnvPlan, report_progress: ProgressReporter) -> str:
        if plan.settings.desktop:
            raise UsageError("--vnc needs the docker backend: a desktop of this machine is not the agent's.")
        if plan.settings.runtime:
            raise UsageError("--runtime needs the docker backend: there are no containers to run in it.")
        python = find_interpreter(plan.directory, report_progress)
        install_packages(plan.directory, python, report_progress)
        return python

    def start(self, plan: EnvPlan) -> Record:
        log = registry.log_path(plan.name)
        log.unlink(missing_ok=True)
        registry.old_log_path(plan.name).unlink(missing_ok=True)
        python = plan.prepared
        folder = str(temporary.make("env", _socket_parent()))
        manifest = Path(folder, "manifest.json")
        manifest.write_text(json.dumps(asdict(plan.directory.manifest)), encoding="utf-8")
        settings = {
            "name": plan.name,
            "host": plan.host,
            "port": plan.port,
            "limits": dict(plan.settings.limits),
            "workers": plan.all_workers,
            "scoring": plan.settings.scoring_workers,
            "egress": None,
            "manifest": str(manifest),
            "python": python,
            "here": str(plan.directory.path),
            "servers": list(plan.servers),
            "folder": folder,
            "log": str(log),
            "old_log": str(registry.old_log_path(plan.name)),
        }
        variables = {
            **{
                name: value
                for name, value in os.environ.items()
                if name in _PASSED_VARIABLES or name.startswith("LC_")
            },
            **plan.keys,
            **({attachments.VARIABLE: str(plan.data)} if plan.data is not None else {}),
            "AWORLD_LOCAL": json.dumps(settings),
            "AWORLD_SECRET": plan.credentials.secret,
        }
        try:
            # The environment may outlive this process.
            with temporary.passed_on(Path(folder)) as mark:
                pid = self._start_supervisor(plan, log, variables, mark)
        except EnvironmentFailure:
            temporary.release(Path(folder))
            _remove(Path(folder))
            raise
        record = Record(
            name=plan.name,
            backend=self.name,
            host=plan.host,
            port=plan.port,
            workers=plan.workers,
            credentials=plan.credentials,
            directory=str(plan.directory.path),
            fingerprint=plan.fingerprint,
            machine=address.machine(),
            owner=plan.owner,
            starter=plan.starter,
            ready=False,
            handle={**asdict(process_supervisor.ProcessIdentity.of(pid)), "folder": folder},
            data=str(plan.data or ""),
        )
        # Written before the environment is tested, so that it can be found and removed if this process is killed.
        registry.write(record)
        return record

    def mark_ready(self, record: Record) -> None:
        registry.write(replace(record, ready=True))

    def stop(self, record: Record) -> None:
        supervisor = _supervisor(record)
        if supervisor is not None:
            processes = [supervisor, *_children(supervisor)]
            _signal(supervisor, signal.SIGTERM)
            if not _have_ended(processes, _STOP_SECONDS):
                for process in {*processes, *_children(supervisor)}:
                    _signal(process, signal.SIGKILL)
                if not _have_ended(processes, process_supervisor.GRACE):
                    pids = ", ".join(
                        str(process.pid) for process in processes if process_supervisor.lives(process)
                    )
                    raise EnvironmentFailure(f"Process {pids} did not end, not even by SIGKILL.")
        _remove(Path(record.handle["folder"]))
        registry.remove(record.name)
        registry.old_log_path(record.name).unlink(missing_ok=True)

    def runs(self, record: Record) -> bool:
        return _supervisor(record) is not None

    def logs(self, record: Record, lines: int, follow: bool) -> Iterator[str]:
        old = registry.old_log_path(record.name)
        with registry.log_path(record.name).open("rb") as file:
            yield from _decoded(_read_from(old, 0) + file.read())[-lines:]
            line, running = b"", True
            while follow and running:
                # Checked before reading, so that its last lines are read after it has ended.
                running = self.runs(record)
                if os.fstat(file.fileno()).st_size < file.tell():  # it was rotated
                    line += _read_from(old, file.tell())
                    file.seek(0)
                line += file.read()
                complete, _, line = line.rpartition(b"\n")
                yield from _decoded(complete)
                time.sleep(_FOLLOW_SECONDS)

    def remove(self, name: str) -> None:
        record = self.find(name)
        if record is not None:
            self.stop(record)

    def _start_supervisor(self, plan: EnvPlan, log: Path, variables: dict[str, str], mark: int) -> int:
        supervised = [sys.executable, "-P", process_supervisor.__file__, "--detach", str(log)]
        supervised += ["--record", str(registry.record_path(plan.name))]
        if plan.owner is not None:
            supervised.append(f"--owner={plan.owner}")
        command = [sys.executable, "-P", "-m", "aworld_train.serving.local"]
        try:
            started = subprocess.run(
                [*supervised, "--", *command],
                cwd=plan.directory.path,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SUPERVISOR_START_SECONDS,
                pass_fds=(mark,),
            )
            return int(started.stdout)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailure(f"{plan.name!r} could not be started: {error}.") from error
        except ValueError as error:
            reason = started.stderr.strip().rpartition("\n")[2]
            raise EnvironmentFailure(f"{plan.name!r} could not be started: {reason}.") from error


def _read_from(path: Path, start: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        return file.read()
    return b""


def _decoded(written: bytes) -> list[str]:
    return written.decode(errors="replace").splitlines()


def _socket_parent() -> str:
    """The folder for temporary files, or ``/tmp`` where the path of a socket in it would be too long."""
    default = tempfile.gettempdir()
    return default if len(default) <= _MAX_FOLDER_LENGTH else "/tmp"


def _remove(folder: Path) -> None:
    if folder.is_dir():
        empty(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _supervisor(record: Record) -> psutil.Process | None:
    return process_supervisor.ProcessIdentity(record.handle["pid"], record.handle["started"]).find()


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        descendants: list[psutil.Process] = process.children(recursive=True)
        return descendants
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _have_ended(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process_supervisor.lives(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
