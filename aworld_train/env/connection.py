"""How an agent reaches a tool environment: an address, a bearer token, and the configuration made of them.

The token is a secret: only output for programs has it (`EnvConnection.to_json`, the MCP configuration), not ``repr``.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aworld_train.errors import EnvironmentFailure, UsageError, suggestion

SCORING = {"Aworld-Purpose": "scoring"}
"""The header of a session for scoring: it gets a worker that no agent uses."""
SERVER_KEY = "aworld-mcp"
"""The one key under ``mcpServers``; AWorld finds the environment by this name."""
FORMATS = ("mcp", "dotenv", "shell")


@dataclass(frozen=True)
class EnvConnection:
    """A tool environment that is up; it serves ``workers`` sessions (or groups of sessions) at a time."""

    name: str
    ip: str
    port: int
    token: str = field(repr=False)
    mcp_url: str
    vnc_url: str | None
    vnc_password: str | None = field(repr=False)
    workers: int
    backend: str
    started_at: str
    expires_at: str
    image: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields, token included, with ``ip``, ``port`` and ``token`` first."""
        first = {"ip": self.ip, "port": self.port, "token": self.token}
        return {**first, **{name: value for name, value in asdict(self).items() if name not in first}}


def mcp_servers_config(
    url: str, token: str, servers: Sequence[str] = (), timeout: float = 600
) -> dict[str, dict[str, dict[str, Any]]]:
    """The MCP client configuration that AWorld agents take; without ``servers``, all of the environment may be used."""
    headers = {"Authorization": f"Bearer {token}"}
    if servers:
        headers["MCP_SERVERS"] = ",".join(servers)
    return {
        "mcpServers": {
            SERVER_KEY: {
                "type": "streamable-http",
                "url": url,
                "headers": headers,
                "timeout": timeout,
                "sse_read_timeout": timeout,
                "client_session_timeout_seconds": timeout,
            }
        }
    }


def get_agent_tool_env_and_servers(
    servers: Sequence[str] | None = None, *, url: str | None = None, token: str | None = None
) -> tuple[dict[str, dict[str, dict[str, Any]]], list[str]]:
    """What an AWorld ``Agent`` takes as ``mcp_config`` and ``mcp_servers``; without ``servers``, all may be used.

    The endpoint and its bearer token are by default ``MCP_SERVER_URL`` and ``MCP_SERVER_TOKEN``, of the environment
    variables or of ``.env`` in the working directory; EnvironmentFailure if one of them is set nowhere.
    """
    arguments = {"MCP_SERVER_URL": url, "MCP_SERVER_TOKEN": token}
    settings = {**connection_settings(), **{name: value for name, value in arguments.items() if value}}
    missing = [name for name in ("MCP_SERVER_URL", "MCP_SERVER_TOKEN") if not settings.get(name)]
    if missing:
        raise EnvironmentFailure(
            f"{' and '.join(missing)} not set, neither as environment variable nor in .env: start a tool "
            "environment with `aworld-train env up --docker-dir NAME`, then put what "
            "`aworld-train env config NAME --format dotenv` prints into .env."
        )
    config = mcp_servers_config(settings["MCP_SERVER_URL"], settings["MCP_SERVER_TOKEN"], servers or ())
    return config, list(config["mcpServers"])


def connection_settings() -> Mapping[str, str]:
    """The environment variables, and what ``.env`` in the working directory adds to them; empty values do not count."""
    from dotenv import dotenv_values

    in_file = {name: value for name, value in dotenv_values(Path(".env")).items() if value}
    return {**in_file, **{name: value for name, value in os.environ.items() if value}}


def write_config(connection: EnvConnection, form: str) -> str:
    """The connection, token included: ``mcp`` (JSON), ``dotenv`` (``.env`` lines) or ``shell`` (lines for ``eval``)."""
    variables = {"MCP_SERVER_URL": connection.mcp_url, "MCP_SERVER_TOKEN": connection.token}
    if form == "mcp":
        return json.dumps(mcp_servers_config(connection.mcp_url, connection.token), indent=2)
    if form == "dotenv":
        return "\n".join(f"{name}={value}" for name, value in variables.items())
    if form == "shell":
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    raise UsageError(f"Unknown format {form!r}.{suggestion(form, FORMATS)} There are {', '.join(FORMATS)}.")
