"""Starts tool servers by forking: a process that has imported what they share, and does nothing else.

A Python server takes a good half second to import its libraries; forked from here it takes milliseconds, and its memory
is shared. This process has one thread, gets every order over a socket, and holds nothing of any session. It, and
servers that were given secrets, cannot be read or traced by others of the same user.

In a container it is root, with the capabilities to change its user and to signal others and with nothing else, and tool
servers run as a user of their own. So no tool can signal, read or replace the worker or this process, and this process
alone ends what a session started: one signal to everything, that no fork escapes.

Run as a script, with the standard library alone: it is the interpreter and the packages of the tool servers.

    python spawner.py SOCKET_FD USER [MODULE:FUNCTION ...]

``USER`` is JSON: ``{"id": ..., "max_processes": ...}``, or ``null`` for this process's own user. An order is one
datagram, JSON:

- ``{"argv": [...]}`` or ``{"function": "module:name"}`` starts a server, with ``"cwd"`` and ``"private"``. Beside it
  are three descriptors: for standard input and output, and a file with its environment variables as a JSON object. This
  process does not read that file: what one server may know must not be in the memory that others are forked from. The
  answer is ``{"pid": ...}`` or ``{"error": "..."}``.
- ``{"wipe": true}`` ends everything of the session and empties its folders. The answer is ``{}``, or
  ``{"error": "..."}``.
- ``{"kill": PID}`` ends a server with its process group, and ``{}`` orders nothing. The answer is ``{"ready": true}``,
  which is also the first datagram of all.
"""

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
_LAST_CAPABILITY = 63
_ORDER_BYTES = 1 << 20
_LIKELY_VICTIM = "500"  # of the kernel, should memory run out: rather a tool than what starts it
_DESCRIPTORS = 3
_READY = {"ready": True}


@dataclass(frozen=True)
class ToolUser:
    """Whom tool servers run as.

    Attributes:
        id: Of the user and the group.
        max_processes: How many processes and threads this user may have; fewer than the container may.
    """

    id: int
    max_processes: int


def main() -> None:
    """Take orders until the other end of the socket is closed."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    described = json.loads(sys.argv[2])
    user = ToolUser(**described) if described else None
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the worker to hear
    for function in sys.argv[3:]:
        try:
            _find(function)
        except Exception:
            traceback.print_exc()  # it fails again, and alone, when it is to be started
    if "anyio" in sys.modules:  # of which the half that every MCP server needs is imported when it first runs
        importlib.import_module("anyio._backends._asyncio")
    wiping = _load_wiping()
    gc.collect()
    gc.freeze()  # so that a collection in a child touches, and thereby copies, none of what is shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended: the kernel buries them
    orders.send(json.dumps(_READY).encode())
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, _DESCRIPTORS)
        if not data:
            return
        orders.send(json.dumps(_carry_out(json.loads(data), descriptors, orders, user, wiping)).encode())


def _carry_out(
    order: dict[str, Any],
    descriptors: list[int],
    orders: socket.socket,
    user: ToolUser | None,
    wiping: ModuleType,
) -> dict[str, Any]:
    if "kill" in order:
        _kill_group(order["kill"])
        return _READY
    if "wipe" in order:
        return _wipe(user, wiping)
    return _start(order, descriptors, orders, user) if order else _READY


def _start(
    order: dict[str, Any], descriptors: list[int], orders: socket.socket, user: ToolUser | None
) -> dict[str, Any]:
    try:
        pid = os.fork()
    except OSError as error:
        return {"error": f"no new process: {error.strerror}"}
    if pid == 0:
        orders.close()
        _become(order, descriptors, user)
    for descriptor in descriptors:
        os.close(descriptor)
    return {"pid": pid}


def _become(order: dict[str, Any], descriptors: list[int], user: ToolUser | None) -> NoReturn:
    """Be the tool server; whatever goes wrong is in the worker's log and ends the process."""
    code = 1
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
            Path("/proc/self/oom_score_adj").write_text(_LIKELY_VICTIM)
        if user is not None:
            _change_user(user)
            # A change of the user has closed this process again, and forgotten whom it dies with.
            _prctl(_PR_SET_DUMPABLE, int(not order["private"]))
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not every server ends with its input
        os.chdir(order["cwd"])
        if "argv" in order:
            os.execvpe(order["argv"][0], order["argv"], environment)
        # The objects of this process know things of its own files, that these can be sought in for one.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [order["function"]]
        _find(order["function"])()
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _change_user(user: ToolUser) -> None:
    """Be that user from now on, with no capability and no way back to one."""
    for capability in range(_LAST_CAPABILITY + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    resource.setrlimit(resource.RLIMIT_NPROC, (user.max_processes, user.max_processes))
    os.setgroups([])
    os.setresgid(user.id, user.id, user.id)
    os.setresuid(user.id, user.id, user.id)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _wipe(user: ToolUser | None, wiping: ModuleType) -> dict[str, Any]:
    """Everything of the session gone: its processes by a signal, its files by a process of its own user."""
    if user is None:
        return {"error": "without a user of their own, tools are not told apart from others"}
    spared = frozenset({1, os.getpid()})
    try:
        wiping.end_all_but(spared)
        problem = _result_as(user, wiping.clean_container)
        wiping.end_all_but(spared)
    except wiping.NotClean as error:
        problem = str(error)
    return {"error": problem} if problem else {}


def _result_as(user: ToolUser, work: Callable[[], None]) -> str:
    """Do it as that user, in a process of its own; why it failed, or nothing."""
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
            os.write(writing, problem.encode()[:4000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        result = file.read().decode(errors="replace")
    return "" if result == "clean" else result or "what cleans it has ended"


def _load_wiping() -> ModuleType:
    """``wipe.py`` beside this file, which is in no package here."""
    spec = importlib.util.spec_from_file_location("aworld_wipe", Path(__file__).with_name("wipe.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _find(function: str) -> Any:
    """What ``module:name`` means, the module imported."""
    module, _, name = function.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
