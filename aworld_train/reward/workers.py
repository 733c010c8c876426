"""Scorers in processes of their own: one that is stuck or crashes costs its own answer and nothing else.

A worker takes one answer at a time. When its time is up it is killed, and the next answer gets a new one, as after one
that died or ran out of memory. What the time limit counts is the scorer alone: starting a worker and loading a scorer
have a limit of their own, and waiting for a free worker has none. Threads hand the answers to the workers, so an event
loop that waits for a score is never held up, and any thread may ask.
"""

import atexit
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from aworld_train.reward.scored import Score

_START_SECONDS = 120.0
_DEATH_SECONDS = 5.0
_MAX_PLAIN = 4
# Those that wait for others, such as a judge of one's own, take no processor time meanwhile.
_MAX_WAITING = 16
_PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]
from aworld_train.reward.worker import main
main(int(sys.argv[1]))
"""


class ScorerTimeout(Exception):
    """The scorer did not answer within its time."""


class ScorerFailure(Exception):
    """The scorer raised, returned what is no score, or took its process with it; the message says what."""


@dataclass(frozen=True)
class Job:
    """An answer to be scored, as plain data.

    Attributes:
        reference: What every process knows the scorer by.
        answer: The answer.
        truth: The ground truth.
        context: What is known beside it; None where the scorer has two arguments.
        seconds: How long the scorer may take.
    """

    reference: str
    answer: str | None
    truth: str
    context: Mapping[str, Any] | None
    seconds: float


class ScorerPool:
    """At most so many workers, each started when an answer finds the others busy."""

    def __init__(self, most: int):
        self._most = most
        self._jobs: queue.SimpleQueue[tuple[Future[Score], Job]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0  # answers that wait or are being scored
        self._idle: list[ScorerProcess] = []

    def submit(self, job: Job) -> "Future[Score]":
        """Have an answer scored; the future raises ``ScorerTimeout`` or ``ScorerFailure`` where there is no score."""
        future: Future[Score] = Future()
        with self._lock:
            self._open += 1
            if self._threads < min(self._open, self._most):
                self._threads += 1
                threading.Thread(target=self._serve, name="scorer", daemon=True).start()
        self._jobs.put((future, job))
        return future

    def _serve(self) -> None:
        while True:
            future, job = self._jobs.get()
            settle = self._settle(future, job)
            with self._lock:
                self._open -= 1
            settle()

    def _settle(self, future: "Future[Score]", job: Job) -> Callable[[], None]:
        """Have it scored; what is returned tells whoever waits, and is called when a worker is free again."""
        if not future.set_running_or_notify_cancel():
            return lambda: None
        try:
            worker = self._take()
            try:
                score = worker.ask(job)
            finally:
                self._put_back(worker)
        except Exception as error:  # whatever it is: nobody must wait for ever
            return partial(future.set_exception, error)
        return partial(future.set_result, score)

    def _take(self) -> "ScorerProcess":
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            return ScorerProcess()
        if worker.is_alive():
            return worker
        worker.end()  # it died while nobody needed it, so no answer is to blame
        return ScorerProcess()

    def _put_back(self, worker: "ScorerProcess") -> None:
        if not worker.ended:
            with self._lock:
                self._idle.append(worker)


class ScorerProcess:
    """A worker process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), *sys.path],
                stdin=subprocess.PIPE,
                stdout=2,  # what a scorer prints is not what the program prints
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # an interrupt at the terminal is for the parent, which ends its workers
            )
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._loaded: set[str] = set()
        self.ended = False
        _alive.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: Job) -> Score:
        """Have it score an answer.

        Raises:
            TooSlow: It took too long, and the worker was ended.
            Broken: There is no score; whether there still is a worker says ``ended``.
        """
        try:
            if job.reference not in self._loaded:
                self._load(job.reference)
            self._connection.send(("score", job.reference, job.answer, job.truth, job.context))
            if not self._connection.poll(job.seconds):
                self.end()
                raise ScorerTimeout
            kind, *said = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ScorerFailure(f"the worker process that ran it {self._death()}") from error
        except (ScorerTimeout, ScorerFailure):
            raise
        except BaseException:  # nobody knows what is still on its way
            self.end()
            raise
        if kind == "score":
            return Score(*said)
        if kind == "spent":
            self.end()
        raise ScorerFailure(str(said[0]))

    def end(self) -> None:
        """Kill it, with all that it started."""
        if not self.ended:
            self.ended = True
            _alive.discard(self)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.let_go()
            self._process.wait()

    def let_go(self) -> None:
        """Close this process's ends of what leads to it."""
        self._connection.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _load(self, reference: str) -> None:
        self._connection.send(("load", reference, sys.path))
        if not self._connection.poll(_START_SECONDS):
            self.end()
            raise ScorerFailure(f"it was not loaded within {_START_SECONDS:g} seconds")
        kind, why = self._connection.recv()
        if kind != "ready":
            raise ScorerFailure(f"it cannot be loaded: {why}")
        self._loaded.add(reference)

    def _death(self) -> str:
        """What became of a worker that does not answer any more."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        code = self._process.poll()
        self.end()
        if code is None:
            return "broke the connection off"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


_alive: set[ScorerProcess] = set()
_pools: dict[bool, ScorerPool] = {}
_pools_lock = threading.Lock()


def pool(waits: bool) -> ScorerPool:
    """This process's pool for scorers that compute, or for those that wait for others."""
    with _pools_lock:
        if waits not in _pools:
            cores = len(os.sched_getaffinity(0))
            _pools[waits] = ScorerPool(_MAX_WAITING if waits else min(_MAX_PLAIN, cores))
        return _pools[waits]


def _end_all() -> None:
    for worker in list(_alive):
        worker.end()


def _forget() -> None:
    """A fork has none of the threads, and must not keep the parent's workers alive."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    for worker in list(_alive):
        worker.let_go()
    _alive.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget)
