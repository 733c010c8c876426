"""Scorers in worker processes: one that hangs or crashes costs its own answer and nothing else.

A worker takes one answer at a time, and is killed when its time is up, which counts the scorer alone. Any thread may
submit, and no event loop is blocked. An answer that has used up a scorer's processor time is not scored again: a policy
that has found such an answer gives it many times.

pebble 5.2.3 was measured and not taken, as it does not kill the children of a worker, nor a busy worker when the parent
is killed; loky 3.7.0 has no time limit for a task. Neither is faster: 0.13 to 0.17 ms for a task, here 0.17 ms.
"""

import atexit
import contextlib
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import psutil

from aworld_train.reward.score_types import Score, TooHard
from aworld_train.reward.scorers import ScorerKind

_QUEUE_SECONDS = 1800.0
_START_SECONDS = 120.0
_DEATH_SECONDS = 5.0
_POLL_SECONDS = 0.05
_MAX_STRETCH = 4
_MAX_REMEMBERED = 1000  # answers that took too long
_OF_PROCESSOR_TIME = " of processor time"
_MAX_COMPUTING = 4
# Scorers that wait for a server, such as a user-defined judge, use no processor time meanwhile.
_MAX_WAITING = 16
_PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]
from aworld_train.reward.worker import main
main(int(sys.argv[1]))
"""


class ScorerTimeout(Exception):
    """The scorer did not answer in time, of which ``kind`` names a part; if ``computing``, it used at least half."""

    def __init__(self, seconds: float, kind: str = "", computing: bool = False):
        super().__init__(f"took longer than {seconds:g} seconds{kind}")
        self.kind = kind
        self.computing = computing


class ScorerFailure(Exception):
    """The scorer raised, returned something that is not a score, or ended its process; the message says which."""


class NoFreeWorker(Exception):
    """The answer waited too long for a worker process, so the scorer was not called."""


@dataclass(frozen=True)
class Job:
    """An answer to be scored, as plain data; ``context`` is None where the scorer has two arguments."""

    kind: ScorerKind
    reference: str
    answer: str | None
    ground_truth: str
    context: Mapping[str, Any] | None
    seconds: float
    processor_seconds: float = math.inf


class ScorerPool:
    def __init__(self, max_workers: int):
        self._max_workers = max_workers
        self._jobs: queue.SimpleQueue[tuple[Future[Score], Job, float]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0  # answers that wait or are being scored
        self._idle: list[ScorerProcess] = []
        self._too_slow: dict[Job, ScorerTimeout] = {}

    def submit(self, job: Job) -> "Future[Score]":
        """The future raises TooHard, ScorerTimeout, ScorerFailure or NoFreeWorker."""
        future: Future[Score] = Future()
        with self._lock:
            self._open += 1
            if self._threads < min(self._open, self._max_workers):
                self._threads += 1
                threading.Thread(target=self._serve, name="scorer", daemon=True).start()
        self._jobs.put((future, job, time.monotonic()))
        return future

    def _serve(self) -> None:
        while True:
            future, job, submitted = self._jobs.get()
            settle = self._score(future, job, submitted)
            with self._lock:
                self._open -= 1
            settle()

    def _score(self, future: "Future[Score]", job: Job, submitted: float) -> Callable[[], None]:
        """Score an answer; returns what settles the future, to be called once the worker is counted as free."""
        if not future.set_running_or_notify_cancel():
            return lambda: None
        if time.monotonic() - submitted > _QUEUE_SECONDS:
            cause = f"it waited more than {_QUEUE_SECONDS:g} seconds for one of {self._max_workers} worker processes"
            return partial(future.set_exception, NoFreeWorker(cause))
        try:
            self._check_not_too_slow(job)
            worker = self._take()
            try:
                score = worker.score(job)
            except ScorerTimeout as error:
                self._remember(job, error)
                raise
            finally:
                self._put_back(worker)
        except Exception as error:  # a future that is never settled would block its caller for ever
            return partial(future.set_exception, error)
        return partial(future.set_result, score)

    def _check_not_too_slow(self, job: Job) -> None:
        if job.context is None and (error := self._too_slow.get(job)):
            raise ScorerTimeout(job.processor_seconds, _OF_PROCESSOR_TIME, computing=True) from error

    def _remember(self, job: Job, error: ScorerTimeout) -> None:
        """Remember an answer that used up its processor time; other limits depend on what else the machine does."""
        if job.context is None and error.kind == _OF_PROCESSOR_TIME:
            with self._lock:
                self._too_slow[job] = error
                if len(self._too_slow) > _MAX_REMEMBERED:
                    del self._too_slow[next(iter(self._too_slow))]

    def _take(self) -> "ScorerProcess":
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            return ScorerProcess()
        if worker.is_alive():
            return worker
        worker.end()  # it died while idle, so no answer is to blame
        return ScorerProcess()

    def _put_back(self, worker: "ScorerProcess") -> None:
        if not worker.ended:
            with self._lock:
                self._idle.append(worker)


class ScorerProcess:
    def __init__(self) -> None:
        parent_end, worker_end = socket.socketpair()
        with worker_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(worker_end.fileno()), *sys.path],
                stdin=subprocess.PIPE,
                stdout=2,  # what a scorer prints must not mix with the program's output
                pass_fds=(worker_end.fileno(),),
                start_new_session=True,  # an interrupt at the terminal is for the parent, which ends its workers
            )
        self._connection: Connection[Any, Any] = Connection(parent_end.detach())
        self._loaded: set[tuple[ScorerKind, str]] = set()
        self.ended = False
        _alive.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def score(self, job: Job) -> Score:
        """Score an answer in the process; raises as `ScorerPool.submit`, and may have ended then."""
        try:
            if (job.kind, job.reference) not in self._loaded:
                self._load(job.kind, job.reference)
            used_before = _processor_seconds(psutil.Process(self.pid))
            self._connection.send(
                ("score", job.kind, job.reference, job.answer, job.ground_truth, job.context)
            )
            self._wait(job, used_before)
            outcome, *values = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ScorerFailure(f"the worker process that ran it {self._death()}") from error
        except (ScorerTimeout, ScorerFailure):
            raise
        except BaseException:  # a late reply to this job could be taken for the next one's
            self.end()
            raise
        if outcome == "score":
            return Score(*values)
        if outcome == "too_hard":
            raise TooHard(str(values[0]))
        if outcome == "spent":
            self.end()
        raise ScorerFailure(str(values[0]))

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            _alive.discard(self)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.close()
            self._process.wait()

    def close(self) -> None:
        self._connection.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _load(self, kind: ScorerKind, reference: str) -> None:
        self._connection.send(("load", kind, reference, sys.path))
        if not self._connection.poll(_START_SECONDS):
            self.end()
            raise ScorerFailure(f"it was not loaded within {_START_SECONDS:g} seconds")
        outcome, cause = self._connection.recv()
        if outcome != "ready":
            raise ScorerFailure(f"it cannot be loaded: {cause}")
        self._loaded.add((kind, reference))

    def _wait(self, job: Job, used_before: float) -> None:
        """Wait for the reply; a scorer that is computing gets up to four times its time to have computed for half of
        it, since other programs may have the processors.
        """
        began = time.monotonic()
        remaining = min(job.seconds, job.processor_seconds)
        while not self._connection.poll(max(_POLL_SECONDS, remaining)):
            processes = [process := psutil.Process(self.pid), *process.children(recursive=True)]
            used = sum(map(_processor_seconds, processes)) - used_before
            elapsed = time.monotonic() - began
            if used >= job.processor_seconds:
                self.end()
                raise ScorerTimeout(job.processor_seconds, _OF_PROCESSOR_TIME, computing=True)
            computing = used >= job.seconds / 2
            longest = job.seconds * (_MAX_STRETCH if any(map(_is_running, processes)) else 1)
            if elapsed >= (job.seconds if computing else longest):
                self.end()
                raise ScorerTimeout(job.seconds, computing=computing)
            remaining = min(job.seconds - elapsed, job.processor_seconds - used)

    def _death(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_SECONDS)
        code = self._process.poll()
        self.end()
        if code is None:
            return "broke the connection off"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _processor_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_RUNNING)
    except psutil.Error:
        return False


_alive: set[ScorerProcess] = set()
_pools: dict[bool, ScorerPool] = {}
_pools_lock = threading.Lock()


def pool(waits: bool) -> ScorerPool:
    """This process's pool for scorers that compute, or for those that wait for a server."""
    with _pools_lock:
        if waits not in _pools:
            cores = len(os.sched_getaffinity(0))
            _pools[waits] = ScorerPool(_MAX_WAITING if waits else min(_MAX_COMPUTING, cores))
        return _pools[waits]


def _end_all() -> None:
    for worker in list(_alive):
        worker.end()


def _forget_in_fork() -> None:
    """A fork has none of the parent's threads, and open ends in it would keep the parent's workers alive."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    for worker in list(_alive):
        worker.close()
    _alive.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_in_fork)
