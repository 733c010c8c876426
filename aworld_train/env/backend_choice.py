"""Which backend runs an environment: containers, or plain processes where these protect enough.

A tool server that executes code becomes a plain process only if the user requests it: what a model writes would run
with all rights of the user's account.
"""

from collections.abc import Mapping, Sequence

from aworld_train.env.backend import ProgressReporter, Remark
from aworld_train.env.containers import DockerBackend, engine_answers, engine_host
from aworld_train.env.process import ProcessBackend
from aworld_train.errors import EnvironmentFailure, UsageError, suggestion
from aworld_train.serving.manifest import ServerEntry

Backend = DockerBackend | ProcessBackend
"""Every call but `prepare`, which may take minutes, and following logs ends within a limited time."""
_BACKENDS: Mapping[str, type[Backend]] = {"docker": DockerBackend, "process": ProcessBackend}


def open_backend(name: str) -> Backend:
    if name not in _BACKENDS:
        names = ("auto", *_BACKENDS)
        raise UsageError(f"Unknown backend {name!r}.{suggestion(name, names)} There are {', '.join(names)}.")
    return _BACKENDS[name]()


def choose_backend(
    name: str, servers: Mapping[str, ServerEntry], report_progress: ProgressReporter
) -> Backend:
    """The backend for these tool servers; ``auto`` is docker, or process where that is enough. Reports risks."""
    executing = [server for server, entry in servers.items() if entry.executes_code]
    if name == "auto" and engine_answers():
        return open_backend("docker")
    if name == "auto" and executing:
        raise EnvironmentFailure(
            f"No Docker engine answers at {engine_host()}, and {_listed(executing)} can be made to run what a model "
            "writes: as a plain process, that code could read, change and send away whatever your account can. Start "
            "the engine, or accept this with --backend process (in a recipe: env.backend=process)."
        )
    if name == "auto":
        report_progress(
            Remark(
                f"No Docker engine answers at {engine_host()}: tools run as plain processes of your account."
            )
        )
        return open_backend("process")
    if name == "process" and executing:
        report_progress(
            Remark(
                f"Warning: as plain processes, {_listed(executing)} can be made to do whatever your account can: read "
                "its files and keys, use its network and every system call, outlive a session. Only containers protect "
                "from that."
            )
        )
    return open_backend(name)


def usable_backends() -> list[Backend]:
    """Those that can have environments on this machine: processes always, containers where an engine answers."""
    return [open_backend(name) for name in _BACKENDS if name != "docker" or engine_answers()]


def _listed(servers: Sequence[str]) -> str:
    shown = ", ".join(servers[:3])
    return f"{shown} and {len(servers) - 3} more" if len(servers) > 3 else shown
