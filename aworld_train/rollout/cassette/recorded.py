"""An episode's tools with a cassette: the interface of ``ToolSession``, and no HTTP for calls that it answers."""

from collections.abc import Mapping
from typing import Any, Self

from aworld_train.rollout.cassette.cassette import Answer, Cassette, CassetteReplay, Mode
from aworld_train.rollout.cassette.key import server_identity
from aworld_train.rollout.tool_selection import unknown_tool
from aworld_train.rollout.tools import ToolResult, ToolServer, ToolSession, function_schema, text_of
from aworld_train.serving.tool_results import valid_result


class RecordedTools:
    """The tools of one episode: ``async with RecordedTools(server, cassette) as tools: await tools.call(...)``.

    A session is opened at the first call that is not replayed. ``missed`` counts calls that were not recorded.
    """

    def __init__(self, server: ToolServer, cassette: Cassette | None):
        self._server = server
        self._session = ToolSession(server)
        identity = server_identity(server.url, server.headers)
        self._playback = CassetteReplay(cassette, identity) if cassette else None
        self.replayed = 0
        self.missed = 0

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._session.__aexit__(*exception)

    async def schemas(self) -> list[dict[str, Any]]:
        """The tools that the agent sees."""
        return self._server.selection.apply(await self.all_schemas())

    async def all_schemas(self) -> list[dict[str, Any]]:
        if self._playback is None:
            return await self._server.schemas()
        cassette, identity = self._playback.cassette, self._playback.server
        if cassette.mode is Mode.replay or (cassette.replays and cassette.has_tools(identity)):
            return [function_schema(tool) for tool in cassette.tools(identity)]
        functions = await self._server.schemas()
        cassette.keep_tools(identity, [_as_tool(function["function"]) for function in functions])
        return functions

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool, or take the recorded answer. A call that the client abandoned is not recorded."""
        if not self._server.selection.shows(name):
            return ToolResult(unknown_tool(name), True)
        if self._playback is None:
            return await self._session.call(name, arguments)
        cassette = self._playback.cassette
        try:
            call = self._playback.next(name, arguments)
        except ValueError as error:
            return ToolResult(f"Error: the arguments of {name} cannot be written as JSON: {error}", True)
        if cassette.replays and (answer := cassette.find(call)) is not None:
            self.replayed += 1
            return tool_result(answer)
        if not cassette.records:
            self.missed += 1
            return ToolResult(cassette.miss(call), True)
        result = await self._session.call(name, arguments)
        if result.raw is not None:
            cassette.keep(call, {"result" if "content" in result.raw else "error": result.raw})
        return result


def tool_result(answer: Answer) -> ToolResult:
    if "error" in answer:
        return ToolResult(f"Error: {answer['error'].get('message')}", True, answer["error"], replayed=True)
    result = valid_result(answer["result"])
    return ToolResult(text_of(result), bool(result.get("isError")), result, replayed=True)


def _as_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "inputSchema": function["parameters"],
    }
