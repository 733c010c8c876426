"""Stands in for the Python interpreter of a run: asks its fork server for a process, and ends as that process does.

    python -I -S fork_client.py ARGUMENT ...

The arguments are the interpreter's. If no fork server answers, or it refuses, the interpreter itself is started.
Imports as little as can be, because a run starts a dozen of these.
"""

import marshal
import os
import signal
import socket
import sys

ADDRESS_VARIABLE = "AWORLD_TRAIN_FORK_SERVER"
KEY_VARIABLE = "AWORLD_TRAIN_QUEUE_KEY"
STAND_IN = (sys.executable, "-I", "-S", __file__)
STARTED = b"\x01"
STATUS_BYTES = 4


def main() -> None:
    arguments = sys.argv[1:]
    status = _forked(arguments)
    if status is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    end_as(status)


def end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _forked(arguments: list[str]) -> int | None:
    try:
        with open(os.environ[KEY_VARIABLE], "rb") as file:  # noqa: PTH123
            key = file.read()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(os.environ[ADDRESS_VARIABLE])
        request = marshal.dumps((arguments, os.getcwdb(), dict(os.environb)))  # noqa: PTH109
        head = key + len(request).to_bytes(4, "big")
        socket.send_fds(connection, [head], [0, 1, 2])
        connection.sendall(request)
        if connection.recv(len(STARTED)) != STARTED:
            return None
    except (KeyError, OSError):
        return None
    status = connection.recv(STATUS_BYTES)
    # A server that was killed sends none.
    return int.from_bytes(status, "big") if status else signal.SIGKILL


if __name__ == "__main__":
    main()
