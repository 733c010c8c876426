"""No move of an adversary pays: its episode is scored 0 and played once, and leaves nothing to others.

The moves are played as training plays episodes, with everything but the model and the optimiser, beside a session that
works all the time. Each begins by looking for what those before it have left on its worker.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.files import episode_files, write_files
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.episodes.single import SingleEpisode, close_store, play_row
from aworld_train.env import EnvConnection, down, up
from aworld_train.env.backend import Size
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.adversary import FAMILIES, LOOK, MARK, Adversary, Move, moves
from tests.environments import ODD, all_ready, need_docker

pytestmark = pytest.mark.timeout(600)
LANES = 2
BACKENDS = ("process",)
WON = {
    "process-answers: thinks until its time is over": "the trainer cannot tell long turns from a slow engine",
    "process-processes: ends every worker": "tools on this backend may end idle workers too, as faults do",
}
"""The moves that pay, and why."""


@dataclass
class Played:
    """What became of the moves on one backend.

    Attributes:
        table: The moves.
        episodes: By move.
        second_tries: The moves that were played again.
        served: How many calls of the session beside them were answered as they should.
        looks: What sessions see on their worker, the first one's first.
    """

    table: dict[str, Move]
    episodes: dict[str, SingleEpisode] = field(default_factory=dict)
    second_tries: list[str] = field(default_factory=list)
    served: int = 0
    looks: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All moves of a backend, played."""
    if request.param == "docker":
        need_docker()
    name, folder = f"bar-{request.param}", tmp_path_factory.mktemp("bar")
    connection = up(
        ODD,
        name=name,
        backend=request.param,
        workers=1 + LANES,
        scoring_workers=1,
        servers=("odd",),
        size=Size(1.0, 384 << 20),
        wait=120,
    )
    (folder / "traces").mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MCP_SERVER_URL", connection.mcp_url)
            patch.setenv("MCP_SERVER_TOKEN", connection.token)
            patch.setenv(RUN_DIR_VARIABLE, str(folder))
            made = asyncio.run(play_all(connection, folder, dict(moves(request.param))))
    finally:
        down(name)
    return made


async def play_all(connection: EnvConnection, folder: Path, table: dict[str, Move]) -> Played:
    for kind, seconds in {"patient": 120.0, "hasty": 3.0}.items():
        agent = {"max_turns": 12, "tool_timeout": seconds / 2, "episode_timeout": seconds}
        write_files(folder / kind, episode_files(recipes.load({"agent": agent, "env": {"servers": ["odd"]}})))
    names, played, turn = list(table), Played(table), asyncio.Semaphore(LANES)
    server = ToolServer(connection.mcp_url, {"Authorization": f"Bearer {connection.token}"}, 60, 120)

    async def play(name: str) -> None:
        move = table[name]
        row = {
            "data_source": "bar",
            "prompt": [{"role": "user", "content": "What is 6*7?"}],
            "reward_model": {"ground_truth": move.truth},
            "extra_info": {"index": names.index(name), "scorer": move.scorer},
        }
        async with turn:
            played.episodes[name] = await play_row(
                folder / ("hasty" if move.hasty else "patient"),
                Adversary(move, ("run_python_code", {"code": LOOK})),
                row,
                {"temperature": 1.0},
                validate=False,
                max_prompt_tokens=20_000,
                max_response_tokens=20_000,
            )

    over = asyncio.Event()
    async with ToolSession(server) as tools:
        played.looks.append(await look(tools))
        beside = asyncio.create_task(work(tools, over))
        await asyncio.gather(*(play(name) for name in names if not table[name].last))
        over.set()
        played.served = await beside
    for name in names:
        if table[name].last:
            await play(name)
    assert await asyncio.to_thread(all_ready, connection)
    afterwards = [ToolSession(server) for _ in range(1 + LANES)]
    played.looks += await asyncio.gather(*map(look, afterwards))
    await asyncio.gather(*(tools.__aexit__(None, None, None) for tools in afterwards))
    await close_store(folder / "patient")
    lines = map(json.loads, (folder / "traces" / "episodes.jsonl").read_text().splitlines())
    played.second_tries = [names[line["index"]] for line in lines if line.get("retried")]
    return played


async def look(tools: ToolSession) -> str:
    return (await tools.call("run_python_code", {"code": LOOK})).text


async def work(tools: ToolSession, over: asyncio.Event) -> int:
    """A session that counts in a file until all is over; how far it came."""
    for count in range(1, 100_000):
        result = await tools.call("shell", {"command": "echo on >> count; wc -l < count"})
        assert result.text.strip() == str(count)
        if over.is_set():
            return count
        await asyncio.sleep(0.2)
    raise AssertionError("unreachable")


def cases() -> Iterator[Any]:
    for backend in BACKENDS:
        for name, _ in moves(backend):
            case = f"{backend}-{name}"
            # Whether these two pay depends on which of two times ends first.
            marks = [pytest.mark.xfail(strict=False, reason=WON[case])] if case in WON else []
            yield pytest.param(backend, name, id=case, marks=marks)


@pytest.mark.parametrize(("played", "name"), list(cases()), indirect=["played"], scope="module")
def test_no_move_pays(played: Played, name: str) -> None:
    episode, move = played.episodes[name], played.table[name]
    line = episode.line
    assert (line["treatment"], line.get("reward")) == ("trained", 0.0), line
    assert name not in played.second_tries, line
    results = [record.result for record in episode.result.tools.records]
    if move.reads:
        assert move.reads in results[-1], results


@pytest.mark.parametrize("played", BACKENDS, indirect=True, scope="module")
def test_nothing_is_left_and_those_beside_it_are_served(played: Played) -> None:
    first, *later = played.looks
    seen = [
        (name, episode.result.tools.records[0].result)
        for name, episode in played.episodes.items()
        if played.table[name].looks and name not in played.second_tries
    ]
    assert MARK not in first
    assert [entry for entry in seen if entry[1] != first] == []
    assert set(later) == {first}
    assert played.served > 10


def test_the_bar_has_moves_of_every_family() -> None:
    assert all(len(list(moves(backend))) >= 40 for backend in BACKENDS)
    assert all(len(table) >= 4 for table in FAMILIES.values())
