"""Handlers of signals for a block, and coroutines in such a block: no handler raises inside of the event loop.

An exception from a handler can come between any two instructions: one that breaks the loop off between taking a
callback and running it leaves a task that waits for ever, and one inside ``with lock`` leaves the lock taken.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signal_handlers(handlers: Mapping[int, Callable[[int, FrameType | None], object]]) -> Iterator[None]:
    """Handle signals while the block runs; not outside of the main thread, which alone can set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_interruptible(main: Coroutine[Any, Any, _Result]) -> _Result:
    """As ``asyncio.run``, with signals that end the coroutine by cancelling it.

    SIGINT, SIGTERM and SIGHUP, where this process handles them itself, cancel ``main``. When it has cleaned up, the
    handler is called and may raise. A second signal ends the cleaning up. Where a loop runs in this thread, as in a
    notebook, ``main`` runs in another one.
    """
    if _has_loop():
        return _run_in_thread(main)
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    own = {number: handler for number, handler in handlers.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread() or not own:
        return asyncio.run(main)
    arrived: list[signal.Signals] = []

    async def guarded() -> _Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def receive(number: signal.Signals) -> None:
            arrived.append(number)
            if len(arrived) > 1:
                raise KeyboardInterrupt
            task.cancel()

        for number in own:
            loop.add_signal_handler(number, receive, number)
        try:
            return await main
        finally:
            for number, handler in own.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def pass_on() -> None:
        if arrived:
            own[arrived[0]](arrived[0], None)

    try:
        result = asyncio.run(guarded())
    except asyncio.CancelledError:
        pass_on()
        raise
    pass_on()
    return result


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(main: Coroutine[Any, Any, _Result]) -> _Result:
    """What is raised here meanwhile, such as an interrupt, cancels ``main``, and waits for its end."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    interrupted = threading.Event()

    async def noted() -> _Result:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        if interrupted.is_set():
            task.cancel()
        return await main

    outcome: Future[_Result] = Future()

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(noted()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        return outcome.result()
    except BaseException:
        interrupted.set()
        for loop, task in running:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)
        if thread.ident is not None:
            wait([outcome])
        raise
