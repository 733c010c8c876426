"""An episode of our own loop with a cassette: recorded against a real server, replayed with the server switched off."""

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from aworld_train.errors import CassetteError
from aworld_train.rollout.cassette import Cassette, Mode, RecordedTools
from aworld_train.rollout.cassette.recorded import tool_result
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_selection import ToolSelection
from aworld_train.rollout.tools import ToolResult, ToolServer
from tests.tool_servers import JSON_CALCULATOR, STREAMING_ODD, TOKEN, ServerProcess

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

NOWHERE = ToolServer("http://127.0.0.1:1/mcp", {}, connect_timeout=60)
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"value": [1.5, "é\u2028漢", None]}),
    ("count", {}),
    ("count", {}),
    ("fails", {"how": "on purpose"}),
    ("structured", {"x": 5}),
    ("many_kinds", {}),
    ("no_such_tool", {}),
    ("count", {}),
]


@pytest.fixture(scope="module")
def odd() -> Iterator[ServerProcess]:
    server = ServerProcess(STREAMING_ODD)
    yield server
    server.kill()


@pytest.fixture
def mortal() -> Iterator[ServerProcess]:
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


async def play(
    server: ToolServer, cassette: Cassette | None
) -> tuple[list[dict[str, Any]], list[ToolResult]]:
    async with RecordedTools(server, cassette) as tools:
        schemas = await tools.schemas()
        return schemas, [await tools.call(name, arguments) for name, arguments in CALLS]


async def test_a_replay_gives_what_the_server_gave_and_needs_none(odd: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    schemas, results = await play(odd.tools(), Cassette(path, Mode.record))
    assert [result.is_error for result in results] == [False] * 3 + [True, False, False, True, False]
    assert [results[place].text for place in (1, 2, 7)] == ["1", "2", "3"]
    for _ in range(2):
        again, replayed = await play(NOWHERE, Cassette(path, Mode.replay))
        assert again == schemas
        assert replayed == results
    assert replayed[4].raw["structuredContent"] == {"x": 5, "nothing": None}
    assert [part["type"] for part in replayed[5].raw["content"]] == ["text", "image", "resource"]


async def test_no_secret_is_in_the_file(odd: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    server = ToolServer(
        odd.url + "?key=s3cret", {"Authorization": f"Bearer {TOKEN}", "X-Api-Key": "s3cret-too"}
    )
    await play(server, Cassette(path, Mode.record))
    written = path.read_text()
    assert TOKEN not in written and "s3cret" not in written and str(odd.port) not in written


async def test_without_a_cassette_every_call_is_made(odd: ServerProcess) -> None:
    schemas, results = await play(odd.tools(), None)
    assert schemas and results[0].text == repr([1.5, "é\u2028漢", None])


async def test_a_call_that_was_not_recorded_is_an_error_result_and_nobody_is_asked(
    mortal: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    async with RecordedTools(mortal.tools(), Cassette(path, Mode.record)) as tools:
        await tools.schemas()
        await tools.call("calculator", {"expression": "6*7"})
    # The server is up: who asks it gets an answer.
    async with RecordedTools(mortal.tools(), Cassette(path, Mode.replay)) as tools:
        missed = await tools.call("calculator", {"expression": "6*8"})
        nonsense = await tools.call("calculator", {"expression": float("nan")})
        assert (tools.replayed, tools.missed) == (0, 1)
        assert tools._session._task is None
    assert missed.is_error and "no call of calculator" in missed.text and "6*7" in missed.text
    assert nonsense.is_error and "cannot be written as JSON" in nonsense.text


async def test_gaps_are_filled_and_then_need_no_server(mortal: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    async def calculate(server: ToolServer, *expressions: str) -> list[str]:
        async with RecordedTools(server, Cassette(path, Mode.replay_or_record)) as tools:
            await tools.schemas()
            return [(await tools.call("calculator", {"expression": one})).text for one in expressions]

    assert await calculate(mortal.tools(), "1+1") == ["2"]
    lines = path.read_text().count("\n")
    assert await calculate(mortal.tools(), "1+1", "2+2") == ["2", "4"]
    assert path.read_text().count("\n") == lines + 1
    mortal.kill()
    assert await calculate(mortal.tools(), "2+2", "1+1") == ["4", "2"]
    with pytest.raises(EnvironmentLost):
        await calculate(mortal.tools(connect=5), "3+3")
    assert path.read_text().count("\n") == lines + 1


async def test_what_the_client_gave_up_is_not_recorded(odd: ServerProcess, tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    async with RecordedTools(odd.tools(call=0.5), cassette) as tools:
        result = await tools.call("wait", {"seconds": 30})
        assert result.is_error and "no answer within" in result.text
        assert (await tools.call("echo", {"value": float("inf")})).is_error
    assert cassette.find(cassette.key("local", "wait", {"seconds": 30})) is None


async def test_a_replay_without_a_tool_list_is_an_error_that_says_how_to_get_one(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    cassette.keep(cassette.key("local", "t", {}), {"result": {"content": []}})
    async with RecordedTools(NOWHERE, Cassette(tmp_path / "c", Mode.replay)) as tools:
        with pytest.raises(CassetteError, match=r"no tool list of the server 'local', nor of any other"):
            await tools.schemas()


async def test_a_recorded_tool_may_lack_a_description(tmp_path: Path) -> None:
    Cassette(tmp_path / "c", Mode.record).keep_tools(
        "local", [{"name": "t", "inputSchema": {"type": "object"}}]
    )
    for mode in (Mode.replay, Mode.replay_or_record):
        async with RecordedTools(NOWHERE, Cassette(tmp_path / "c", mode)) as tools:
            function = {"name": "t", "description": "", "parameters": {"type": "object"}}
            assert await tools.schemas() == [{"type": "function", "function": function}]


def test_a_recorded_answer_is_the_result_that_it_was() -> None:
    text = [{"type": "text", "text": "done"}]
    for failed in (False, True):
        result = {"content": text, "isError": failed}
        assert astuple(tool_result({"result": result})) == ("done", failed, result, True)
    error = {"code": 1, "message": "no"}
    assert astuple(tool_result({"error": error})) == ("Error: no", True, error, True)


async def test_hidden_tools_are_recorded_in_the_list_and_cannot_be_called(
    odd: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    every, _ = await play(odd.tools(), Cassette(path, Mode.record))
    some = replace(NOWHERE, selection=ToolSelection(include=("echo", "count")))
    async with RecordedTools(some, Cassette(path, Mode.replay)) as tools:
        names = [schema["function"]["name"] for schema in await tools.schemas()]
        assert sorted(names) == ["count", "echo"]
        assert await tools.all_schemas() == every
        hidden = await tools.call("structured", {"x": 5})
        assert (hidden.text, hidden.is_error, tools.missed) == (
            "Error: Unknown tool: structured",
            True,
            0,
        )
        assert not (await tools.call("echo", CALLS[0][1])).is_error
