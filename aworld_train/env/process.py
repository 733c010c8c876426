"""The process backend: gateway and workers run as processes of this machine, under a guard.

They get the usual variables of the caller's environment, not all of them: an agent's tools have no business with the
keys of the person who trains it. Secrets travel in variables, never in a command line, which every user of the machine
can read. Sessions are kept apart by folders and are cleaned up after, but a tool can do what this user can do.
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

from aworld_train import process_supervisor
from aworld_train.env import address, attachments, registry
from aworld_train.env.backend import EnvPlan, ProgressReporter
from aworld_train.env.interpreter import find_interpreter
from aworld_train.env.record import Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.serving.worker.wipe import empty

_PASSED = {
    *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TZ", "USER"),
    *("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
    *("REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
}
"""Variables of the caller's environment that every server gets, beside ``LC_*``."""
_GUARD_START = 30.0
"""Seconds for the guard to start; it takes a fraction of one, unless the machine is very busy."""
_STOP = 2 * process_supervisor.GRACE + 2.0
"""Seconds for the guard to end its descendants by either signal."""
_FOLLOW_SECONDS = 0.3
_DEEP = 50  # of the 107 characters that the path of a socket may have


class ProcessBackend:
    """Runs environments as detached processes of this machine."""

    name = "process"

    def records(self) -> list[Record]:
        """See `Backend.records`."""
        return [record for record in map(registry.read, registry.names()) if record is not None]

    def find(self, name: str) -> Record | None:
        """See `Backend.find`."""
        return registry.read(name)

    def prepare(self, plan: EnvPlan, report_progress: ProgressReporter) -> str:
        """Find an interpreter that has what the directory's requirements name, or make one; see `Backend.prepare`."""
        if plan.desktop:
            raise UsageError("--vnc needs the docker backend: a desktop of this machine is not the agent's.")
        if plan.runtime:
            raise UsageError("--runtime needs the docker backend: there are no containers to run in it.")
        return find_interpreter(plan.directory, report_progress)

    def start(self, plan: EnvPlan) -> Record:
        """Start everything under a guard; see `Backend.start`."""
        log = registry.log_path(plan.name)
        log.unlink(missing_ok=True)
        registry.old_log_path(plan.name).unlink(missing_ok=True)
        python = plan.prepared
        folder = tempfile.mkdtemp(prefix="aworld-env-", dir=_short_folder())
        manifest = Path(folder, "manifest.json")
        manifest.write_text(json.dumps(asdict(plan.directory.manifest)), encoding="utf-8")
        settings = {
            "name": plan.name,
            "host": plan.host,
            "port": plan.port,
            "limits": dict(plan.limits),
            "workers": plan.all_workers,
            "scoring": plan.scoring_workers,
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
                name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")
            },
            **plan.keys,
            **({attachments.VARIABLE: str(plan.data)} if plan.data is not None else {}),
            "AWORLD_LOCAL": json.dumps(settings),
            "AWORLD_SECRET": plan.credentials.secret,
        }
        try:
            pid = self._start_guard(plan, log, variables)
        except EnvironmentFailure:
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
            handle={"pid": pid, "started": psutil.Process(pid).create_time(), "folder": folder},
            data=str(plan.data or ""),
        )
        # Written before it is known to work: whoever kills this process leaves something that can be found.
        registry.write(record)
        return record

    def mark_ready(self, record: Record) -> None:
        """See `Backend.mark_ready`."""
        registry.write(replace(record, ready=True))

    def stop(self, record: Record) -> None:
        """End the guard, which ends everything below it; see `Backend.stop`."""
        top = _find(record)
        if top is not None:
            everything = [top, *_children(top)]
            _signal(top, signal.SIGTERM)
            if not _ended(everything, _STOP):
                for process in {*everything, *_children(top)}:
                    _signal(process, signal.SIGKILL)
                if not _ended(everything, process_supervisor.GRACE):
                    pids = ", ".join(
                        str(process.pid) for process in everything if process_supervisor.lives(process)
                    )
                    raise EnvironmentFailure(f"Process {pids} did not end, not even by SIGKILL.")
        _remove(Path(record.handle["folder"]))
        registry.remove(record.name)
        registry.old_log_path(record.name).unlink(missing_ok=True)

    def runs(self, record: Record) -> bool:
        """Whether the guard lives; it ends with what it guards."""
        return _find(record) is not None

    def logs(self, record: Record, lines: int, follow: bool) -> Iterator[str]:
        """See `Backend.logs`."""
        old = registry.old_log_path(record.name)
        with registry.log_path(record.name).open("rb") as file:
            yield from _decoded(_read_from(old, 0) + file.read())[-lines:]
            line, running = b"", True
            while follow and running:
                # Looked at first: what it wrote before it ended is read once more after it has.
                running = self.runs(record)
                if os.fstat(file.fileno()).st_size < file.tell():  # it was put aside and begun anew
                    line += _read_from(old, file.tell())
                    file.seek(0)
                line += file.read()
                complete, _, line = line.rpartition(b"\n")
                yield from _decoded(complete)
                time.sleep(_FOLLOW_SECONDS)

    def leftovers(self) -> list[str]:
        """None: a process environment is written down as soon as it has a process."""
        return []

    def remove(self, name: str) -> None:
        """See `Backend.remove`."""
        record = self.find(name)
        if record is not None:
            self.stop(record)

    def _start_guard(self, plan: EnvPlan, log: Path, variables: dict[str, str]) -> int:
        guarded = [sys.executable, "-P", process_supervisor.__file__, "--detach", str(log)]
        guarded += ["--record", str(registry.record_path(plan.name))]
        if plan.owner is not None:
            guarded += ["--owner-pid", str(plan.owner.pid), "--owner-started", repr(plan.owner.started)]
        command = [sys.executable, "-P", "-m", "aworld_train.serving.local"]
        try:
            answer = subprocess.run(
                [*guarded, "--", *command],
                cwd=plan.directory.path,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_GUARD_START,
            )
            return int(answer.stdout)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailure(f"{plan.name!r} could not be started: {error}.") from error
        except ValueError as error:
            reason = answer.stderr.strip().rpartition("\n")[2]
            raise EnvironmentFailure(f"{plan.name!r} could not be started: {reason}.") from error


def _read_from(path: Path, start: int) -> bytes:
    """What a file has from there on; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        return file.read()
    return b""


def _decoded(written: bytes) -> list[str]:
    return written.decode(errors="replace").splitlines()


def _short_folder() -> str:
    """Where temporary files go, unless that is so deep that the path of a socket in it would be too long."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _DEEP else "/tmp"


def _remove(folder: Path) -> None:
    if folder.is_dir():
        empty(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _find(record: Record) -> psutil.Process | None:
    return process_supervisor.find_process(int(record.handle["pid"]), float(record.handle["started"]))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
        return found
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _ended(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process_supervisor.lives(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
