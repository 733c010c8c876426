"""A scorer that is stuck, crashes or eats memory costs its own answer, and nothing of it stays behind."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from aworld_train.reward import workers
from aworld_train.reward.scorers import ScorerKind
from aworld_train.reward.workers import (
    Job,
    NoFreeWorker,
    ScorerFailure,
    ScorerPool,
    ScorerProcess,
    ScorerTimeout,
)
from tests.environments import eventually

OWN = """
import asyncio, ctypes, os, re, subprocess, time

def same(answer, truth): return answer == truth
def process(answer, truth): return os.getpid()
def sleeps(answer, truth): time.sleep(1000)
def holds_the_lock(answer, truth): return bool(re.match(r"(a+)+$", "a" * 99 + "b"))
def leaves(answer, truth): os._exit(3)
def crashes(answer, truth): ctypes.string_at(0)
def eats(answer, truth): return len(bytearray(5 * 2**30))
def raises(answer, truth): return 1 / 0
def ends(answer, truth): raise SystemExit(0)
def computes_for_ever(answer, truth):
    with open(__file__ + ".calls", "a") as calls:
        calls.write(answer + "\\n")
    while answer != "quick":
        pass
    return 1
def prints(answer, truth):
    print("said by a scorer")
    return 1
def has_a_child(answer, truth):
    subprocess.Popen(["sleep", "1234"])
    time.sleep(1000)
async def waits(answer, truth, context):
    await asyncio.sleep(0.01)
    return {"score": 0.5, "length": len(context.text)}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Job]:
    """Makes a job for one of these functions."""
    path = tmp_path_factory.mktemp("own") / "scorers_of_a_test.py"
    path.write_text(OWN)

    def job(name: str, answer: str = "1", seconds: float = 30.0) -> Job:
        return Job(ScorerKind.scorer, f"{path}:{name}", answer, "1", None, seconds)

    return job


@pytest.fixture(scope="module")
def pool() -> Iterator[ScorerPool]:
    yield ScorerPool(2)
    workers._end_all()


def test_a_score_comes_back(pool: ScorerPool, own: Callable[..., Job]) -> None:
    assert pool.submit(own("same")).result().value == 1.0
    assert pool.submit(own("same", "2")).result().value == 0.0


@pytest.mark.parametrize("name", ["sleeps", "holds_the_lock"])
def test_a_scorer_that_hangs_is_killed_in_time(pool: ScorerPool, own: Callable[..., Job], name: str) -> None:
    before = pool.submit(own("process")).result().value
    with pytest.raises(ScorerTimeout):
        pool.submit(own(name, seconds=0.2)).result(timeout=60)
    assert pool.submit(own("process")).result().value != before


def test_an_answer_that_used_up_its_processor_time_is_not_scored_again(
    pool: ScorerPool, own: Callable[..., Job]
) -> None:
    bomb = replace(own("computes_for_ever", "bomb"), processor_seconds=0.2)
    messages = set()
    for job in (bomb, replace(bomb), bomb):
        with pytest.raises(ScorerTimeout) as caught:
            pool.submit(job).result(timeout=60)
        assert caught.value.computing
        messages.add(str(caught.value))
    assert messages == {"took longer than 0.2 seconds of processor time"}
    assert pool.submit(replace(bomb, answer="quick")).result(timeout=60).value == 1.0
    calls = Path(bomb.reference.partition(":")[0] + ".calls")
    assert calls.read_text().splitlines() == ["bomb", "quick"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("leaves", "exit code 3"),
        ("crashes", "SIGSEGV"),
        ("eats", "MemoryError.*4096 MB"),
        ("raises", r"ZeroDivisionError: .* \(scorers_of_a_test.py, line 11\)"),
        ("ends", "SystemExit"),
        ("nowhere", "cannot be loaded: .* names 'nowhere'"),
    ],
)
def test_a_failing_scorer_gives_the_cause_and_the_next_answer_is_scored(
    pool: ScorerPool, own: Callable[..., Job], name: str, cause: str
) -> None:
    with pytest.raises(ScorerFailure, match=cause):
        pool.submit(own(name)).result(timeout=60)
    assert pool.submit(own("same")).result().value == 1.0


