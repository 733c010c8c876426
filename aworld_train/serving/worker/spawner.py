"""Starts tool servers by forking from a process that has imported their modules and does nothing else.

A Python server takes more than half a second to import its libraries; forked from this process it takes milliseconds
and shares its memory. This process has one thread and holds no data of any session; other processes of the same user
cannot read or trace it, nor servers that were given secrets.

In a container it is root, with no capabilities but those to change its user, to signal others and to set limits. Tool
servers run as a user of their own, so no tool can signal, read or replace the worker or this process, and this process
alone ends what a session started, by one signal to all processes, which no fork escapes.

It runs as a script in the interpreter of the tool servers, and so imports the standard library alone.

    python spawner.py SOCKET_FD USER [MODULE:FUNCTION ...]

``USER`` is JSON: a `ToolUser`, or ``null`` for this process's own user. An order is one datagram, JSON:

- ``{"argv": [...]}`` or ``{"function": "module:name"}`` starts a server, with ``"cwd"`` and ``"private"``, and three
  descriptors: standard input, standard output, and a file with its environment variables as a JSON object. This process
  does not read that file: secrets must not be in memory that others are forked from. The answer is ``{"pid": ...}``.
- ``{"wipe": true}`` ends everything of the session and empties its folders. The answer is ``{}``.
- ``{"kill": PID}`` ends a server with its process group, and ``{}`` orders nothing. The answer is ``{"ready": true}``,
  which is also the first datagram of all.

An answer may be ``{"error": "..."}`` instead.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import operator
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
# System calls, the same on all architectures, and rights on files and folders: from linux/landlock.h.
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1
_MAKE_BLOCK_DEVICE, _MOVE = 1 << 11, 1 << 13
_SIGNALS = 1 << 1
_SCOPES_SINCE = 6  # the version of Landlock in Linux 6.12
_CAPABILITIES = range(64)
_MAX_ORDER_BYTES = 1 << 20
# If memory runs out, the kernel ends a tool rather than this process or the worker. With CAP_SYS_RESOURCE this is also
# the least that tools may set (proc_pid_oom_score_adj(5)).
_OOM_SCORE_ADJUSTMENT = "500"
_MAX_DESCRIPTORS = 3
_MAX_PROBLEM_BYTES = 4000
_READY = {"ready": True}


@dataclass(frozen=True)
class ToolUser:
    """The user and group of tool servers; it may have fewer processes and threads than the container."""

    id: int
    max_processes: int


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    user_json = json.loads(sys.argv[2])
    user = ToolUser(**user_json) if user_json else None
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the worker
    for function in sys.argv[3:]:
        try:
            _find(function)
        except Exception:
            traceback.print_exc()  # it fails again when this server is started, and others are not affected
    if "anyio" in sys.modules:  # anyio imports its backend, which every MCP server needs, on first use
        importlib.import_module("anyio._backends._asyncio")
    if user is not None and not _has_domains():
        sys.stderr.write(
            "This kernel has no Landlock that keeps servers apart: the variables of what a server starts, keys and "
            "proxy passwords among them, can be read by the session's other servers.\n"
        )
    wipe_module = _load_wipe_module()
    gc.collect()
    gc.freeze()  # so that garbage collection in a child does not copy shared pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exit codes are not needed: the kernel reaps the children
    orders.send(json.dumps(_READY).encode())
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, _MAX_ORDER_BYTES, _MAX_DESCRIPTORS)
        if not data:
            return
        orders.send(json.dumps(_carry_out(json.loads(data), descriptors, orders, user, wipe_module)).encode())


def _carry_out(
    order: dict[str, Any],
    descriptors: list[int],
    orders: socket.socket,
    user: ToolUser | None,
    wipe_module: ModuleType,
) -> dict[str, Any]:
    if "kill" in order:
        _kill_group(order["kill"])
        return _READY
    if "wipe" in order:
        return _wipe(user, wipe_module)
    return _start(order, descriptors, orders, user) if order else _READY


def _start(
    order: dict[str, Any], descriptors: list[int], orders: socket.socket, user: ToolUser | None
) -> dict[str, Any]:
    try:
        pid = os.fork()
        if pid == 0:
            orders.close()
            _run_server(order, descriptors, user)
        return {"pid": pid}
    except OSError as error:
        return {"error": f"no new process: {error.strerror}"}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _run_server(order: dict[str, Any], descriptors: list[int], user: ToolUser | None) -> NoReturn:
    """Run the tool server in this process; an error is written to the worker's log and ends the process."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        *streams, variables = descriptors
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        with os.fdopen(variables, "rb") as file:
            environment = json.loads(file.read())
        if not order["private"]:
            _prctl(_PR_SET_DUMPABLE, 1)
        if user is not None or not order["private"]:  # the file is root's if it is not dumpable
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJUSTMENT)
        if user is not None:
            _change_user(user)
            _enter_own_domain()
            # The kernel resets both settings when the user changes.
            _prctl(_PR_SET_DUMPABLE, int(not order["private"]))
        else:
            _keep_signals_inside()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # some servers do not end when their input is closed
        os.chdir(order["cwd"])
        if "argv" in order:
            os.execvpe(order["argv"][0], order["argv"], environment)
        # The existing objects hold properties of this process's files, for example whether they are seekable.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [order["function"]]
        _find(order["function"])()
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        # A server may have closed them.
        with contextlib.suppress(ValueError, OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(os.EX_OK)  # nobody asks for it


def _change_user(user: ToolUser) -> None:
    for capability in _CAPABILITIES:
        _prctl(_PR_CAPBSET_DROP, capability)
    resource.setrlimit(resource.RLIMIT_NPROC, (user.max_processes, user.max_processes))
    os.setgroups([])
    os.setresgid(user.id, user.id, user.id)
    os.setresuid(user.id, user.id, user.id)


def _has_domains() -> bool:
    """Whether processes can be kept apart; the Landlock of Linux 5.13 to 5.18 would forbid to move files as well."""
    return _landlock_version() >= 2


def _landlock_version() -> int:
    return int(_libc().syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION))


