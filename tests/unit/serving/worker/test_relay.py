"""What clients get of several tool servers: one list of tools, and each request at the server that it is for."""

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aworld_train.serving.manifest import Manifest, ProbeCall, ServerEntry
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import CommandPaths
from aworld_train.serving.worker.relay import Relay, RelayedSession
from tests.environments import eventually

WITHIN = 30.0
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]
"""From the method and the parameters of a request to the ``result`` or ``error`` of its response."""


class Servers:
    """Starts tool servers that are threads of this process; ``requests`` are those that each of them got."""

    def __init__(self, **answers: Answer):
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.started: list[tuple[str, Mapping[str, str] | None]] = []
        self.ended: list[int] = []
        self._answers = answers

    async def spawn(
        self,
        name: str,
        entry: ServerEntry,
        standard_input: int,
        standard_output: int,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        if name not in self._answers:
            raise CallFailure("tool_unavailable", f"{name} could not be started")
        self.started.append((name, environment))
        ends = os.dup(standard_input), os.dup(standard_output)
        threading.Thread(target=self._serve, args=(name, *ends), daemon=True).start()
        return len(self.started)

    def kill(self, pid: int, then: Callable[[], None]) -> None:
        self.ended.append(pid)
        then()

    def _serve(self, name: str, standard_input: int, standard_output: int) -> None:
        with suppress(OSError), os.fdopen(standard_input) as lines, os.fdopen(standard_output, "w") as output:
            for message in map(json.loads, lines):
                method, params = message["method"], message.get("params") or {}
                self.requests.append((name, method, params))
                if "id" in message:
                    reply = self._answers[name](method, params)
                    before = [json.dumps(line) + "\n" for line in reply.pop("before", [])]
                    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) if reply else ""
                    output.write("".join(before) + text + "\n")
                    output.flush()


