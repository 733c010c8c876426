"""The page with a run of 100,000 episodes: how long a list, a filter and a search take, from request to answer."""

import json
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aworld_train.store.compression import compressed
from aworld_train.store.database import Database
from aworld_train.store.store_location import store_location
from aworld_train.view.server import PageServer
from tests.stored_runs import write_run_files

EPISODES, TASKS, STEPS = 100_000, 2_000, 500
MAX_SECONDS = 1.0
ROUNDS = 3
WORDS = [f"word{number}" for number in range(3_000)]
RARE = "a needle in the haystack"
REQUESTS = {
    "list": "episodes?run=large",
    "count of all": "count?run=large",
    "list by reward": "episodes?run=large&sort=reward",
    "last page": "episodes?run=large&offset=99900",
    "filter by outcome": "episodes?run=large&outcome=timeout",
    "count by outcome": "count?run=large&outcome=timeout",
    "filter by tool": "episodes?run=large&tool=browse",
    "count by tool": "count?run=large&tool=browse",
    "filter by step and reward": "episodes?run=large&step=77&reward_min=0.5",
    "filter by condition": "episodes?run=large&where=turns>3 and failed_tool=search and not suspicion",
    "count by condition": "count?run=large&where=turns>3 and failed_tool=search and not suspicion",
    "filter by suspicion": "episodes?run=large&suspicion=answer_in_query",
    "search of a rare text": f"episodes?run=large&search={RARE}",
    "count of a rare text": f"count?run=large&search={RARE}",
    "search of a text that is nowhere": "episodes?run=large&search=no such text",
    "count of a frequent text": "count?run=large&search=word17",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    runs = tmp_path_factory.mktemp("large")
    make_large_run(runs)
    yield runs


@asynccontextmanager
async def page(runs: Path) -> AsyncIterator[Any]:
    """Asks a new server, which has nothing in its cache, and returns the answer with the seconds that it took."""
    server = PageServer(runs)
    async with server.running(0) as address, aiohttp.ClientSession() as session:
        # The library's cookie jar keeps none of an address without a name.
        async with session.get(address, allow_redirects=False) as response:
            cookie = response.cookies.output(attrs=[], header="").strip()

        async def ask(query: str) -> tuple[Any, float]:
            began = time.perf_counter()
            url = f"http://127.0.0.1:{server.port}/api/{query}"
            async with session.get(url, headers={"Cookie": cookie}) as response:
                body = await response.json()
                assert response.status == 200, body
            return body, time.perf_counter() - began

        yield ask


@pytest.mark.bench
async def test_lists_filters_and_searches_of_100_000_episodes_take_less_than_a_second(large: Path) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        async with page(large) as ask:
            for name, query in REQUESTS.items():
                _, taken = await ask(query)
                seconds[name].append(taken)
            for name in ("run", "values", "tasks"):
                _, taken = await ask(f"{name}?run=large")
                seconds[f"(not held to it) {name}"].append(taken)
    for name, each in seconds.items():
        print(f"{name}: {' '.join(f'{taken:.3f}' for taken in each)} s")
    # The least of some rounds: what else the machine does makes none of them faster.
    assert {name: min(seconds[name]) for name in REQUESTS if min(seconds[name]) > MAX_SECONDS} == {}


def make_large_run(runs: Path) -> None:
    """A run of 100,000 episodes, written into the tables directly."""
    folder = runs / "large"
    folder.mkdir()
    write_run_files(folder, "large", STEPS)
    place = store_location(folder, make=True)
    assert place is not None
    Database(place).close()
    rng = random.Random(0)
    connection = sqlite3.connect(place.file)
    connection.execute("PRAGMA synchronous=OFF")
    with connection:
        connection.executemany(
            "INSERT INTO tasks VALUES (?, ?, ?, 'web', 'number', ?, '42', ?)",
            ((place.run, f"task{n:05d}", n, sentence(rng, 30), compressed(b"{}")) for n in range(TASKS)),
        )
        rows = [episode_row(rng, place.run, number) for number in range(EPISODES)]
        names = list(rows[0])
        connection.executemany(
            f"INSERT INTO episodes ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
            (tuple(row.values()) for row in rows),
        )
        connection.execute("INSERT INTO steps SELECT DISTINCT run, phase, step, NULL FROM episodes")
        connection.executemany(
            "INSERT INTO texts VALUES (?, ?)", ((row["id"], text(rng, n)) for n, row in enumerate(rows))
        )
        connection.executemany(
            "INSERT INTO tool_calls VALUES (?, ?, ?, 'web', ?, ?, ?, 0)",
            (
                (
                    row["id"],
                    n,
                    rng.choice(("search", "browse", "calculator")),
                    row["began"],
                    rng.random(),
                    rng.random() < 0.1,
                )
                for row in rows
                for n in range(row["tool_calls"])
            ),
        )
    connection.close()


def episode_row(rng: random.Random, run: str, number: int) -> dict[str, Any]:
    """One row of ``episodes``, with a line of figures as long as real ones."""
    step, turns = number // (EPISODES // STEPS), rng.randint(1, 6)
    outcome = rng.choices(("answered", "timeout", "format"), (90, 6, 4))[0]
    reward = float(rng.random() < 0.6) if outcome == "answered" else None
    line = {"step": step, "look": [sentence(rng, 8)] * 4, "agents": {"agent": turns}, "filler": "x" * 500}
    return {
        "id": f"{rng.getrandbits(64):016x}",
        "run": run,
        "task": f"task{rng.randrange(TASKS):05d}",
        "status": "ended",
        "step": step,
        "phase": "val" if number % 50 == 0 else "train",
        "attempt": number % 8,
        "key": f"uid{number}",
        "began": 1.8e9 + number + rng.random(),
        "ended": 1.8e9 + number + 30,
        "outcome": outcome,
        "treatment": "trained",
        "reward": reward,
        "accuracy": reward,
        "scorer": "number",
        "scoring": "scored",
        "turns": turns,
        "tool_calls": turns - 1,
        "tool_errors": 0,
        "rows": 1,
        "prompt_tokens": 400,
        "response_tokens": 900,
        "sampled_tokens": 300,
        "seconds": 20 * rng.random(),
        "generate_seconds": 3.0,
        "tool_seconds": 2.0,
        "weights_first": max(0, step - 1),
        "weights_last": max(0, step - 1),
        "trained_step": step,
        "advantage": rng.gauss(0, 1),
        "suspicions": ",answer_in_query," if rng.random() < 0.01 else None,
        "parts": json.dumps({"format": 1.0}),
        "figures": json.dumps(line),
        "has_content": 1,
    }


def text(rng: random.Random, number: int) -> str:
    """What is searched of an episode: some 2,000 characters."""
    return sentence(rng, 250) + (f" {RARE}" if number % 20_000 == 1 else "")


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))
