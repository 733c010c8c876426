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
from aworld_train.adapter.episodes.play_single import SingleEpisode, close_store, play_row
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.env import EnvConnection, down, up
from aworld_train.env.backend import Size
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.adversary import FAMILIES, LOOK, MARK, Adversary, Move, call_in, moves
from tests.environments import ODD, all_ready, need_docker
from tests.hostile import python

pytestmark = pytest.mark.timeout(600)
LANES = 2
SERVERS = {"process": ["odd"], "docker": ["odd"], "gaia": ["terminal-server", "python-server"]}
"""Those of the environments: the odd one on both backends, and the one for GAIA in containers."""
ENVIRONMENTS = [pytest.param(name, marks=[pytest.mark.slow] if name == "gaia" else []) for name in SERVERS]
WON = {
    "process-answers: thinks until its time is over": "the trainer cannot tell long turns from a slow engine",
    "process-processes: ends every worker": "before Linux 6.12 tools on this backend may end idle workers too",
}
"""The moves that pay, and why."""


@dataclass
class Played:
    """What became of the moves in one environment.

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
    """All moves in an environment, played."""
    environment = request.param
    if environment != "process":
        need_docker()
    name, folder = f"bar-{environment}", tmp_path_factory.mktemp("bar")
    connection = up(
        "gaia-mcp-server" if environment == "gaia" else ODD,
        name=name,
        backend="process" if environment == "process" else "docker",
        workers=1 + LANES,
        scoring_workers=1,
        servers=() if environment == "gaia" else ("odd",),
        size=Size(1.0, (1024 if environment == "gaia" else 384) << 20),
        wait=300,
    )
    (folder / "traces").mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MCP_SERVER_URL", connection.mcp_url)
            patch.setenv("MCP_SERVER_TOKEN", connection.token)
            patch.setenv(RUN_DIR_VARIABLE, str(folder))
            made = asyncio.run(play_all(connection, folder, environment))
    finally:
        down(name)
    return made


async def play_all(connection: EnvConnection, folder: Path, environment: str) -> Played:
    look = call_in(environment, "shell", command=python(LOOK))
    for kind, seconds in {"patient": 120.0, "hasty": 3.0}.items():
        agent = {"max_turns": 12, "tool_timeout": seconds / 2, "episode_timeout": seconds}
        write_files(
            folder / kind,
            episode_files(recipes.load({"agent": agent, "env": {"servers": SERVERS[environment]}})),
        )
    table = dict(moves(environment))
    names, played, turn = list(table), Played(table), asyncio.Semaphore(LANES)
    headers = {"Authorization": f"Bearer {connection.token}", "MCP_SERVERS": ",".join(SERVERS[environment])}
    server = ToolServer(connection.mcp_url, headers, 60, 120)

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
                Adversary(move, look),
                row,
                {"temperature": 1.0},
                validate=False,
                max_prompt_tokens=20_000,
                max_response_tokens=20_000,
            )

    over = asyncio.Event()
    async with ToolSession(server) as tools:
        played.looks.append((await tools.call(*look)).text)
        beside = asyncio.create_task(work(tools, environment, over))
        await asyncio.gather(*(play(name) for name in names if not table[name].last))
        over.set()
        played.served = await beside
    for name in names:
        if table[name].last:
            await play(name)
    assert await asyncio.to_thread(all_ready, connection)
    afterwards = [ToolSession(server) for _ in range(1 + LANES)]
    results = await asyncio.gather(*(tools.call(*look) for tools in afterwards))
    played.looks += [result.text for result in results]
    await asyncio.gather(*(tools.__aexit__(None, None, None) for tools in afterwards))
    await close_store(folder / "patient")
    lines = map(json.loads, (folder / "traces" / "episodes.jsonl").read_text().splitlines())
    played.second_tries = [names[line["index"]] for line in lines if line.get("retried")]
    return played


async def work(tools: ToolSession, environment: str, over: asyncio.Event) -> int:
    """A session that counts in a file until all is over; how far it came."""
    for count in range(1, 100_000):
        result = await tools.call(*call_in(environment, "shell", command="echo on >> count; wc -l < count"))
        assert result.text.strip() == str(count)
        if over.is_set():
            return count
        await asyncio.sleep(0.2)
    raise AssertionError("unreachable")


def cases() -> Iterator[Any]:
    for environment in ENVIRONMENTS:
        (title,) = environment.values
        for name, _ in moves(title):
            case = f"{title}-{name}"
            # Whether these two pay depends on which of two times ends first.
            marks = [pytest.mark.xfail(strict=False, reason=WON[case])] if case in WON else []
            yield pytest.param(title, case, id=case, marks=[*environment.marks, *marks])


# Were a move's name alone the parameter, pytest would run a move's cases in all environments one after the other, and
# play all moves again for each.
@pytest.mark.parametrize(("played", "case"), list(cases()), indirect=["played"], scope="module")
def test_no_move_pays(played: Played, case: str) -> None:
    name = case.split("-", 1)[1]
    episode, move = played.episodes[name], played.table[name]
    figures = episode.figures
    assert (figures.treatment, figures.reward) == ("trained", 0.0), figures
    assert name not in played.second_tries, figures
    results = [record.result for record in episode.result.tools.records]
    if move.reads:
        assert move.reads in results[-1], results


@pytest.mark.parametrize("played", ENVIRONMENTS, indirect=True, scope="module")
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
    assert all(len(list(moves(environment))) >= 40 for environment in SERVERS)
    assert all(len(table) >= 4 for table in FAMILIES.values())
