"""What a session gets, on both backends: its own tools, its own worker, nothing of the session before it."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import httpx
import jwt
import pytest
from mcp import ClientSession, McpError
from mcp.types import EmbeddedResource, ImageContent, TextContent

from aworld_train.env import EnvConnection, down, find, up
from aworld_train.env.record import Record
from aworld_train.episode.score import ScoreOutcome
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings, ToolSettings
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer, ToolSession
from aworld_train.serving import tokens
from tests.environments import HEADERS, HELLO, ODD, call, eventually, session, text_of

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")


def health(connection: EnvConnection) -> dict[str, object]:
    answer: dict[str, object] = httpx.get(f"http://{connection.ip}:{connection.port}/health").json()
    return answer


def all_ready(connection: EnvConnection) -> bool:
    return eventually(lambda: health(connection)["workers"]["ready"] == connection.workers, 30)  # type: ignore[index]


async def visible_state(opened: ClientSession, connection: EnvConnection) -> str:
    """All that a session can see of what might have been left, as one text.

    As a process it can see the commands of its neighbours.
    """
    listing = (await opened.call_tool("what_is_here", {})).structuredContent
    assert listing is not None
    return json.dumps(listing | ({"commands": []} if connection.backend == "process" else {}))


# Tools


async def test_tools_of_all_servers_are_listed_and_equal_names_told_apart(odd: EnvConnection) -> None:
    async with session(odd) as opened:
        names = [tool.name for tool in (await opened.list_tools()).tools]
        assert {"echo", "others_key", "odd__same_name", "other__same_name"} <= set(names)
        assert "same_name" not in names
        assert await call(opened, "odd__same_name") == "odd"
        assert await call(opened, "other__same_name") == "other"


@pytest.mark.parametrize("header", ["MCP_SERVERS", "MCP-Servers", "mcp-servers", "mcp_servers"])
async def test_a_header_chooses_servers_whatever_its_case(odd: EnvConnection, header: str) -> None:
    headers = {**HEADERS, "Authorization": f"bearer {odd.token}", header: "other ,"}
    async with httpx.AsyncClient() as client:
        opened = await client.post(odd.mcp_url, headers=headers, json=HELLO)
        headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        listed = await client.post(
            odd.mcp_url, headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        )
        assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["same_name", "others_key"]
        assert (await client.delete(odd.mcp_url, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("othr", "Did you mean 'other'"),
        ("odd,nothing", "Known: odd, other"),
        ("locked", "LOCKED_KEY not set"),
    ],
)
async def test_an_unknown_server_is_an_error_that_lists_the_known_ones(
    odd: EnvConnection, servers: str, said: str
) -> None:
    headers = {**HEADERS, "Authorization": f"Bearer {odd.token}", "MCP_SERVERS": servers}
    async with httpx.AsyncClient() as client:
        refused = await client.post(odd.mcp_url, headers=headers, json=HELLO)
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]
    assert refused.json()["error"]["data"]["type"] == "unknown_server"
    assert all_ready(odd)


async def test_results_pass_unchanged(odd: EnvConnection) -> None:
    async with session(odd) as opened:
        kinds = (await opened.call_tool("many_kinds", {})).content
        assert [type(part) for part in kinds] == [TextContent, ImageContent, EmbeddedResource]
        assert isinstance(kinds[0], TextContent) and kinds[0].text == "é\u2028漢"
        structured = (await opened.call_tool("echo", {"text": "x"})).structuredContent
        assert structured == {"result": "x"}
        failed = await opened.call_tool("fails", {})
        assert failed.isError and "on purpose" in str(failed.content)
        assert str((await opened.list_resources()).resources[0].uri) == "odd://page"
        page = await opened.read_resource("odd://page")  # type: ignore[arg-type]
        assert page.contents[0].text == "a page"  # type: ignore[union-attr]


async def test_progress_arrives_while_the_call_is_under_way(odd: EnvConnection) -> None:
    received: list[tuple[float, float]] = []
    began = time.monotonic()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, time.monotonic() - began))

    async with session(odd) as opened:
        result = await opened.call_tool("wait", {"seconds": 1.0}, progress_callback=note)
    assert text_of(result) == "waited"
    assert [progress for progress, _ in received] == list(range(10))
    assert received[5][1] < received[9][1] - 0.2


async def test_a_cancelled_call_reaches_the_tool(odd: EnvConnection) -> None:
    server = ToolServer(odd.mcp_url, {"Authorization": f"Bearer {odd.token}"}, call_timeout=5.0)
    async with ToolSession(server) as tools:
        result = await tools.call("wait", {"seconds": 30})
        assert result.is_error and "no answer within 5 seconds" in result.text
        noticed = await tools.call(
            "shell", {"command": "for i in $(seq 150); do [ -e cancelled ] && break; sleep 0.02; done; ls"}
        )
        assert "cancelled" in noticed.text


# Tokens


def a_token(record: Record, **changes: object) -> str:
    claims = {
        "aud": "aworld-train environment",
        "env": record.name,
        "iat": int(time.time()),
        "exp": int(time.time()) + 60,
        "jti": "x",
        **changes,
    }
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        record.credentials.secret,
        "HS256",
    )


def test_only_a_whole_valid_token_of_this_environment_opens_it(odd: EnvConnection) -> None:
    record = find(odd.name)
    assert record is not None
    now = int(time.time())
    unsigned = jwt.encode(jwt.decode(odd.token, options={"verify_signature": False}), "", "none")
    refused = {
        "none at all": None,
        "empty": "Bearer",
        "wrong": "Bearer wrong",
        "another scheme": f"Basic {odd.token}",
        "no scheme": odd.token,
        "cut": f"Bearer {odd.token[:-2]}",
        "expired": f"Bearer {a_token(record, exp=now - 60)}",
        "without an end": f"Bearer {a_token(record, exp=None)}",
        "for nobody": f"Bearer {a_token(record, aud=None)}",
        "for somebody else": f"Bearer {a_token(record, aud='somebody')}",
        "of another environment": f"Bearer {a_token(record, env='another')}",
        "unsigned": f"Bearer {unsigned}",
        "signed with another secret": "Bearer "
        + tokens.sign(tokens.new_secret(), record.name, issued=now, expires=now + 60),
    }
    for kind, authorization in refused.items():
        headers = dict(HEADERS) if authorization is None else {**HEADERS, "Authorization": authorization}
        answer = httpx.post(odd.mcp_url, headers=headers, json=HELLO)
        assert (kind, answer.status_code, answer.headers.get("WWW-Authenticate")) == (kind, 401, "Bearer")
        assert odd.token not in answer.text
    assert health(odd)["sessions"] == 0


def test_a_token_may_have_a_number_of_sessions(odd: EnvConnection) -> None:
    record = find(odd.name)
    assert record is not None
    headers = {**HEADERS, "Authorization": f"Bearer {record.token(int(time.time()) + 60, sessions=1)}"}
    with httpx.Client() as client:
        first = client.post(odd.mcp_url, headers=headers, json=HELLO)
        assert first.status_code == 200
        second = client.post(odd.mcp_url, headers=headers, json=HELLO)
        assert (second.status_code, "Retry-After" in second.headers) == (429, True)
        own = {**headers, "Mcp-Session-Id": first.headers["Mcp-Session-Id"]}
        assert client.delete(odd.mcp_url, headers=own).status_code == 200
        third = client.post(odd.mcp_url, headers=headers, json=HELLO)
        assert third.status_code == 200
        own["Mcp-Session-Id"] = third.headers["Mcp-Session-Id"]
        # A session is its token's alone.
        others = {**own, "Authorization": f"Bearer {odd.token}"}
        assert client.delete(odd.mcp_url, headers=others).status_code == 404
        assert client.delete(odd.mcp_url, headers=own).status_code == 200


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "%2e%2e%2f", "x" * 4000, "0", "' or 1=1"])
def test_a_made_up_session_is_not_found(odd: EnvConnection, session_id: str) -> None:
    headers = {**HEADERS, "Authorization": f"Bearer {odd.token}", "Mcp-Session-Id": session_id}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert httpx.post(odd.mcp_url, headers=headers, json=ping).status_code == 404
    assert httpx.get(odd.mcp_url, headers=headers).status_code == 404
    assert httpx.delete(odd.mcp_url, headers=headers).status_code == 404


# Isolation


async def test_many_sessions_on_few_workers_see_only_their_own(odd: EnvConnection) -> None:
    assert all_ready(odd)

    async def play(number: int) -> tuple[int, float]:
        async with session(odd) as opened:
            began = time.monotonic()
            before = await visible_state(opened, odd)
            assert "SECRET-" not in before, before
            await call(opened, "write", path="secret", text=f"SECRET-{number}")
            await call(opened, "leave_behind", mark=f"SECRET-{number}")
            await asyncio.sleep(0.05)
            assert await call(opened, "shell", command="cat secret") == f"SECRET-{number}"
            own_state = await visible_state(opened, odd)
            assert f"SECRET-{number}" in own_state
            assert own_state.count("SECRET-") == own_state.count(f"SECRET-{number}")
            return number, began

    async with asyncio.TaskGroup() as group:
        playing = []
        for number in range(32):
            playing.append(group.create_task(play(number)))
            await asyncio.sleep(0.01)
    began = [task.result()[1] for task in playing]
    # First come, first served: but for those that were taken up at the same time, in the order of arrival.
    assert all(later > earlier - 1.0 for earlier, later in zip(began, began[odd.workers :], strict=False))
    assert all_ready(odd)


async def test_a_key_reaches_the_server_that_declares_it_and_no_other(odd: EnvConnection) -> None:
    async with session(odd) as opened:
        assert await call(opened, "others_key") == "half-a-key-and-the-other"
        assert await call(opened, "variable", name="OTHER_KEY") == ""
        state = await visible_state(opened, odd)
        assert "OTHER_KEY" not in state
        assert "UNUSED" not in state
        if odd.backend == "process":
            return
        # Nor can it be read from the worker, by a shell of the same user.
        environments = await call(
            opened, "shell", command="cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sort -u"
        )
        assert "never-seen" not in environments
        assert "AWORLD_SECRET" not in environments


async def test_answers_are_not_run_where_agents_are(
    odd: EnvConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_TOKEN", odd.token)
    run = RewardSettings(tools=ToolSettings(odd.mcp_url, servers=("odd",)))
    truth = json.dumps({"tests": "assert add(1, 2) == 3"})
    answer = "<answer>def add(a, b): return a + b</answer>"
    scored = await score(answer, ground_truth=truth, scorer="code_tests", settings=run)
    assert scored.outcome is ScoreOutcome.abstained
    assert scored.cause is not None and "--scoring-workers 1" in scored.cause
    assert health(odd)["scoring"] == {"ready": 0, "busy": 0, "cleaning": 0, "down": 0}


# Faults


async def failure_of(opened: ClientSession, tool: str, **arguments: object) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(McpError) as failed:
        await opened.call_tool(tool, arguments)
    return failed.value.error.data["type"], time.monotonic() - began


async def test_a_server_that_dies_is_a_typed_failure_and_is_there_again(odd: EnvConnection) -> None:
    async with session(odd) as opened:
        assert (await failure_of(opened, "crash"))[0] == "tool_crashed"
        assert await call(opened, "echo", text="again") == "again"


async def test_a_server_that_floods_its_output_is_ended_and_is_there_again(odd: EnvConnection) -> None:
    async with session(odd) as opened:
        assert (await failure_of(opened, "flood", megabytes=100))[0] == "tool_output_too_large"
        assert await call(opened, "echo", text="again") == "again"


async def test_a_server_that_hangs_is_a_typed_failure_within_its_time_and_is_there_again(
    odd: EnvConnection,
) -> None:
    async with session(odd) as opened:
        kind, seconds = await failure_of(opened, "hang", seconds=600)
        assert kind == "tool_timeout"
        assert 7 < seconds < 300
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                assert await call(opened, "echo", text="again") == "again"
                return
            except McpError as error:
                assert error.error.data["type"] in ("tool_timeout", "tool_crashed")
        pytest.fail("the server did not come back")


async def test_a_client_that_vanishes_gives_its_worker_back(odd: EnvConnection) -> None:
    assert all_ready(odd)
    headers = {**HEADERS, "Authorization": f"Bearer {odd.token}"}
    async with httpx.AsyncClient() as client:
        opened = await client.post(odd.mcp_url, headers=headers, json=HELLO)
        headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
        slow = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "wait", "arguments": {"seconds": 30}},
        }
        with pytest.raises(httpx.ReadTimeout):
            await client.post(odd.mcp_url, headers=headers, json=slow, timeout=1.0)
    assert health(odd)["sessions"] == 1
    assert all_ready(odd)
    assert health(odd)["sessions"] == 0


# The queue, and what is told of it


def test_sessions_wait_in_a_queue_with_an_end(state: None) -> None:
    limits = {"queue": 1, "queue_seconds": 6.0, "idle_seconds": 9.0}
    connection = up(ODD, name="queue", backend="process", workers=1, servers=("odd",), limits=limits)
    headers = {**HEADERS, "Authorization": f"Bearer {connection.token}"}
    try:
        with httpx.Client(timeout=30) as client, ThreadPoolExecutor() as elsewhere:
            assert client.post(connection.mcp_url, headers=headers, json=HELLO).status_code == 200
            # A client that takes no event stream hears of its place in the queue only by the status.
            plain = {**headers, "Accept": "application/json"}
            waiting = elsewhere.submit(client.post, connection.mcp_url, headers=plain, json=HELLO)
            assert eventually(lambda: health(connection)["queued"] == 1, 5)
            refused = client.post(connection.mcp_url, headers=headers, json=HELLO)
            assert (refused.status_code, refused.json()["error"]["message"]) == (
                503,
                "1 sessions are waiting for a worker already",
            )
            answer = waiting.result()
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
            assert "no worker became free within" in answer.json()["error"]["message"]
            # The first session is used by nobody: its worker is for others after a while.
            assert eventually(lambda: health(connection)["sessions"] == 0, 30)
            assert client.post(connection.mcp_url, headers=headers, json=HELLO).status_code == 200
    finally:
        down("queue")


async def test_an_agents_session_asks_again_where_there_is_no_room_yet(state: None) -> None:
    limits = {"queue": 0, "queue_seconds": 1.0}
    connection = up(ODD, name="room", backend="process", workers=1, servers=("odd",), limits=limits)
    server = ToolServer(
        connection.mcp_url, {"Authorization": f"Bearer {connection.token}"}, connect_timeout=30
    )

    async def play() -> str:
        async with ToolSession(server) as tools:
            return (await tools.call("wait", {"seconds": 0.5})).text

    try:
        assert await asyncio.gather(*(play() for _ in range(4))) == ["waited"] * 4
        impatient = replace(server, connect_timeout=1.0)
        async with ToolSession(server) as tools:
            await tools.call("echo", {"text": "mine"})
            with pytest.raises(EnvironmentLost, match="503"):
                async with ToolSession(impatient) as more:
                    await more.call("echo", {"text": "none"})
    finally:
        down("room")


async def test_metrics_count_sessions_and_calls_by_server_and_outcome(odd: EnvConnection) -> None:
    def metrics() -> dict[str, float]:
        text = httpx.get(f"http://{odd.ip}:{odd.port}/metrics").text
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    before = metrics()
    async with session(odd) as opened:
        await opened.call_tool("echo", {"text": "x"})
        await opened.call_tool("fails", {})
        await opened.call_tool("others_key", {})
        with suppress(McpError):
            await opened.call_tool("crash", {})
        during = metrics()
    names = {
        "aworld_sessions_total": 1,
        'aworld_tool_calls_total{outcome="ok",server="odd"}': 1,
        'aworld_tool_calls_total{outcome="ok",server="other"}': 1,
        'aworld_tool_calls_total{outcome="tool_error",server="odd"}': 1,
        'aworld_tool_calls_total{outcome="tool_crashed",server="odd"}': 1,
        'aworld_tool_call_seconds_count{server="odd"}': 3,
    }
    assert {name: during[name] - before.get(name, 0) for name in names} == names
    assert during["aworld_sessions_open"] == 1
    assert during['aworld_workers{state="busy"}'] == 1
