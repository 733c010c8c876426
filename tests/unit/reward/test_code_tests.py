"""What `code_tests` does before and after the tool environment, and what goes between the tests and the code."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.code_tests import (
    CodeTests,
    check_code_tests_here,
    code_tests,
    read_tests,
    read_verdict,
    without_fence,
)
from aworld_train.reward.sandbox import BEGUN, Unsupported, pack, signed, unpack
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.settings import RewardSettings, ToolSettings
from tests.server_thread import ServerThread

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
    | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN)
def test_plain_values_arrive_as_they_were(value: Any) -> None:
    arrived = unpack(json.loads(json.dumps(pack(value, None))), None)
    assert arrived == value
    assert repr(arrived) == repr(value)


def test_sets_arrive_and_subclasses_arrive_plain() -> None:
    class Number(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert unpack(pack({1, (2, 3), frozenset("a")}, None), None) == {1, (2, 3), frozenset("a")}
    arrived = unpack(pack(Number(3), []), None)
    assert type(arrived) is int and arrived == 3


def test_other_objects_go_by_number_or_not_at_all() -> None:
    objects: list[Any] = []
    one = object()
    packed = pack([one, 1], objects)
    assert objects == [one]
    assert unpack(packed, objects.__getitem__) == [one, 1]
    with pytest.raises(Unsupported, match="a object, which cannot be passed on"):
        pack([one], None)


def test_the_check_on_this_machine_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    check_code_tests_here()
    assert not list(tmp_path.iterdir())


KEY = "the key of one score"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("Look:\n```python\nx = 1\n```\nor\n~~~py\nx = 2\n~~~\nas you like", "x = 2\n"),
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("```python\nx = 1", "```python\nx = 1"),
    ],
)
def test_code_is_taken_out_of_its_fence(answer: str, code: str) -> None:
    assert without_fence(answer) == code


def test_a_ground_truth_has_tests_and_perhaps_a_time() -> None:
    assert read_tests('{"tests": "assert f()"}') == CodeTests("assert f()", 10.0)
    assert read_tests('{"tests": "assert f()", "timeout": 3}') == CodeTests("assert f()", 3.0)
    for truth in (
        "",
        "7",
        "null",
        '{"tests": 1}',
        '{"tests": "1", "timeout": "3"}',
        '{"tests": "1", "timeout": NaN}',
    ):
        assert isinstance(read_tests(truth), str)


@pytest.mark.parametrize(
    ("printed", "value", "step"),
    [
        (f"```\n{signed(KEY, BEGUN)}\n{signed(KEY, 'passed')}\n```", 1.0, "all tests passed"),
        (
            f"{signed(KEY, BEGUN)}\n{signed(KEY, 'failed: AssertionError: no')}",
            0.0,
            "a test failed: AssertionError: no",
        ),
        (f"{signed(KEY, BEGUN)}\npassed\n{signed('another', 'passed')}", 0.0, "ended the tests before"),
        # What was read on its way is of no use with another verdict.
        (f"{signed(KEY, BEGUN)}\n{signed(KEY, 'failed').split()[0]} passed", 0.0, "ended the tests before"),
        (f"{signed(KEY, BEGUN).split()[0]} passed", None, "did not run the tests"),
        (signed(KEY, "unusable: no Python"), None, "no Python"),
        (f"{signed(KEY, BEGUN)}\n{signed(KEY, 'unusable: a function')}", 0.0, "a function"),
        (signed(KEY, "failed: \ud800 \u2028 \x1c é"), 0.0, "é"),
        ("passed", None, "did not run the tests; it said 'passed'"),
        ("", None, "did not run"),
    ],
)
def test_a_verdict_counts_with_its_proof_alone(printed: str, value: float | None, step: str) -> None:
    found = read_verdict(printed.encode(errors="replace").decode(), KEY)
    assert found.value == value
    assert step in found.steps[-1]


def test_an_environment_that_was_lost_is_named() -> None:
    assert read_verdict("", KEY, "the tool environment was lost: gone").steps == (
        "the tool environment was lost: gone",
    )


MARK = "the mark of the answer"
Reply = Callable[[str, str], Awaitable[web.StreamResponse | str]]
"""From a program and the key in it to the tool's text, or to another response."""


class Environment(ServerThread):
    """An MCP server whose tool answers as a test says; ``programs`` are those that it got."""

    def __init__(self, reply: Reply):
        super().__init__()
        self._reply = reply
        self.programs: list[str] = []
        self.url = ""

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/mcp", self._answer)
        app.router.add_delete("/mcp", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {},
                "serverInfo": {"name": "fake", "version": "1"},
            }
        elif message.get("method") == "tools/call":
            self.programs.append(message["params"]["arguments"]["code"])
            (key,) = re.findall(r"judge\('([0-9a-f]{64})'", self.programs[-1])
            reply = await self._reply(self.programs[-1], key)
            if not isinstance(reply, str):
                return reply
            result = {"content": [{"type": "text", "text": reply}]}
        else:
            return web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return web.json_response(answer, headers={"Mcp-Session-Id": "1"})


def passed(key: str) -> str:
    return f"{signed(key, BEGUN)}\n{signed(key, 'passed')}"


async def says_nothing(key: str) -> str:
    return "Error: program.py: 'utf-8' codec can't encode character"


async def forges(key: str) -> str:
    return passed("another key")


async def breaks_off(key: str) -> web.StreamResponse:
    return web.Response(status=500, text="worker lost")


async def answers_no_result(key: str) -> web.StreamResponse:
    return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})


async def hangs(key: str) -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def scored_at(server: Environment, monkeypatch: pytest.MonkeyPatch, limit: float = 30.0) -> Score:
    monkeypatch.setenv("MCP_SERVER_TOKEN", "token")
    settings = RewardSettings(tools=ToolSettings(server.url), timeout=limit)
    return await code_tests(
        MARK, '{"tests": "assert f()", "timeout": 0.2}', ScoringContext(settings=settings)
    )


BROKEN = [says_nothing, forges, breaks_off, answers_no_result, hangs]


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_answer_that_breaks_its_environment_is_wrong(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{code_tests.__module__}._MAX_OTHER_SECONDS", 0.2)

    async def reply(program: str, key: str) -> Any:
        return await broken(key) if MARK in program else passed(key)

    with Environment(reply) as server:
        score = await scored_at(server, monkeypatch)
    assert score.value == 0.0 and "another program did" in score.steps[-1]
    assert [MARK in program for program in server.programs] == [True, False, True]


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_environment_that_is_broken_for_every_program_gives_no_score(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{code_tests.__module__}._MAX_OTHER_SECONDS", 0.2)

    async def reply(program: str, key: str) -> Any:
        return await broken(key)

    with Environment(reply) as server:
        score = await scored_at(server, monkeypatch)
    assert score.value is None and score.steps
    assert len(server.programs) == 2


async def test_an_answer_is_not_blamed_for_an_environment_that_failed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reply(program: str, key: str) -> Any:
        return passed(key) if len(server.programs) > 1 else await breaks_off(key)

    with Environment(reply) as server:
        assert (await scored_at(server, monkeypatch)).value == 1.0
    assert len(server.programs) == 3


async def test_an_answer_that_takes_all_of_the_time_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reply(program: str, key: str) -> Any:
        return await hangs(key)

    with Environment(reply) as server:
        score = await scored_at(server, monkeypatch, limit=0.5)
    assert score.value == 0.0 and "no result within" in score.steps[0]
    assert len(server.programs) == 1
