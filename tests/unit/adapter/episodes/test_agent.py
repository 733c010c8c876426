"""Agents find the tool server that the environment names, with its token and the recipe's servers."""

import pytest

from aworld_train.rollout.tools import ToolServer
from tests.tool_servers import server_of_settings


@pytest.mark.parametrize(
    ("token", "servers", "headers"),
    [
        ("hush", ["b", "a"], {"Authorization": "Bearer hush", "MCP_SERVERS": "b,a"}),
        ("", [], {}),
    ],
)
def test_a_request_has_the_token_and_the_servers_that_there_are(
    monkeypatch: pytest.MonkeyPatch, token: str, servers: list[str], headers: dict[str, str]
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://tools.example/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", token)
    server = server_of_settings(servers, call=1.5, connect=2.5)
    assert server == ToolServer("http://tools.example/mcp", headers, call_timeout=1.5, connect_timeout=2.5)
