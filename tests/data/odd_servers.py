"""Tool servers that speak MCP in ways of their own: the first argument says which.

Each has a tool ``speak``. A way is what stands in the answer to its call, in place of a result, or in what is written.
"""

import json
import os
import sys
from typing import Any

WAY = sys.argv[1]
ANSWERS: dict[str, dict[str, Any]] = {
    "data-alone": {"result": {"structuredContent": {"degrees": 22.5}}},
    "no-content": {"result": {}},
    "null-content": {"result": {"content": None}},
    "null-result": {"result": None},
    "text-for-content": {"result": {"content": "just text"}},
    "text-for-result": {"result": "plain"},
    "part-without-type": {"result": {"content": [{"text": "untyped"}]}},
    "part-of-no-kind": {
        "result": {"content": [{"type": "video", "data": ""}, {"type": "text", "text": "after"}]}
    },
    "number-for-text": {"result": {"content": [{"type": "text", "text": 42}]}},
    "error-as-text": {"result": {"content": [{"type": "text", "text": "missing"}], "isError": "true"}},
    "link": {
        "result": {
            "content": [{"type": "resource_link", "uri": "file:///a.pdf", "name": "a.pdf", "title": "A"}]
        }
    },
    "embedded": {"result": {"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "c"}}]}},
    "embedded-csv": {
        "result": {
            "content": [
                {"type": "resource", "resource": {"uri": "a://b", "mimeType": "text/csv", "blob": "MSwy"}}
            ]
        }
    },
    "embedded-bytes": {
        "result": {"content": [{"type": "resource", "resource": {"uri": "a://b", "blob": "/w=="}}]}
    },
    "error-of-text": {"error": "boom"},
    "error-without-message": {"error": {"code": "E1"}},
    "error-null": {"error": None, "result": {"content": [{"type": "text", "text": "fine"}]}},
    "not-a-number": {"result": {"structuredContent": {"degrees": float("nan")}}},
    "half-a-pair": {"result": {"content": [{"type": "text", "text": "a\ud800b"}]}},
}
BEFORE = {
    "no-line-end": b"Working {1}... ",
    "carriage-return": b"10%\r100%\r",
    "byte-order-mark": b"\xef\xbb\xbf",
    "other-encoding": b"caf\xe9: ",
    "two-in-a-line": b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}} ',
}
TOOLS: dict[str, list[Any]] = {
    "no-schema": [{"name": "speak", "description": None}],
    "php-schema": [{"name": "speak", "inputSchema": {"type": "object", "properties": [], "required": {}}}],
    "names-missing": [None, {}, {"name": "speak"}, {"name": "speak"}, {"name": 5}],
}
SPEAK = {"name": "speak", "description": "Speaks.", "inputSchema": {"type": "object"}}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        number = request["id"]
        answer = {
            "jsonrpc": "2.0",
            "id": str(number) if WAY == "id-as-text" else number,
            **answer_to(request),
        }
        data = json.dumps([answer] if WAY == "batch" else answer).encode()
        calling = request["method"] == "tools/call"
        os.write(1, (BEFORE.get(WAY, b"") if calling else b"") + data + b"\n")


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            capabilities: Any = [] if WAY == "php-capabilities" else {"tools": {}}
            return {
                "result": {"protocolVersion": "2024-11-05", "capabilities": capabilities, "serverInfo": {}}
            }
        case "tools/list":
            cursors = {"empty-cursor": "", "same-cursor": "again"}
            return {"result": {"tools": TOOLS.get(WAY, [SPEAK]), "nextCursor": cursors.get(WAY)}}
        case "tools/call":
            if WAY == "dies":
                os._exit(3)
            if WAY == "asks-back":
                os.write(1, b'{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}\n')
                assert "error" in json.loads(sys.stdin.readline())
            return ANSWERS.get(WAY, {"result": {"content": [{"type": "text", "text": f"I am {WAY}"}]}})
    return {"error": {"code": -32601, "message": "Method not found"}}


main()
