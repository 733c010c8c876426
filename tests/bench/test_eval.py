"""How well `eval` keeps an endpoint busy: 1,000 tasks, 4 attempts each, 64 at a time, beside Inspect AI.

Both evaluate the same tasks at the same mock endpoint (see `mock_endpoint.py`). The time of a client is from its first
request to its last answer. Its bound is the time of a client that asks the same in the same order and itself takes no
time at all: 64 at a time, the next one when one is answered. Because the last answers are waited for with less than 64,
that is 3 % more than the sum of all answers' times by 64.
"""

import contextlib
import heapq
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from aworld_train.dataset import build
from tests.aworld_environment import inspect_python

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

TASKS, ATTEMPTS, CONCURRENCY = 1000, 4, 64
PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "3"))
MAX_OVER_BOUND, MAX_START_SECONDS, MAX_GROWTH = 1.05, 2.0, 1.15
RECIPE = """
name: sums
env: {backend: none}
dataset: {val: data/test.parquet}
"""
INSPECT = f"""
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model, GenerateConfig
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate

samples = [Sample(input=row["query"], target=row["answer"]) for row in map(json.loads, open("tasks.jsonl"))]
task = Task(dataset=samples, solver=generate(), scorer=pattern(r"<answer>(.*?)</answer>"), epochs={ATTEMPTS})
config = GenerateConfig(max_connections={CONCURRENCY})
model = get_model("openai-api/mock/mock", base_url=sys.argv[1], api_key="none", config=config)
(log,) = eval(task, model=model, max_samples={CONCURRENCY}, display="none", log_dir="logs", temperature=1.0)
assert log.status == "success", log.error
"""


@dataclass(frozen=True)
class Measured:
    """What a client took: seconds before its first request and from there to the last answer, the bound of these, and
    its memory when a quarter of the answers and when all were there, in MB."""

    start: float
    seconds: float
    bound: float
    memory: tuple[float, float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("eval-bench")
    rows = [
        {"id": f"t{i}", "query": f"What is {i} plus {i + 3}?", "answer": str(2 * i + 3), "scorer": "number"}
        for i in range(TASKS)
    ]
    (made / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("jsonl", made / "data", files=[made / "tasks.jsonl"], splits={"test": 1.0}, dedupe=False)
    (made / "recipe.yaml").write_text(RECIPE)
    return made


@contextlib.contextmanager
def endpoint(log: Path) -> Iterator[str]:
    script = Path(__file__).with_name("mock_endpoint.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(log)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def measure(folder: Path, name: str, command: Sequence[str]) -> Measured:
    log = folder / f"{name}.log"
    with endpoint(log) as url:
        began = time.time()
        process = subprocess.Popen(
            [part.replace("URL", url) for part in command], cwd=folder, stdout=subprocess.DEVNULL
        )
        memory = watch_memory(process.pid, log)
        assert process.wait(timeout=600) == 0
        requests = [tuple(map(float, line.split())) for line in log.read_text().splitlines()]
    assert len(requests) == TASKS * ATTEMPTS
    first = min(came for came, _, _ in requests)
    answered = sorted(moment for _, moment, _ in requests)
    bound = makespan([seconds for _, _, seconds in sorted(requests)])
    quarter, last = (
        max(size for moment, size in memory if moment <= end)
        for end in (answered[len(answered) // 4], answered[-1])
    )
    return Measured(first - began, answered[-1] - first, bound, (quarter, last))


def makespan(durations: Sequence[float]) -> float:
    """The time that work in this order takes, so many at a time, if nothing lies between one end and the next begin."""
    ends = [0.0] * CONCURRENCY
    for seconds in durations:
        heapq.heappush(ends, heapq.heappop(ends) + seconds)
    return max(ends)


def watch_memory(pid: int, log: Path) -> list[tuple[float, float]]:
    """Unix time and resident memory of a process, in MB, every half second from its first requests on."""
    values: list[tuple[float, float]] = []

    def watch() -> None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                if log.stat().st_size:
                    values.append((time.time(), process.memory_info().rss / 2**20))
                time.sleep(0.5)

    threading.Thread(target=watch, daemon=True).start()
    return values


def test_an_evaluation_keeps_the_endpoint_busy_and_is_no_slower_than_inspect(
    folder: Path, pytestconfig: pytest.Config
) -> None:
    own_runs: list[Measured] = []
    inspect_runs: list[Measured] = []
    writer = pytestconfig.get_terminal_writer()
    for pair in range(PAIRS):
        command = [
            *(
                sys.executable,
                "-m",
                "aworld_train",
                "eval",
                "recipe.yaml",
                "--model-url",
                "URL",
                "--model",
                "mock",
            ),
            *("--k", str(ATTEMPTS), "--concurrency", str(CONCURRENCY), "eval.temperature=1.0", "--quiet"),
        ]
        clients = [(own_runs, "aworld-train", command)]
        clients.append((inspect_runs, "inspect", [str(inspect_python()), "-c", INSPECT, "URL"]))
        for results, name, arguments in clients if pair % 2 else reversed(clients):
            results.append(measured := measure(folder, f"{name}-{pair}", arguments))
            writer.line(
                f"\n{name}: first request after {measured.start:.2f} s, {measured.seconds:.1f} s, "
                f"{measured.seconds / measured.bound:.3f} of the bound, memory {measured.memory[0]:.0f} MB at a "
                f"quarter, {measured.memory[1]:.0f} MB at the end"
            )
    over = statistics.median(each.seconds / each.bound for each in own_runs)
    ratio = statistics.median(
        own.seconds / peer.seconds for own, peer in zip(own_runs, inspect_runs, strict=True)
    )
    growth = statistics.median(each.memory[1] / each.memory[0] for each in own_runs)
    writer.line(
        f"median over the bound {over:.3f}; of Inspect AI's time {ratio:.3f}; memory grows {growth:.2f} times"
    )
    assert over <= MAX_OVER_BOUND
    assert ratio <= 1.0
    assert growth <= MAX_GROWTH
    assert statistics.median(each.start for each in own_runs) < MAX_START_SECONDS