def text(content: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": content}]


def with_tools(*tools: str, **more: Answer | dict[str, Any]) -> Answer:
    """A server whose tools say their own name; ``more`` are its results of other methods, and of those tools."""

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        given = more.get(params.get("name", "") if method == "tools/call" else method.replace("/", "_"))
        if given is not None:
            return dict(given) if isinstance(given, dict) else given(method, params)
        match method:
            case "initialize":
                return {"result": {"capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {"tools": [{"name": name} for name in tools]}}
            case "tools/call":
                return {"result": {"content": text(params["name"]), "isError": False}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    return answer


RESOURCES: dict[str, Any] = {"result": {"capabilities": {"resources": {}}}}


def relay_of(servers: Servers, *missing: str, disabled: Mapping[str, str] | None = None) -> Relay:
    """A relay with these servers, others that cannot be started, and others that are off."""
    names = (*servers._answers, *missing, *(disabled or {}))
    manifest = Manifest("name", {name: ServerEntry(command=("none",), timeout=WITHIN) for name in names})
    return Relay(manifest, disabled or {}, servers, CommandPaths("python", Path("/"), Path("/workspace")))


async def asked(relay: Relay, session: RelayedSession, method: str, **params: Any) -> Any:
    """The result of a request, or its error."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    response = await asyncio.wait_for(relay.answer(session, message, lambda _: None), WITHIN)
    assert (response["jsonrpc"], response["id"], session.calls) == ("2.0", 7, {})
    return response["error"] if "error" in response else response["result"]


async def arrived(servers: Servers, method: str) -> None:
    """Wait until a server has got such a request."""
    assert await asyncio.to_thread(eventually, lambda: servers.requests[-1][1] == method)


async def listed(relay: Relay, session: RelayedSession) -> list[str]:
    return [tool["name"] for tool in (await asked(relay, session, "tools/list"))["tools"]]


def opening_error(relay: Relay, requested: str) -> str:
    with pytest.raises(CallFailure) as refused:
        relay.open("refused", requested)
    assert (refused.value.kind, "refused" in relay.sessions) == ("unknown_server", False)
    return refused.value.message


# Servers


async def test_a_session_has_the_servers_that_it_names_or_all_that_work() -> None:
    seen: list[str] = []

    def tools_list(*_: object) -> dict[str, Any]:
        seen.append(relay.starting)
        return {"result": {}}

    first = with_tools(tools_list=tools_list)
    relay = relay_of(Servers(a=first, b=with_tools("y")), "c", disabled={"d": "no key"})
    assert (relay.starting, relay.stop_servers()) == ("", [])
    await relay.start()
    assert (relay.broken, relay.starting, seen) == ({"c": "c could not be started"}, "", ["a"])
    assert relay.open("all", "").servers == relay.open("blank", " , ").servers == ("a", "b")
    assert relay.open("two", "b, a,b").servers == ("b", "a")
    assert opening_error(relay, "a,d") == "d is off: no key"
    assert opening_error(relay, "c") == "c could not be started"
    assert opening_error(relay, "browser") == "unknown server 'browser'. Known: a, b"
    longer = relay_of(Servers(calculator=with_tools("x")))
    assert "Did you mean 'calculator'?" in opening_error(longer, "calculater")


async def test_servers_that_were_stopped_start_when_they_are_called_or_before() -> None:
    servers = Servers(a=with_tools("x"), b=with_tools("y"))
    relay = relay_of(servers, "c")
    await relay.start()
    assert relay.stop_servers() == ["a", "b"] and servers.ended == [1, 2]
    assert relay.stop_servers() == [] and servers.ended == [1, 2]
    await relay.warm(["c", "b"])
    assert [name for name, _ in servers.started] == ["a", "b", "b"]
    session = relay.open("one", "a")
    assert (await asked(relay, session, "tools/call", name="x"))["content"] == text("x")
    assert relay.stop_servers() == ["a", "b"]


# Tools


async def test_tools_of_one_name_are_told_apart_by_their_server() -> None:
    servers = Servers(a=with_tools("same", "own"), b=with_tools("same"))
    relay = relay_of(servers)
    await relay.start()
    both, one = relay.open("both", ""), relay.open("one", "b")
    assert await listed(relay, both) == ["a__same", "own", "b__same"]
    assert await listed(relay, one) == ["same"]
    for session, tool, server in ((both, "a__same", "a"), (both, "b__same", "b"), (one, "same", "b")):
        arguments = {"text": "é"}
        await asked(relay, session, "tools/call", name=tool, arguments=arguments)
        assert servers.requests[-1] == (server, "tools/call", {"name": "same", "arguments": arguments})
    wrong: Any
    for wrong, more in (("other", ""), (["same"], " Did you mean 'same'?"), (None, "")):
        unknown = await asked(relay, one, "tools/call", name=wrong)
        assert (unknown["code"], unknown["data"]) == (-32602, {"type": "unknown_tool"})
        assert unknown["message"] == f"there is no tool {wrong!r}.{more}"


async def test_a_list_that_comes_in_pages_is_read_to_its_end() -> None:
    def page(_: str, params: dict[str, Any]) -> dict[str, Any]:
        number = params.get("cursor", 0)
        more = {"nextCursor": number + 1} if number < 2 else {}
        return {"result": {"tools": [{"name": f"tool{number}"}], **more}}

    numbers = itertools.count()
    endless = with_tools(tools_list=lambda *_: {"result": {"nextCursor": next(numbers)}})
    servers = Servers(a=with_tools(tools_list=page), b=endless)
    relay = relay_of(servers)
    await relay.start()
    assert await listed(relay, relay.open("one", "")) == ["tool0", "tool1", "tool2"]
    assert relay.broken == {"b": "b gave more than 100 pages of tools/list"}


async def test_a_list_that_changed_is_read_again_and_is_the_old_one_after_the_session() -> None:
    tools = ["old", "change"]

    def change(*_: object) -> dict[str, Any]:
        tools.append("new")
        return {"result": {}, "before": [CHANGED]}

    changing = with_tools(change=change)

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return with_tools(*tools)(method, params) if method == "tools/list" else changing(method, params)

    servers = Servers(a=answer, b=with_tools("other"))
    relay = relay_of(servers)
    await relay.start()
    session, not_concerned = relay.open("one", ""), relay.open("other", "b")
    notifications: list[Any] = []
    session.on_notification = notifications.append
    not_concerned.on_notification = lambda _: notifications.append("for another server")
    relay.open("that does not listen", "")
    await asked(relay, session, "tools/call", name="change")
    assert notifications == [CHANGED]
    assert await listed(relay, session) == ["old", "change", "new", "other"]
    assert (await asked(relay, session, "tools/call", name="new"))["content"] == text("new")
    assert [(name, method) for name, method, _ in servers.requests].count(("a", "tools/list")) == 2
    assert [(name, method) for name, method, _ in servers.requests].count(("b", "tools/list")) == 1
    relay.stop_servers()
    assert await listed(relay, session) == ["old", "change", "other"]


async def test_calls_are_reported_with_what_became_of_them() -> None:
    error = {"code": -5, "message": "a fault", "data": {"more": 1}}
    relay = relay_of(
        Servers(
            a=with_tools(
                "fine",
                "bad",
                "fault",
                "ends",
                bad={"result": {"isError": True}},
                fault={"error": error},
                ends=lambda *_: (_ for _ in ()).throw(BrokenPipeError),
            )
        )
    )
    reports: list[tuple[str, str]] = []
    durations: list[float] = []

    def report(server: str, outcome: str, seconds: float) -> None:
        reports.append((server, outcome))
        durations.append(seconds)

    await relay.start()
    session = relay.open("one", "")
    await asked(relay, session, "tools/call", name="fine")  # nobody listens yet
    relay.report = report
    assert (await asked(relay, session, "tools/call", name="fine"))["content"] == text("fine")
    assert await asked(relay, session, "tools/call", name="bad") == {"isError": True, "content": []}
    assert await asked(relay, session, "tools/call", name="fault") == error
    crashed = await asked(relay, session, "tools/call", name="ends")
    assert crashed == {
        "code": -32000,
        "message": "a ended unexpectedly",
        "data": {"type": "tool_crashed"},
    }
    assert reports == [("a", outcome) for outcome in ("ok", "tool_error", "tool_error", "tool_crashed")]
    assert all(0 <= seconds < WITHIN for seconds in durations)


async def test_progress_has_the_token_of_its_client() -> None:
    def answer(_: str, params: dict[str, Any]) -> dict[str, Any]:
        progress = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
        return {"result": {}, "before": [{"method": "notifications/progress", "params": progress}]}

    servers = Servers(a=with_tools("x", x=answer))
    relay = relay_of(servers)
    await relay.start()
    notifications: list[Any] = []
    params = {"name": "x", "_meta": {"progressToken": "mine", "more": 1}}
    message = {"id": 7, "method": "tools/call", "params": params}
    await relay.answer(relay.open("one", ""), message, notifications.append)
    assert notifications == [
        {"method": "notifications/progress", "params": {"progressToken": "mine", "progress": 1}}
    ]
    assert servers.requests[-1][2]["_meta"]["more"] == 1


# Cancelled requests


@pytest.mark.parametrize("by", ["notification", "end of the session", "client"])
async def test_a_call_that_nobody_waits_for_is_cancelled_at_its_server(by: str) -> None:
    servers = Servers(a=with_tools("x", "waits", waits={"before": []}))
    relay = relay_of(servers)
    await relay.start()
    reports: list[str] = []
    relay.report = lambda _, outcome, __: reports.append(outcome)
    session = relay.open("one", "")
    waiting = asyncio.create_task(asked(relay, session, "tools/call", name="waits"))
    async with asyncio.timeout(WITHIN):
        await arrived(servers, "tools/call")
        if by == "notification":
            for request_id in (8, 7):
                cancelled = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
                relay.accept_notification(session, {**cancelled, "method": "notifications/other"})
                relay.accept_notification(session, {"method": "notifications/cancelled"})
                assert not session.calls[7].cancelling()
                relay.accept_notification(session, cancelled)
        elif by == "client":
            waiting.cancel()
        else:
            assert relay.close("one") and not relay.close("one")
        if by == "client":
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            assert await waiting == {"code": -32800, "message": "cancelled"}
        await arrived(servers, "notifications/cancelled")
    assert (reports, session.calls, servers.ended) == (["cancelled"], {}, [])


# Other requests


async def test_a_greeting_tells_the_version_and_how_long_calls_may_take() -> None:
    relay = relay_of(Servers(a=with_tools("x"), b=with_tools("y")))
    session = relay.open("one", "b")
    for requested, version in (("2024-11-05", "2024-11-05"), ("2000-01-01", "2025-06-18")):
        hello = await asked(relay, session, "initialize", protocolVersion=requested)
        assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == (version, "name")
    assert hello["capabilities"]["tools"] == {"listChanged": True}
    assert hello["capabilities"]["experimental"] == {"aworld-train": {"tool_timeouts": {"b": WITHIN}}}
    assert await asked(relay, session, "ping") == {}


async def test_what_is_not_offered_and_what_is_no_request_are_errors() -> None:
    relay = relay_of(Servers(a=with_tools("x")))
    session = relay.open("one", "")
    assert (await asked(relay, session, "prompts/list"))["code"] == -32601
    for params in ([1], "text"):
        response = await relay.answer(session, {"id": 1, "method": "ping", "params": params}, lambda _: None)
        assert response["error"]["code"] == -32600


async def test_a_resource_comes_from_the_first_server_that_has_it_a_running_one_before_others() -> None:
    def reading(name: str) -> Answer:
        def read(_: str, params: dict[str, Any]) -> dict[str, Any]:
            missing = {"error": {"code": -32002, "message": f"not in {name}"}}
            return {"result": {"from": name}} if params["uri"] in ("both", name) else missing

        uris = {"result": {"resources": [{"uri": name}]}}
        return with_tools("x", initialize=RESOURCES, resources_read=read, resources_list=uris)

    servers = Servers(none=with_tools("x"), a=reading("a"), b=reading("b"))
    relay = relay_of(servers)
    await relay.start()
    session = relay.open("one", "")
    assert await asked(relay, session, "resources/list") == {"resources": [{"uri": "a"}, {"uri": "b"}]}
    assert await asked(relay, session, "resources/templates/list") == {"resourceTemplates": []}
    for uri, server in (("a", "a"), ("b", "b"), ("both", "a")):
        assert await asked(relay, session, "resources/read", uri=uri) == {"from": server}
    assert (await asked(relay, session, "resources/read", uri="c"))["message"] == "not in b"
    for name in ("none", "a"):
        relay.servers[name].stop()
    assert await asked(relay, session, "resources/read", uri="both") == {"from": "b"}
    assert not relay.servers["a"].running
    relay_without = relay_of(Servers(none=with_tools("x")))
    unsupported = await asked(relay_without, relay_without.open("one", ""), "resources/read", uri="a")
    assert unsupported["message"] == "no server here has resources"


# Checks


async def test_a_session_that_checks_has_servers_and_a_site_of_its_own_until_it_is_closed(
    tmp_path: Path,
) -> None:
    servers = Servers(a=with_tools("x"), b=with_tools("y"))
    relay = relay_of(servers)
    test = ProbeCall("x", site=str(tmp_path)[1:], environment={"KEY": "{site_host}"})
    entry = ServerEntry(command=("none",), optional_keys=("KEY",), test=test)
    relay.manifest.servers["a"] = entry
    await relay.start()
    session, other = relay.open("one", "", checking=True), relay.open("other", "")
    arguments = {"text": "{workspace}"}
    for tool, server in (("x", "a"), ("y", "b")):
        await asked(relay, session, "tools/call", name=tool, arguments=arguments)
        filled = {"name": tool, "arguments": {"text": "/workspace"}}
        assert servers.requests[-1] == (server, "tools/call", filled)
        await asked(relay, other, "tools/call", name=tool, arguments=arguments)
        assert servers.requests[-1][2]["arguments"] == arguments
    assert [name for name, environment in servers.started if environment is None] == ["a", "b"]
    name, environment = servers.started[2]
    assert name == "a" and environment is not None
    host, _, port = environment["KEY"].partition(":")
    (await asyncio.open_connection(host, port))[1].close()
    assert relay.close("one")
    assert servers.ended == [3]
    await asyncio.gather(*relay._closing)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
    assert relay._closing == set()
