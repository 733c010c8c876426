"""Starts tool servers by forking: a process that has imported what they share, and does nothing else.

A Python server takes a good half second to import its libraries; forked from here it takes milliseconds, and its memory
is shared. This process has one thread, gets every order over a socket, and holds nothing of any session. It, and
servers that were given keys, cannot be read or traced by others of the same user.

Run as a script, with the standard library alone: it is the interpreter and the packages of the tool servers.

    python spawner.py SOCKET_FD [MODULE:FUNCTION ...]

An order is one datagram, JSON, with the descriptors for standard input and output beside it:
``{"argv": [...]}`` or ``{"function": "module:name"}``, and ``"env"``, ``"cwd"``, ``"private"``. The answer is
``{"pid": ...}`` or ``{"error": "..."}``. The first datagram of all says ``{"ready": true}``, and so does the answer to
``{}``, which orders nothing.
"""

import ctypes
import gc
import importlib
import json
import operator
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_PR_SET_DUMPABLE = 4
_ORDER_BYTES = 1 << 20
_LIKELY_VICTIM = "500"  # of the kernel, should memory run out: rather a tool than what starts it


def main() -> None:
    """Take orders until the other end of the socket is closed."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the worker to hear
    for function in sys.argv[2:]:
        try:
            _find(function)
        except Exception:
            traceback.print_exc()  # it fails again, and alone, when it is to be started
    if "anyio" in sys.modules:  # of which the half that every MCP server needs is imported when it first runs
        importlib.import_module("anyio._backends._asyncio")
    gc.collect()
    gc.freeze()  # so that a collection in a child touches, and thereby copies, none of what is shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended: the kernel buries them
    orders.send(b'{"ready": true}')
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 2)
        if not data:
            return
        orders.send(json.dumps(_start(json.loads(data), descriptors, orders)).encode())


def _start(order: dict[str, Any], descriptors: list[int], orders: socket.socket) -> dict[str, Any]:
    if not order:
        return {"ready": True}
    try:
        pid = os.fork()
    except OSError as error:
        return {"error": f"no new process: {error.strerror}"}
    if pid == 0:
        orders.close()
        _become(order, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return {"pid": pid}


def _become(order: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the tool server; whatever goes wrong is in the worker's log and ends the process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # not every server ends with its input
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(order["cwd"])
        if not order["private"]:
            _prctl(_PR_SET_DUMPABLE, 1)
            Path("/proc/self/oom_score_adj").write_text(_LIKELY_VICTIM)
        if "argv" in order:
            os.execvpe(order["argv"][0], order["argv"], order["env"])
        # The objects of this process know things of its own files, that these can be sought in for one.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(order["env"])
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


def _find(function: str) -> Any:
    """What ``module:name`` means, the module imported."""
    module, _, name = function.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
