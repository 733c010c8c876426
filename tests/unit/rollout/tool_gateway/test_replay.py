"""A cassette in place of an environment: what an agent is answered."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.tool_gateway import ToolGatewaySession
from aworld_train.rollout.tool_gateway.replay import play, replay_call
from aworld_train.rollout.tool_selection import ToolSelection
from aworld_train.rollout.tools import ToolServer

TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]
RECORDED: dict[str, Any] = {
    "well": {"result": {"content": [{"type": "text", "text": "done"}]}},
    "failed": {"result": {"content": [], "isError": True}},
    "refused": {"error": {"code": 1, "message": "no"}},
}


def opened(tmp_path: Path, mode: Mode = Mode.replay) -> ToolGatewaySession:
    recording = Cassette(tmp_path / "c", Mode.record)
    recording.keep_tools("local", TOOLS)
    for how, outcome in RECORDED.items():
        recording.keep(recording.key("local", "t", {"how": how}), outcome)
    http: Any = None
    upstream = ToolServer("http://127.0.0.1:1/mcp", {})
    return ToolGatewaySession(upstream, Cassette(tmp_path / "c", mode), "", http, lambda _: None)


def answer_of(session: ToolGatewaySession, message: dict[str, Any]) -> web.Response:
    return play(session, make_mocked_request("POST", "/"), message)


def outcome_of(session: ToolGatewaySession, method: str, params: Any = None) -> dict[str, Any]:
    response = answer_of(session, {"id": "x", "method": method, "params": params})
    assert (response.status, response.content_type) == (200, "application/json")
    assert isinstance(response.body, bytes)
    outcome: dict[str, Any] = json.loads(response.body)
    assert (outcome.pop("jsonrpc"), outcome.pop("id")) == ("2.0", "x")
    return outcome


@pytest.mark.parametrize(("method", "status"), [("DELETE", 200), ("GET", 405)])
def test_a_session_can_be_ended_and_has_no_stream(tmp_path: Path, method: str, status: int) -> None:
    assert play(opened(tmp_path), make_mocked_request(method, "/"), None).status == status


@pytest.mark.parametrize("message", [{"method": "notifications/initialized"}, {"id": 1, "result": {}}])
def test_what_needs_no_answer_gets_none(tmp_path: Path, message: dict[str, Any]) -> None:
    response = answer_of(opened(tmp_path), message)
    assert (response.status, response.body) == (202, None)


@pytest.mark.parametrize(
    ("params", "version"),
    [({"protocolVersion": "2025-03-26"}, "2025-03-26"), ({}, "2025-06-18"), (None, "2025-06-18")],
)
def test_a_session_is_opened_in_the_agents_version_and_offers_tools(
    tmp_path: Path, params: Any, version: str
) -> None:
    session = opened(tmp_path)
    result = outcome_of(session, "initialize", params)["result"]
    assert (result["protocolVersion"], result["capabilities"]) == (version, {"tools": {}})
    ids = [
        answer_of(session, {"id": 1, "method": method}).headers.get("Mcp-Session-Id")
        for method in ("initialize", "initialize", "ping")
    ]
    assert ids[0] and ids[1] and ids[0] != ids[1] and ids[2] is None


def test_the_recorded_tools_and_nothing_else_are_offered(tmp_path: Path) -> None:
    session = opened(tmp_path)
    assert outcome_of(session, "tools/list") == {"result": {"tools": TOOLS}}
    assert outcome_of(session, "ping") == {"result": {}}
    error = outcome_of(session, "resources/list")["error"]
    assert (error["code"], error["data"]) == (-32601, {"type": "unsupported"})


@pytest.mark.parametrize(("how", "failed"), [("well", False), ("failed", True), ("refused", True)])
def test_a_recorded_call_gets_its_answer_and_is_counted(tmp_path: Path, how: str, failed: bool) -> None:
    session = opened(tmp_path)
    assert outcome_of(session, "tools/call", {"name": "t", "arguments": {"how": how}}) == RECORDED[how]
    counts = session.counts
    assert (counts.calls, counts.replayed, counts.missed, counts.errors) == (1, 1, 0, int(failed))
    assert [(record.is_error, record.replayed) for record in counts.records] == [(failed, True)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"how": "other"}, "has no call of t with"), ([1], "Error: the arguments of t are not a JSON object")],
)
def test_another_call_is_an_error_result(tmp_path: Path, arguments: Any, text: str) -> None:
    session = opened(tmp_path)
    result = outcome_of(session, "tools/call", {"name": "t", "arguments": arguments})["result"]
    assert text in result["content"][0]["text"]
    assert (result["isError"], result["_meta"]) == (True, {"aworld-train/type": "cassette_miss"})
    counts = session.counts
    assert (counts.calls, counts.replayed, counts.missed, counts.errors) == (1, 0, 1, 1)
    assert [(record.is_error, record.replayed) for record in counts.records] == [(True, False)]
    assert session._pending == {}


@pytest.mark.parametrize("mode", [None, Mode.record, Mode.replay_or_record])
def test_a_call_is_made_where_nothing_or_not_this_call_is_replayed(tmp_path: Path, mode: Mode | None) -> None:
    session = opened(tmp_path, mode or Mode.record)
    if mode is None:
        session.cassette = session.playback = None
    for how in ("well", "other"):
        request = {"id": 1, "params": {"name": "t", "arguments": {"how": how}}}
        made = replay_call(session, session.begin_call(None, request)) is None
        assert made is (how == "other" or mode is not Mode.replay_or_record)
    assert session.counts.missed == 0


def test_a_hidden_tool_is_neither_listed_nor_replayed(tmp_path: Path) -> None:
    session = opened(tmp_path)
    session.upstream = replace(session.upstream, selection=ToolSelection(exclude=("t",)))
    assert outcome_of(session, "tools/list") == {"result": {"tools": []}}
    outcome = outcome_of(session, "tools/call", {"name": "t", "arguments": {"how": "well"}})
    assert outcome["result"]["content"][0]["text"] == "Error: Unknown tool: t"
    assert (session.counts.calls, session.counts.errors, session.counts.missed) == (1, 1, 0)
