"""What an episode's session counts, records and remembers of the messages that pass."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aworld_train import waits
from aworld_train.errors import CassetteError
from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.tool_gateway import ToolGatewaySession
from aworld_train.rollout.tool_record import UNANSWERED
from aworld_train.rollout.tools import ToolServer

HERE = "http://127.0.0.1:7/mcp"
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


def opened(
    cassette: Cassette | None = None,
    url: str = HERE,
    on_close: Callable[[ToolGatewaySession], None] = lambda _: None,
) -> ToolGatewaySession:
    """A session that has opened none in the environment, and so sends it nothing."""
    http: Any = None
    return ToolGatewaySession(ToolServer(url, {}), cassette, "http://gateway", http, on_close)


def call(number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": "t", "arguments": {}, **params}}


def answered(number: Any = 1, **outcome: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, **(outcome or {"result": RESULT})}).encode()


def summary(session: ToolGatewaySession) -> list[tuple[str, str, str, bool]]:
    """The records of calls without times."""
    return [(one.name, one.arguments, one.result, one.is_error) for one in session.counts.records]


def test_an_address_and_a_token_are_of_one_session() -> None:
    one, other = opened(), opened()
    assert one.token != other.token
    assert one.url == f"http://gateway/{one.token}/mcp"


@pytest.mark.parametrize(
    ("outcome", "text", "failed"),
    [
        ({"result": RESULT}, "done", False),
        ({"result": {**RESULT, "isError": True}}, "done", True),
        ({"error": {"code": 1, "message": "no"}}, "Error: no", True),
        ({"result": None}, "null", True),
        ({"result": {"content": 7}}, '{"content": 7}', True),
    ],
)
def test_an_answered_call_is_counted_and_recorded_once(outcome: Any, text: str, failed: bool) -> None:
    session = opened()
    begun = session.begin_call(None, call(arguments={"é": 1}))
    assert (session.counts.calls, session.counts.records, begun.open) == (1, [], True)
    session.observe(None, answered(**outcome))
    session.observe(None, answered(result=RESULT))
    session.end_call(begun, failed=True)
    assert summary(session) == [("t", '{"é": 1}', text, failed)]
    (record,) = session.counts.records
    assert (record.began, record.replayed) == (begun.began_at, False)
    assert session.counts.seconds == record.seconds >= 0
    assert (session.counts.calls, session.counts.errors) == (1, int(failed))


@pytest.mark.parametrize(("params", "name"), [(None, ""), ([], ""), ({}, ""), ({"name": 5}, "5")])
def test_a_call_with_other_parameters_than_a_call_has_is_counted_too(params: Any, name: str) -> None:
    session = opened()
    session.end_call(session.begin_call(None, {"id": 1, "params": params}), failed=True)
    assert summary(session) == [(name, "null", UNANSWERED, True)]


def test_an_answer_is_the_one_of_its_session_and_id() -> None:
    session = opened()
    calls = [session.begin_call(*key) for key in (("a", call(1)), ("a", call("1")), ("b", call(1)))]
    session.observe("b", b'{"id": 1, "method": "ping"}')  # the environment's own request
    for data in (b"{", b"[]", b"5", answered("2")):
        session.observe("a", data)
    assert [one.open for one in calls] == [True, True, True]
    session.observe("a", answered("1"))
    assert [one.open for one in calls] == [True, False, True]
    session.observe("b", answered(1))
    assert [one.open for one in calls] == [True, False, False]


@pytest.mark.parametrize("params", [None, {}, {"requestId": "1"}])
def test_only_the_call_that_is_cancelled_ends(params: Any) -> None:
    session = opened()
    begun = session.begin_call("a", call(1))
    session.cancel("a", {"params": params})
    session.cancel("b", {"params": {"requestId": 1}})
    assert begun.open
    session.cancel("a", {"params": {"requestId": 1}})
    session.observe("a", answered(1))
    assert summary(session) == [("t", "{}", UNANSWERED, True)]


def test_an_answer_to_what_is_forgotten_is_not_recorded(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    session = opened(cassette)
    begun = session.begin_call("a", call())
    session.forget("a", call())
    session.observe("a", answered())
    assert begun.open
    assert not (tmp_path / "c").read_text()


@pytest.mark.parametrize("mode", [Mode.record, Mode.replay_or_record])
def test_results_and_errors_are_recorded_and_what_is_neither_is_not(tmp_path: Path, mode: Mode) -> None:
    cassette = Cassette(tmp_path / "c", mode)
    session = opened(cassette)
    refused = {"code": 1, "message": "no"}
    outcomes: list[dict[str, Any]] = [
        *({"result": RESULT}, {"result": {"other": 1}}, {"result": None}),
        *({"error": refused}, {"error": "no"}),
    ]
    for number, outcome in enumerate(outcomes):
        session.begin_call(None, call(number, arguments={"n": number}))
        session.observe(None, answered(number, **outcome))
    session.begin_call(None, call(2, arguments=[1]))  # no recorded call has such
    session.observe(None, answered(2))
    found = [
        cassette.find(cassette.key(session.identity, "t", {"n": number})) for number in range(len(outcomes))
    ]
    assert found == [{"result": RESULT}, None, None, {"error": refused}, None]
    assert (tmp_path / "c").read_text().count('"tool"') == 2


@pytest.mark.parametrize(
    ("error", "loss"),
    [
        ({"message": "gone", "data": {"type": "worker_lost"}}, "gone"),
        ({"message": "gone", "data": {"type": "busy"}}, None),
        ({"message": "gone", "data": "worker_lost"}, None),
        ("gone", None),
    ],
)
def test_an_answer_that_tells_of_a_loss_is_not_recorded_and_not_believed(
    tmp_path: Path, error: Any, loss: str | None
) -> None:
    session = opened(Cassette(tmp_path / "c", Mode.record))
    session.begin_call(None, call())
    assert session.observe(None, answered(error=error)) == loss
    assert session.lost is None
    assert bool((tmp_path / "c").read_text()) is (loss is None and isinstance(error, dict))


def test_the_first_reason_of_a_loss_counts() -> None:
    session = opened(url="https://user:secret@tools.invalid/mcp?key=secret")
    session.mark_lost("one")
    session.mark_lost("two")
    assert str(session.lost) == "tools.invalid: one"


@pytest.mark.parametrize("mode", [Mode.record, Mode.replay_or_record])
def test_a_list_of_several_pages_is_recorded_once_it_is_complete(tmp_path: Path, mode: Mode) -> None:
    cassette = Cassette(tmp_path / "c", mode)
    session = opened(cassette)

    def listed(number: int, cursor: Any, **result: Any) -> None:
        params = {"cursor": cursor} if cursor else None
        session.begin_list("a", {"id": number, "params": params})
        session.observe("a", answered(number, result=result))

    listed(0, "1", tools=[{"name": "x"}], nextCursor="2")  # the agent stops there, and begins anew
    listed(1, None, tools=[{"name": "x"}], nextCursor="2")
    listed(2, None, tools=[{"name": "a"}], nextCursor="2")
    listed(3, "2", other=[])
    assert not cassette.has_tools(session.identity)
    listed(4, "2", tools=[{"name": "b"}])
    assert cassette.tools(session.identity) == [{"name": "a"}, {"name": "b"}]
    assert session.counts.calls == 0


def test_a_list_is_not_waited_for_where_it_is_not_recorded(tmp_path: Path) -> None:
    Cassette(tmp_path / "c", Mode.record).keep_tools("local", [])
    for cassette in (None, Cassette(tmp_path / "c", Mode.replay)):
        session = opened(cassette)
        session.begin_list("a", {"id": 1})
        assert session._pending == {}


@pytest.mark.parametrize(
    "data", [b"", b"5", b'{"result": 5}', b'{"result": null}', b'{"error": "no"}', b'{"error": {"data": []}}']
)
def test_an_opening_that_says_nothing_of_limits_leaves_them(data: bytes) -> None:
    session = opened()
    session.tool_timeouts = {"a": 1.0}
    session.observe_opening(data)
    assert (session.tool_timeouts, session.lost) == ({"a": 1.0}, None)


async def test_closing_ends_the_waits_of_calls_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_open", {})
    closed: list[ToolGatewaySession] = []
    session = opened(on_close=closed.append)
    for number in range(3):
        session.begin_call(None, call(number))
    assert [name for _, name, _ in waits._open.values()] == ["t"] * 3
    session.observe(None, answered(1))
    assert len(waits._open) == 2
    await session.close()
    assert waits._open == {}
    await session.close()
    assert closed == [session]


async def test_who_closes_a_session_is_not_cancelled_and_others_have_ended_then() -> None:
    session = opened()
    ended = []

    async def request() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("request")

    own, other = asyncio.current_task(), asyncio.create_task(request())
    assert own is not None
    session.tasks |= {own, other}
    await asyncio.sleep(0)
    await session.close()
    assert ended == ["request"]
    assert not own.cancelling()


async def test_the_first_failure_to_record_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    failures = iter([CassetteError("first"), CassetteError("second")])

    def fail(*_: Any) -> None:
        raise next(failures)

    monkeypatch.setattr(cassette, "keep", fail)
    session = opened(cassette)
    for number in range(2):
        session.begin_call(None, call(number))
        session.observe(None, answered(number))
    with pytest.raises(CassetteError, match="first"):
        await session.close()
    await session.close()
