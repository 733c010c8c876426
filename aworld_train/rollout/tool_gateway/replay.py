"""The answers that the gateway writes itself: from a cassette, as an MCP server that offers tools and nothing else, and
in place of an environment that gives none."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from aworld_train import __version__
from aworld_train.rollout.tool_gateway.session import Call, ToolGatewaySession
from aworld_train.rollout.tool_selection import unknown_tool
from aworld_train.serving.mcp_messages import (
    METHOD_NOT_FOUND,
    PROTOCOL,
    SESSION_HEADER,
    error,
    member,
)

Message = Mapping[str, Any]


def answer(request: Message, outcome: Mapping[str, Any]) -> bytes:
    """The response to a request; ``outcome`` is ``{"result": ...}`` or ``{"error": ...}``."""
    return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **outcome}).encode()


def tool_failure(text: str, kind: str) -> dict[str, Any]:
    """The result of a tool call that failed, to which the agent can react."""
    return {
        "result": {
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "_meta": {"aworld-train/type": kind},
        }
    }


def play(session: ToolGatewaySession, request: web.Request, message: Message | None) -> web.Response:
    if message is None:
        # There is no stream for messages from the server, since none will come, and no session to end.
        return web.Response(status=200 if request.method == "DELETE" else 405)
    if "id" not in message or "method" not in message:
        return web.Response(status=202)
    headers = {SESSION_HEADER: secrets.token_hex()} if message["method"] == "initialize" else {}
    return reply(message, _replayed_outcome(session, message), headers)


def replay_call(session: ToolGatewaySession, call: Call) -> dict[str, Any] | None:
    """The recorded answer to a call, or an error result if it must be recorded and is not; None: make the call.

    A call of a tool that the agent does not see gets an error result.
    """
    if not session.upstream.selection.shows(call.tool):
        hidden = tool_failure(unknown_tool(call.tool), "unknown_tool")
        session.end_call(call, True, hidden)
        return hidden
    cassette = session.cassette
    if cassette is None or not cassette.replays:
        return None
    if call.recorded is not None and (recorded := cassette.find(call.recorded)) is not None:
        session.counts.replayed += 1
        result = recorded.get("result")
        failed = result is None or bool(result.get("isError"))
        session.end_call(call, failed, recorded, replayed=True)
        return dict(recorded)
    if cassette.records:
        return None
    session.counts.missed += 1
    if call.recorded is None:
        text = f"Error: the arguments of {call.tool} are not a JSON object, so no call of them was recorded"
    else:
        text = cassette.miss(call.recorded)
    missed = tool_failure(text, "cassette_miss")
    session.end_call(call, True, missed)
    return missed


def reply(message: Message, outcome: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=answer(message, outcome), content_type="application/json", headers=headers)


def _replayed_outcome(session: ToolGatewaySession, message: Message) -> dict[str, Any]:
    assert session.cassette is not None
    method = message["method"]
    if method == "initialize":
        version = member(message, "params", "protocolVersion")
        return {
            "result": {
                "protocolVersion": version or PROTOCOL,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "aworld-train cassette", "version": __version__},
            }
        }
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {
            "result": {"tools": session.upstream.selection.apply(session.cassette.tools(session.identity))}
        }
    if method == "tools/call":
        call = session.begin_call(None, message)
        session.forget(None, message)
        recorded = replay_call(session, call)
        assert recorded is not None
        return recorded
    return {"error": error("unsupported", f"a cassette has no {method}", METHOD_NOT_FOUND)}
