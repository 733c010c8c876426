"""Whether an environment answers (`probe`), and whether its tools work (`examine`): two separate checks.

A server that answers ``/health`` may still fail every call, and an agent would then learn to do without tools. So
nothing is reported as up before a real tool call has returned the expected result.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import httpx

from aworld_train.errors import EnvironmentFailure
from aworld_train.network import is_near
from aworld_train.serving.channel import CHECK_HEADER
from aworld_train.serving.manifest import ProbeCall
from aworld_train.serving.mcp_messages import read_limits

_MAX_CALLS = 4  # at a time: a worker's memory is limited
_MAX_NAMED = 5
REPORT_SECONDS = 10.0
MORE_TIME = "If it only needs longer, give it more time: --wait of `env up`, env.ready_timeout in a recipe."


def health_url(mcp_url: str) -> str:
    return str(httpx.URL(mcp_url).copy_with(raw_path=b"/health"))


def probe(url: str, timeout: float = 2.0) -> bool:
    try:
        # Loading the certificates of all authorities takes longer than the rest of a plain request.
        encrypted = httpx.URL(url).scheme == "https"
        return httpx.get(url, timeout=timeout, trust_env=not is_near(url), verify=encrypted).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def read_health(url: str) -> dict[str, Any] | None:
    """A gateway's description of itself at its ``/health``, healthy or not; None where nothing answers."""
    try:
        response = httpx.get(url, timeout=2.0, trust_env=not is_near(url), verify=False)
        health = response.json()
        return health if isinstance(health, dict) and "workers" in health else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


@dataclass(frozen=True)
class ServerCheck:
    """The result of a tool server's test; ``tool`` is None where its manifest names no call."""

    server: str
    tool: str | None
    seconds: float
    problem: str | None


@dataclass(frozen=True)
class EnvironmentCheck:
    """The result of an environment's test, in seconds; ``limits`` are those of a call by server, where it says them."""

    opening: float
    listing: float
    tools: list[str]
    servers: list[ServerCheck]
    limits: dict[str, float]


def check_servers(
    mcp_url: str,
    token: str,
    calls: Mapping[str, ProbeCall | None],
    seconds: float,
    report_progress: Callable[[str], None] = lambda _: None,
) -> None:
    checks = examine(mcp_url, token, calls, seconds, report_progress).servers
    failed = [check for check in checks if check.problem is not None]
    if failed:
        raise EnvironmentFailure(
            " ".join(
                f"The tool {check.tool!r} of {check.server!r} at {mcp_url} does not work: {check.problem}."
                for check in failed
            )
        )


def examine(
    mcp_url: str,
    token: str,
    calls: Mapping[str, ProbeCall | None],
    seconds: float,
    report_progress: Callable[[str], None] = lambda _: None,
) -> EnvironmentCheck:
    """Open a session, list the tools, and make one harmless call of each server; may be called from any thread."""
    steps = _Steps()
    with ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(asyncio.run, _examine(mcp_url, token, calls, seconds, steps))
        while wait([result], timeout=REPORT_SECONDS).not_done:
            report_progress(f"Testing the tools at {mcp_url}: {steps.current}.")
        return result.result()


@dataclass
class _Steps:
    current: str = "a session is opened"


async def _examine(
    mcp_url: str, token: str, calls: Mapping[str, ProbeCall | None], seconds: float, steps: _Steps
) -> EnvironmentCheck:
    try:
        async with asyncio.timeout(seconds):
            return await _use_tools(mcp_url, token, calls, steps)
    except Exception as error:
        cause = next(_leaves(error))
        if not isinstance(cause, TimeoutError):
            raise EnvironmentFailure(
                f"The tools at {mcp_url} cannot be used: {_in_a_line(cause)}."
            ) from error
        raise EnvironmentFailure(
            f"The tools at {mcp_url} cannot be used: no answer within {seconds:.0f} s, while {steps.current}. "
            f"{MORE_TIME}"
        ) from error


async def _use_tools(
    mcp_url: str, token: str, calls: Mapping[str, ProbeCall | None], steps: _Steps
) -> EnvironmentCheck:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
        auth: httpx.Auth | None = None,
    ) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=headers, timeout=timeout, auth=auth, trust_env=not is_near(mcp_url))

    # Newer releases of the 1.x SDK prefer another function, which the older ones do not have.
    connection = streamablehttp_client(
        mcp_url,
        headers={"Authorization": f"Bearer {token}", CHECK_HEADER: "1"},
        httpx_client_factory=client,
    )

    async def note_wait(params: Any) -> None:
        steps.current = str(params.data)

    began = time.monotonic()
    async with (
        connection as (read, write, _),
        ClientSession(read, write, logging_callback=note_wait) as session,
    ):
        capabilities = (await session.initialize()).capabilities
        session_open = time.monotonic()
        steps.current = "its tools are listed"
        names = [tool.name for tool in (await session.list_tools()).tools]
        listed = time.monotonic()
        unanswered = [server for server, call in calls.items() if call is not None]
        turns = asyncio.Semaphore(_MAX_CALLS)

        async def test(server: str, call: ProbeCall | None) -> ServerCheck:
            if call is None:
                return ServerCheck(server, None, 0.0, None)
            async with turns:
                checked = await _make_call(session, server, call, names)
            unanswered.remove(server)
            steps.current = f"tools are called, of {_named(unanswered)}"
            return checked

        steps.current = f"tools are called, of {_named(unanswered)}"
        servers = await asyncio.gather(*(test(server, call) for server, call in calls.items()))
        limits = read_limits(capabilities.model_dump())
        return EnvironmentCheck(session_open - began, listed - session_open, names, list(servers), limits)


def _named(servers: list[str]) -> str:
    more = f" and {len(servers) - _MAX_NAMED} more" if len(servers) > _MAX_NAMED else ""
    return ", ".join(servers[:_MAX_NAMED]) + more


async def _make_call(session: Any, server: str, call: ProbeCall, names: list[str]) -> ServerCheck:
    from mcp import McpError
    from mcp.types import TextContent

    # Where several servers have a tool of the same name, each tool's name starts with its server's.
    qualified_name = f"{server}__{call.tool}"
    began = time.monotonic()
    try:
        name = qualified_name if qualified_name in names else call.tool
        result = await session.call_tool(name, dict(call.arguments))
    except McpError as error:
        return ServerCheck(server, call.tool, time.monotonic() - began, error.error.message)
    text = " ".join(part.text for part in result.content if isinstance(part, TextContent))
    as_expected = not result.isError and call.expect in text
    problem = (
        None
        if as_expected
        else f"it answered {text[:200]!r} to {call.arguments}, where {call.expect!r} was expected"
    )
    return ServerCheck(server, call.tool, time.monotonic() - began, problem)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _in_a_line(error: BaseException) -> str:
    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.UNAUTHORIZED:
        return "it refuses the token (401)"
    return f"{type(error).__name__}: {error}".partition("\n")[0]
