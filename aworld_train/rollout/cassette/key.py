"""The identity of tool calls: two calls are the same if server, tool and canonical arguments are equal.

The canonical form follows RFC 8785 (JSON Canonicalization Scheme) in sorted keys, no spaces, and one form for each
number, so that ``1``, ``1.0`` and ``1e0`` are equal. Whole numbers beyond a double keep all their digits.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aworld_train.network import is_near

_SERVERS_HEADERS = ("mcp_servers", "mcp-servers")


@dataclass(frozen=True)
class CallKey:
    """One call, with how many times its episode has made it; ``arguments`` are canonical JSON without ignored ones."""

    server: str
    tool: str
    arguments: str
    nth: int

    def digest(self) -> bytes:
        """16 bytes that are equal for calls that differ only in ``nth``."""
        encoded = json.dumps([self.server, self.tool, self.arguments]).encode()
        return hashlib.blake2b(encoded, digest_size=16).digest()


def canonical(arguments: Mapping[str, Any] | None, ignore: Collection[str] = ()) -> str:
    """``arguments`` as canonical JSON, without those named in ``ignore``.

    Raises ``ValueError`` for NaN, half a surrogate pair and too deep nesting.
    """
    compared = {name: value for name, value in (arguments or {}).items() if name not in ignore}
    try:
        text = json.dumps(
            _normalized(compared), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    text.encode()
    return text


def server_identity(url: str, headers: Mapping[str, str]) -> str:
    """A name of a tool server that does not depend on where it runs: ``local`` or its host, and the chosen servers.

    An environment gets another port each time, and the path of a hosted server may be a secret.
    """
    host = urlsplit(url).hostname or ""
    location = "local" if "." not in host or is_near(url) else host
    chosen = next((value for name, value in headers.items() if name.lower() in _SERVERS_HEADERS), "")
    servers = sorted({name.strip() for name in chosen.split(",")} - {""})
    return f"{location}:{','.join(servers)}" if servers else location


def _normalized(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _normalized(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalized(item) for item in value]
    return value
