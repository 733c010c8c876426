"""Whether an environment answers (`probe`), and whether its tools work (`check_tools`): two questions.

A server that answers ``/health`` may still refuse the token or fail every call, and an agent would then learn
to do without tools. So nothing is reported as up before one real call came back with the right result.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from aworld_train.errors import EnvironmentFailure
from aworld_train.network import is_near
from aworld_train.serving.manifest import TestCall


def health_url(mcp_url: str) -> str:
    """Where the server of that MCP endpoint says that it is alive: ``/health`` on the same host and port."""
    return str(httpx.URL(mcp_url).copy_with(raw_path=b"/health"))


def probe(url: str, timeout: float = 2.0) -> bool:
    """Whether ``url`` answers a GET with success within ``timeout`` seconds; never raises."""
    try:
        # Reading the certificates of the world's authorities takes longer than the rest of a plain request.
        encrypted = httpx.URL(url).scheme == "https"
        return httpx.get(url, timeout=timeout, trust_env=not is_near(url), verify=encrypted).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def read_health(url: str, seconds: float = 2.0) -> dict[str, Any] | None:
    """What a gateway says of itself at its ``/health``, well or not; None where nothing answers."""
    try:
        answer = httpx.get(url, timeout=seconds, trust_env=not is_near(url), verify=False)
        said = answer.json()
        return said if isinstance(said, dict) and "workers" in said else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None


@dataclass(frozen=True)
class ServerCheck:
    """How a tool server did in its test.

    Attributes:
        server: Its name.
        tool: The tool that was called; None where its manifest names none.
        seconds: How long the call took.
        problem: What was wrong; None where the result was as expected.
    """

    server: str
    tool: str | None
    seconds: float
    problem: str | None


@dataclass(frozen=True)
class EnvironmentCheck:
    """What a test of an environment found.

    Attributes:
        opening: Seconds to open a session.
        listing: Seconds to list the tools.
        tools: Their names.
        servers: How each server did.
    """

    opening: float
    listing: float
    tools: list[str]
    servers: list[ServerCheck]


def check_tools(mcp_url: str, token: str, seconds: float = 30.0) -> list[str]:
    """Open a session and list the tools.

    May be called from any thread, whether or not an event loop runs in it.

    Returns:
        The names of the tools.

    Raises:
        EnvironmentFailure: Any of it failed.
    """
    return examine(mcp_url, token, {}, seconds).tools


def check_servers(mcp_url: str, token: str, calls: Mapping[str, TestCall | None], seconds: float) -> None:
    """Make the test call of each server.

    Raises:
        EnvironmentFailure: One did not give what it should, or nothing works at all.
    """
    for found in examine(mcp_url, token, calls, seconds).servers:
        if found.problem is not None:
            raise EnvironmentFailure(
                f"The tool {found.tool!r} of {found.server!r} at {mcp_url} does not work: {found.problem}."
            )


def examine(
    mcp_url: str, token: str, calls: Mapping[str, TestCall | None], seconds: float
) -> EnvironmentCheck:
    """Open a session, list the tools, and make one harmless call of each server.

    May be called from any thread, whether or not an event loop runs in it.

    Args:
        mcp_url: MCP endpoint.
        token: Bearer token.
        calls: For each server a call; its result has to be no error and to contain the expected text.
        seconds: For all of it.

    Raises:
        EnvironmentFailure: There is no session, or no list of tools.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, _examine(mcp_url, token, calls, seconds)).result()


async def _examine(
    mcp_url: str, token: str, calls: Mapping[str, TestCall | None], seconds: float
) -> EnvironmentCheck:
    try:
        async with asyncio.timeout(seconds):
            return await _use_tools(mcp_url, token, calls)
    except Exception as error:
        cause = next(_leaves(error))
        reason = f"no answer within {seconds:.0f} s" if isinstance(cause, TimeoutError) else _in_a_line(cause)
        raise EnvironmentFailure(f"The tools at {mcp_url} cannot be used: {reason}.") from error


async def _use_tools(mcp_url: str, token: str, calls: Mapping[str, TestCall | None]) -> EnvironmentCheck:
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
        mcp_url, headers={"Authorization": f"Bearer {token}"}, httpx_client_factory=client
    )
    began = time.monotonic()
    async with connection as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        opened = time.monotonic()
        names = [tool.name for tool in (await session.list_tools()).tools]
        listed = time.monotonic()
        servers = [await _try(session, server, call, names) for server, call in calls.items()]
        return EnvironmentCheck(opened - began, listed - opened, names, servers)


async def _try(session: Any, server: str, call: TestCall | None, names: list[str]) -> ServerCheck:
    from mcp import McpError
    from mcp.types import TextContent

    if call is None:
        return ServerCheck(server, None, 0.0, None)
    # Where several servers have a tool of that name, each is served with its server's name in front.
    own = f"{server}__{call.tool}"
    began = time.monotonic()
    try:
        result = await session.call_tool(own if own in names else call.tool, dict(call.arguments))
    except McpError as error:
        return ServerCheck(server, call.tool, time.monotonic() - began, error.error.message)
    text = " ".join(part.text for part in result.content if isinstance(part, TextContent))
    fine = not result.isError and call.expect in text
    problem = (
        None
        if fine
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
