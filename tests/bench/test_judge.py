"""How close judging comes to the time that the judge itself takes: many answers, and a judge that thinks for a while.

The judge is in a process of its own, as a real one would be; both share this machine's cores. The floor is a client
that does nothing but post questions to the same judge in the same run: as many at once as allowed, one after the other.
A client that took no time at all would need the ideal time, which is printed too.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from aworld_train.evaluation.judge_agreement import LabelledAnswer, measure_agreement
from aworld_train.reward.settings import JudgeModel, JudgeSettings, RewardSettings

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

ROWS = 1000
CONCURRENCY = 64
LATENCY = 0.2  # seconds
IDEAL = ROWS / CONCURRENCY * LATENCY
MAX_RATIO = 1.1
ROUNDS = 3
QUESTION = """<question-0>
What is 1 + 1?
</question-0>
<reference-0>
2
</reference-0>
<answer-0>
2
</answer-0>"""


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    """The address of a judge that takes its time."""
    command = [sys.executable, "-m", "tests.judge_server", "--latency", str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.mark.parametrize("kept", [False, True], ids=["no cache", "empty cache"])
def test_judging_takes_little_longer_than_posting_the_questions(
    judge_url: str, tmp_path: Path, kept: bool
) -> None:
    ratios = []
    for number in range(ROUNDS):
        cache = str(tmp_path / str(number)) if kept else None
        floor = asyncio.run(post_all(judge_url))
        wall, cpu = asyncio.run(judge_all(judge_url, cache))
        ratios.append(wall / floor)
        print(
            f"\n{ROWS} rows: {wall:.3f} s, {wall / IDEAL:.3f} of the ideal, {wall / floor:.3f} of the floor; "
            f"{cpu / ROWS * 1000:.2f} ms CPU a row"
        )
    assert statistics.median(ratios) <= MAX_RATIO


async def post_all(url: str) -> float:
    """Seconds for as many questions as there are rows."""
    body = {"model": "big", "messages": [{"role": "user", "content": QUESTION}]}
    questions = iter(range(ROWS))

    async def post_some() -> None:
        for _ in questions:
            async with session.post(f"{url}/chat/completions", json=body) as response:
                assert response.status == 200
                await response.json()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter()
        await asyncio.gather(*(post_some() for _ in range(CONCURRENCY)))
        return time.perf_counter() - began


async def judge_all(url: str, cache: str | None) -> tuple[float, float]:
    """Seconds, and seconds of this process' CPU, for all rows; every other one is right."""
    judge = JudgeSettings((JudgeModel("judge", url, "big"),), concurrency=CONCURRENCY, cache=cache)
    rows = [
        LabelledAnswer(str(at), f"What is {at} + {at}?", str(2 * at), str(2 * at + at % 2), at % 2 == 0)
        for at in range(ROWS)
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    found = await measure_agreement(rows, RewardSettings(judge=judge))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert (found.accuracy, found.abstained, found.calls) == (1.0, 0, ROWS)
    return wall, cpu