def test_time_that_a_scorer_computes_is_told_from_time_that_it_waits(
    pool: ScorerPool, own: Callable[..., Job]
) -> None:
    with pytest.raises(ScorerTimeout) as waited:
        pool.submit(own("sleeps", seconds=0.5)).result(timeout=60)
    assert not waited.value.computing
    with pytest.raises(ScorerTimeout, match=r"0\.3 seconds of processor time") as computed:
        pool.submit(replace(own("holds_the_lock"), processor_seconds=0.3)).result(timeout=60)
    assert computed.value.computing


def test_an_answer_that_found_no_free_worker_in_time_is_not_scored(
    own: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_QUEUE_SECONDS", 0.1)
    pool = ScorerPool(1)
    first, second = pool.submit(own("sleeps", seconds=0.5)), pool.submit(own("same"))
    with pytest.raises(NoFreeWorker, match=r"0\.1 seconds for one of 1 worker processes"):
        second.result(timeout=60)
    with pytest.raises(ScorerTimeout):
        first.result(timeout=60)


def test_answers_are_scored_while_another_scorer_hangs(pool: ScorerPool, own: Callable[..., Job]) -> None:
    stuck = pool.submit(own("sleeps", seconds=3))
    others = [pool.submit(own("same", str(number % 2))) for number in range(200)]
    assert sum(other.result().value or 0 for other in others) == 100
    with pytest.raises(ScorerTimeout):
        stuck.result()


def test_a_late_reply_is_no_score_of_the_next_answer(
    own: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise psutil.AccessDenied

    pool = ScorerPool(1)
    assert pool.submit(own("same")).result().value == 1.0
    with monkeypatch.context() as patched:
        patched.setattr(ScorerProcess, "_wait", fail)
        with pytest.raises(psutil.AccessDenied):
            pool.submit(own("same")).result(timeout=60)
    assert pool.submit(own("same", "2")).result().value == 0.0


def test_a_late_report_of_a_loaded_scorer_is_no_score_of_the_next_answer(
    own: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\ndef own(answer, truth): return 1\n")
    pool = ScorerPool(1)
    assert pool.submit(own("same")).result().value == 1.0
    with monkeypatch.context() as patched:
        patched.setattr(workers, "_START_SECONDS", 0.01)
        with pytest.raises(ScorerFailure, match=r"not loaded within 0\.01 seconds"):
            pool.submit(Job(ScorerKind.scorer, f"{tmp_path}/slow.py:own", "", "", None, 30.0)).result(60)
    assert pool.submit(own("same", "2")).result().value == 0.0


def test_a_worker_that_ran_out_of_memory_is_not_used_again(own: Callable[..., Job]) -> None:
    pool = ScorerPool(1)
    before = pool.submit(own("process")).result().value
    with pytest.raises(ScorerFailure):
        pool.submit(own("raises")).result(timeout=60)
    assert pool.submit(own("process")).result().value == before
    with pytest.raises(ScorerFailure, match="MemoryError"):
        pool.submit(own("eats")).result(timeout=60)
    assert pool.submit(own("process")).result().value != before


def test_loading_a_scorer_is_outside_its_time_limit(pool: ScorerPool, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\ndef own(answer, truth): return 1\n")
    job = Job(ScorerKind.scorer, f"{tmp_path}/slow.py:own", "", "", None, 0.5)
    assert pool.submit(job).result().value == 1.0


def test_what_a_scorer_prints_is_not_output(
    pool: ScorerPool, own: Callable[..., Job], capfd: pytest.CaptureFixture[str]
) -> None:
    # Workers write where standard error was when they began.
    fresh = ScorerPool(1)
    assert fresh.submit(own("prints")).result().value == 1.0
    assert capfd.readouterr().out == ""


def test_a_worker_that_died_while_idle_costs_no_answer(own: Callable[..., Job]) -> None:
    pool = ScorerPool(1)
    process = psutil.Process(int(pool.submit(own("process")).result().value or 0))
    process.kill()
    assert eventually(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert pool.submit(own("same")).result().value == 1.0
    assert not process.is_running()


def test_there_are_as_many_workers_as_are_needed_and_no_more(own: Callable[..., Job]) -> None:
    pool = ScorerPool(2)
    for _ in range(5):
        assert len({pool.submit(own("process")).result().value for _ in range(3)}) == 1
    many = {future.result().value for future in [pool.submit(own("process")) for _ in range(200)]}
    assert 1 <= len(many) <= 2


def test_a_killed_worker_leaves_no_process_and_no_descriptor(own: Callable[..., Job]) -> None:
    pool = ScorerPool(1)
    pool.submit(own("same")).result()
    parent = psutil.Process()
    before = parent.num_fds(), len(parent.children())
    for _ in range(4):
        with pytest.raises(ScorerTimeout):
            pool.submit(own("has_a_child", seconds=0.1)).result()
        assert pool.submit(own("same")).result().value == 1.0
    assert (parent.num_fds(), len(parent.children())) == before
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "1234"]
    ]


def test_threads_and_event_loops_can_submit_at_the_same_time(
    pool: ScorerPool, own: Callable[..., Job]
) -> None:
    scores: list[float | None] = []

    async def submit_20() -> None:
        results = await asyncio.gather(*(asyncio.wrap_future(pool.submit(own("same"))) for _ in range(20)))
        scores.extend(score.value for score in results)

    threads = [threading.Thread(target=lambda: asyncio.run(submit_20())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [1.0] * 80


def test_a_cancelled_job_is_not_scored(own: Callable[..., Job]) -> None:
    pool = ScorerPool(1)
    first, second = pool.submit(own("sleeps", seconds=1)), pool.submit(own("sleeps", seconds=1000))
    assert second.cancel()
    with pytest.raises(ScorerTimeout):
        first.result()
    assert pool.submit(own("same")).result().value == 1.0


@pytest.mark.parametrize(
    ("name", "forks"), [("same", False), ("sleeps", False), ("holds_the_lock", False), ("sleeps", True)]
)
def test_workers_end_with_their_parent_however_that_ends(
    own: Callable[..., Job], name: str, forks: bool
) -> None:
    job = own(name, seconds=1000)
    program = f"""
import os, time
from aworld_train.reward import workers
pool = workers.ScorerPool(1)
future = pool.submit(workers.Job(workers.ScorerKind.scorer, {job.reference!r}, "1", "1", None, 1000))
while not any(worker._loaded for worker in workers._alive):
    time.sleep(0.01)
time.sleep(0.2)
if {forks} and not os.fork():
    time.sleep(600)
    os._exit(0)
print(next(iter(workers._alive)).pid, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert psutil.pid_exists(worker)
        fork = [child for child in psutil.Process(parent.pid).children() if child.pid != worker][:forks]
        parent.kill()
        parent.stdout.close()
    assert eventually(lambda: not psutil.pid_exists(worker), within=60)
    for child in fork:
        child.kill()


def test_a_program_that_ends_leaves_no_worker(own: Callable[..., Job]) -> None:
    program = f"""
from aworld_train.reward import workers
pool = workers.ScorerPool(2)
job = workers.Job(workers.ScorerKind.scorer, {own("same").reference!r}, "1", "1", None, 9)
assert pool.submit(job).result().value == 1
pool.submit(workers.Job(workers.ScorerKind.scorer, {own("sleeps").reference!r}, "1", "1", None, 1000))
print([worker.pid for worker in workers._alive])
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 30
    for worker in eval(done.stdout):
        assert not psutil.pid_exists(worker)


def test_a_fork_starts_its_own_workers(own: Callable[..., Job]) -> None:
    workers.pool(waits=False).submit(own("same")).result()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if workers.pool(waits=False).submit(own("same")).result(60).value == 1.0 else 2
            workers._end_all()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert workers.pool(waits=False).submit(own("same")).result().value == 1.0