def _enter_own_domain() -> None:
    """Put this process and all that it starts into a Landlock domain, into which no other server's processes can look:
    the kernel would show the variables of its children, keys among them, to all processes of the same user.
    """
    if _has_domains():
        _enter_domain(struct.pack("=Q", _MAKE_BLOCK_DEVICE | _MOVE))


def _keep_signals_inside() -> None:
    """Let this process and all that it starts signal and trace no other process of the user, such as other workers:
    their end would look like a fault of the environment, and be played again.
    """
    if _landlock_version() >= _SCOPES_SINCE:
        _enter_domain(struct.pack("=QQQ", _MOVE, 0, _SIGNALS))


def _enter_domain(restrictions: bytes) -> None:
    """Enter a Landlock domain in which files may be moved between folders, which is forbidden by default."""
    libc = _libc()
    domain = libc.syscall(_LANDLOCK_CREATE, restrictions, len(restrictions), 0)
    root = os.open("/", os.O_PATH)
    rule = struct.pack("=Qi", _MOVE, root)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(_LANDLOCK_ADD_RULE, domain, 1, rule, 0) or libc.syscall(_LANDLOCK_RESTRICT, domain, 0):
        raise OSError(ctypes.get_errno(), "a server cannot be kept apart from others")
    os.close(root)
    os.close(domain)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _wipe(user: ToolUser | None, wipe_module: ModuleType) -> dict[str, Any]:
    if user is None:
        return {"error": "without a user of their own, the processes of tools cannot be identified"}
    spared = frozenset({1, os.getpid()})
    try:
        wipe_module.end_all_but(spared)
        problem = _run_as(user, wipe_module.clean_container)
        wipe_module.end_all_but(spared)
    except wipe_module.NotClean as error:
        problem = str(error)
    return {"error": problem} if problem else {}


def _run_as(user: ToolUser, work: Callable[[], None]) -> str:
    """Call ``work`` as that user, in a new process; returns the reason of a failure, or an empty text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        problem = "it could not be cleaned"
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _change_user(user)
            work()
            problem = "clean"
        except Exception as error:
            problem = f"{error}"
        finally:
            os.write(writing, problem.encode()[:_MAX_PROBLEM_BYTES])
            os._exit(os.EX_OK)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        result = file.read().decode(errors="replace")
    return "" if result == "clean" else result or "what cleans it has ended"


def _load_wipe_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("aworld_wipe", Path(__file__).with_name("wipe.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _find(function: str) -> Any:
    module, _, name = function.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


def _prctl(option: int, value: int) -> None:
    _libc().prctl(option, value)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main()
