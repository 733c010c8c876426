"""A signal cancels what runs in the event loop, and raises only when that has cleaned up."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from aworld_train.interruptible import run_interruptible


class Ended(BaseException):
    pass


@contextmanager
def raising(*numbers: signal.Signals) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_what_its_handler_raises_after_the_end(number: signal.Signals) -> None:
    steps: list[str] = []

    async def main() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    with raising(number):
        handler = signal.getsignal(number)
        with pytest.raises(Ended) as raised:
            run_interruptible(main())
        assert raised.value.args == (number,) and steps == ["cleaned up"]
        assert signal.getsignal(number) is handler


def test_it_breaks_nothing_off_between_two_waits() -> None:
    """Where a lock is taken, for instance, or a callback taken from the loop's list and not called yet."""
    steps: list[str] = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("next statement")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    with raising(signal.SIGINT), pytest.raises(Ended):
        run_interruptible(main())
    assert steps == ["next statement", "cancelled"]


def test_a_signal_that_came_while_it_ended_is_not_lost() -> None:
    async def main() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    with raising(signal.SIGINT), pytest.raises(Ended):
        run_interruptible(main())


def test_a_second_signal_ends_the_cleaning_up() -> None:
    async def main() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    with raising(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        run_interruptible(main())


def test_without_a_signal_it_returns_and_raises_what_the_coroutine_does() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise ValueError("no")

    async def cancelled() -> int:
        raise asyncio.CancelledError

    with raising(signal.SIGINT):
        assert run_interruptible(answer()) == 42
        with pytest.raises(ValueError, match="no"):
            run_interruptible(fail())
        with pytest.raises(asyncio.CancelledError):
            run_interruptible(cancelled())


def test_a_signal_that_is_ignored_or_left_to_the_system_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def main() -> str:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)
        return "completed"

    try:
        with raising(signal.SIGINT):
            assert run_interruptible(main()) == "completed"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_it_runs_without_handlers() -> None:
    found: list[int] = []

    async def main() -> None:
        found.append(threading.get_ident())

    thread = threading.Thread(target=lambda: run_interruptible(main()))
    thread.start()
    thread.join(30)
    assert found == [thread.ident]


def test_where_a_loop_runs_in_this_thread_as_in_a_notebook_another_thread_is_taken() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def kernel() -> int:
        return run_interruptible(answer())

    assert asyncio.run(kernel()) == 7


def test_an_interrupt_in_a_notebook_cancels_and_waits_for_the_end() -> None:
    steps: list[str] = []

    async def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    async def kernel() -> None:
        run_interruptible(main())

    with raising(signal.SIGTERM), pytest.raises(Ended):
        asyncio.run(kernel())
    assert steps == ["cleaned up"]
