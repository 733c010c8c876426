"""What a tool server sends as its tools and results, brought into the nearest form that MCP gives them.

A client refuses what has another form, and its agent would lose the answer.
https://modelcontextprotocol.io/specification/2025-06-18/server/tools
"""

import json
from collections.abc import Mapping
from typing import Any

from aworld_train.serving.mcp_messages import SERVER_ERROR

_OPTIONAL = {
    **{"description": str, "title": str, "icons": list},
    **dict.fromkeys(("annotations", "outputSchema", "_meta"), dict),
}


def valid_result(result: Any) -> dict[str, Any]:
    """A result with a list of parts as its ``content``; text is among them if there is anything to say."""
    if not isinstance(result, Mapping):
        result = {"content": [] if result is None else result}
    content = result.get("content")
    parts = [] if content is None else content if isinstance(content, list) else [content]
    data = result.get("structuredContent", result.get("toolResult"))
    valid = {**result, "content": [_part(part) for part in parts]}
    if "isError" in result:
        valid["isError"] = result["isError"] in (True, "true", 1)
    if not valid["content"] and data is not None:
        valid["content"] = [_text(data)]
    if not isinstance(data, dict):
        valid.pop("structuredContent", None)
    return valid


def valid_tools(listed: Any) -> list[dict[str, Any]]:
    tools: dict[str, dict[str, Any]] = {}
    for tool in listed if isinstance(listed, list) else []:
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and name and name not in tools:
            known = {key: tool[key] for key in tool if isinstance(tool[key], _OPTIONAL.get(key, object))}
            tools[name] = {**known, "inputSchema": valid_parameters(tool.get("inputSchema"))}
    return list(tools.values())


def valid_parameters(schema: Any) -> dict[str, Any]:
    """A JSON schema of an object with ``properties``; an empty list in their place is PHP's empty object."""
    schema = schema if isinstance(schema, dict) else {}
    properties, required = schema.get("properties"), schema.get("required")
    valid = {**schema, "type": "object", "properties": properties if isinstance(properties, dict) else {}}
    if "required" in schema and not (
        isinstance(required, list) and all(isinstance(key, str) for key in required)
    ):
        del valid["required"]
    return valid


def valid_error(error: Any) -> dict[str, Any]:
    fields = error if isinstance(error, dict) else {"message": error}
    message, code = fields.get("message"), fields.get("code")
    return {
        **fields,
        "code": code if isinstance(code, int) else SERVER_ERROR,
        "message": message if isinstance(message, str) else _text(message or error)["text"],
    }


def _part(part: Any) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str()}:
            return dict(part)
        case {"type": "image" | "audio", "data": str()}:
            return {"mimeType": "application/octet-stream", **part}
        case {"type": "resource", "resource": {"uri": str(), "text": str()} | {"uri": str(), "blob": str()}}:
            return dict(part)
        case {"type": "resource_link", "uri": str(uri)}:
            return {"name": uri, **part}
        case {"type": "resource", "resource": {"text": str(text)}} | {"type": "text" | None, "text": text}:
            return _text("" if text is None else text)
        case {"text": str(text), **rest} if "type" not in rest:
            return _text(text)
        case {"type": str(kind)}:
            return _text(f"[{kind} content, not shown]")
    return _text(part)


def _text(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {"type": "text", "text": text}
