"""Lets a command that is ended by a signal clean up behind itself."""

import signal
from contextlib import AbstractContextManager
from types import FrameType


class Terminated(BaseException):
    """SIGTERM has arrived; not an `Exception`, so that only cleaning up comes before the end of the command."""


def raised_from_signals() -> AbstractContextManager[None]:
    """While the block runs, SIGTERM raises `Terminated`, once, and SIGINT `KeyboardInterrupt`.

    A shell starts background jobs with SIGINT ignored; without a handler ``kill -INT`` would have no effect on them.
    """
    from aworld_train.interruptible import signal_handlers

    def terminate(number: int, frame: FrameType | None) -> None:
        # A second one must not disturb the cleaning up after the first.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    return signal_handlers({signal.SIGTERM: terminate, signal.SIGINT: signal.default_int_handler})
