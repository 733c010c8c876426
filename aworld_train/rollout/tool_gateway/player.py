"""The environment played from a cassette: what an MCP server answers that has a list of tools and nothing else."""

import secrets
from typing import Any

from aiohttp import web

from aworld_train import __version__
from aworld_train.rollout.tool_gateway.admission import Call, ToolGatewaySession
from aworld_train.rollout.tool_gateway.messages import (
    METHOD_NOT_FOUND,
    Message,
    answer,
    failure,
    tool_failure,
)

SESSION_HEADER = "Mcp-Session-Id"
_PROTOCOL = "2025-06-18"  # what is said to a client that names none


def play(admission: ToolGatewaySession, request: web.Request, message: Message | None) -> web.Response:
    """The answer of an environment that is switched off."""
    if message is None:
        # No stream for messages that a server begins: none will come. What ends a session has nothing to end.
        return web.Response(status=200 if request.method == "DELETE" else 405)
    if "id" not in message or "method" not in message:
        return web.Response(status=202)
    headers = {SESSION_HEADER: secrets.token_hex(16)} if message["method"] == "initialize" else {}
    return reply(message, _said(admission, message), headers)


def replay_call(admission: ToolGatewaySession, call: Call) -> dict[str, Any] | None:
    """The recorded answer to a call, an error result where there has to be one, None where it is to be made."""
    cassette = admission.cassette
    if cassette is None or not cassette.replays:
        return None
    if call.recorded is not None and (recorded := cassette.find(call.recorded)) is not None:
        admission.counts.replayed += 1
        result = recorded.get("result")
        admission.end_call(call, failed=result is None or bool(result.get("isError")))
        return dict(recorded)
    if cassette.records:
        return None
    admission.counts.missed += 1
    admission.end_call(call, failed=True)
    if call.recorded is None:
        text = f"Error: the arguments of {call.tool} are no JSON object, and so no recorded call"
    else:
        text = cassette.miss(call.recorded)
    return tool_failure(text, "cassette_miss")


def reply(message: Message, said: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    """``said`` as an HTTP response."""
    return web.Response(body=answer(message, said), content_type="application/json", headers=headers)


def _said(admission: ToolGatewaySession, message: Message) -> dict[str, Any]:
    assert admission.cassette is not None
    method = message["method"]
    if method == "initialize":
        params = message.get("params")
        asked = params.get("protocolVersion") if isinstance(params, dict) else None
        return {
            "result": {
                "protocolVersion": asked or _PROTOCOL,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "aworld-train cassette", "version": __version__},
            }
        }
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": admission.cassette.tools(admission.identity)}}
    if method == "tools/call":
        call = admission.begin_call(None, message)
        admission.forget(None, message)
        said = replay_call(admission, call)
        assert said is not None
        return said
    return failure("unsupported", f"a cassette has no {method}", METHOD_NOT_FOUND)
