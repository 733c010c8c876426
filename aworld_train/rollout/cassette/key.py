"""When two tool calls are the same call: the same server, tool, and arguments in one canonical form.

The form is that of RFC 8785 (JSON Canonicalization Scheme) where it matters here: sorted keys, no spaces, and one way
to write each number, so that ``1``, ``1.0`` and ``1e0`` are equal. Whole numbers beyond a double keep all their digits.
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
    """One call: who is asked for what, and how many times its episode has asked for it, this time included.

    ``arguments`` is canonical JSON, without those that its tool's rule ignores.
    """

    server: str
    tool: str
    arguments: str
    nth: int

    def digest(self) -> bytes:
        """16 bytes that all calls share that differ in ``nth`` only."""
        said = json.dumps([self.server, self.tool, self.arguments]).encode()
        return hashlib.blake2b(said, digest_size=16).digest()


def canonical(arguments: Mapping[str, Any] | None, ignore: Collection[str] = ()) -> str:
    """``arguments`` as canonical JSON, without those named in ``ignore``.

    Raises:
        ValueError: They cannot be written as JSON: a number that is none, half a character, too many brackets.
    """
    kept = {name: value for name, value in (arguments or {}).items() if name not in ignore}
    try:
        text = json.dumps(
            _plain(kept), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    text.encode()
    return text


def server_identity(url: str, headers: Mapping[str, str]) -> str:
    """A name of a tool server that is the same wherever it runs: ``local``, or its host, and the servers chosen.

    Neither port nor path nor user are part of it: an environment gets another port each time, and the path of a
    hosted server may be a secret. ``local`` is this machine, its network, and every host without a domain.
    """
    host = urlsplit(url).hostname or ""
    place = "local" if "." not in host or is_near(url) else host
    chosen = next((value for name, value in headers.items() if name.lower() in _SERVERS_HEADERS), "")
    servers = sorted({name.strip() for name in chosen.split(",")} - {""})
    return f"{place}:{','.join(servers)}" if servers else place


def _plain(value: Any) -> Any:
    """``value`` with every number that is whole as an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return value
