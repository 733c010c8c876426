"""What agents are given to reach an environment, and that it is never shown by accident."""

import json
from pathlib import Path

import pytest

from aworld_train.env import EnvConnection, get_agent_tool_env_and_servers, mcp_servers_config
from aworld_train.env.connection import write_config
from aworld_train.errors import EnvironmentFailure, UsageError

CONNECTION = EnvConnection(
    name="tools",
    ip="127.0.0.1",
    port=8080,
    token="s3cret",
    mcp_url="http://127.0.0.1:8080/mcp",
    vnc_url="http://127.0.0.1:8080/vnc/",
    vnc_password="pa55word",
    workers=2,
    backend="docker",
    started_at="2026-01-01T00:00:00+00:00",
    expires_at="2026-01-31T00:00:00+00:00",
)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    monkeypatch.delenv("MCP_SERVER_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)


def test_json_begins_with_ip_port_and_token_in_this_order() -> None:
    keys = list(CONNECTION.to_json())
    assert keys == [
        *("ip", "port", "token", "name", "mcp_url", "vnc_url", "vnc_password"),
        *("workers", "backend", "started_at", "expires_at", "image"),
    ]


def test_neither_token_nor_password_is_in_the_repr() -> None:
    assert "s3cret" not in repr(CONNECTION)
    assert "pa55word" not in repr(CONNECTION)


def test_the_configuration_has_the_shape_aworld_takes() -> None:
    assert mcp_servers_config("http://h:1/mcp", "t", ["a", "b"]) == {
        "mcpServers": {
            "aworld-mcp": {
                "type": "streamable-http",
                "url": "http://h:1/mcp",
                "headers": {"Authorization": "Bearer t", "MCP_SERVERS": "a,b"},
                "timeout": 600,
                "sse_read_timeout": 600,
                "client_session_timeout_seconds": 600,
            }
        }
    }


def test_without_servers_no_choice_is_sent() -> None:
    server = mcp_servers_config("http://h:1/mcp", "t", timeout=5)["mcpServers"]["aworld-mcp"]
    assert server["headers"] == {"Authorization": "Bearer t"}
    assert server["timeout"] == server["sse_read_timeout"] == 5


def test_the_agent_gets_url_token_and_servers_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://h:1/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "t")
    config, names = get_agent_tool_env_and_servers(["a"])
    assert config == mcp_servers_config("http://h:1/mcp", "t", ["a"])
    assert names == ["aworld-mcp"]


def test_environment_variables_go_before_the_env_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("MCP_SERVER_URL=http://file:1/mcp\nMCP_SERVER_TOKEN=from-file\n")
    monkeypatch.setenv("MCP_SERVER_URL", "http://variable:1/mcp")
    config, _ = get_agent_tool_env_and_servers()
    server = config["mcpServers"]["aworld-mcp"]
    assert server["url"] == "http://variable:1/mcp"
    assert server["headers"]["Authorization"] == "Bearer from-file"


def test_an_env_file_written_by_config_is_understood() -> None:
    Path(".env").write_text(write_config(CONNECTION, "dotenv") + "\n")
    config, _ = get_agent_tool_env_and_servers()
    assert config == mcp_servers_config(CONNECTION.mcp_url, CONNECTION.token)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailure, match="MCP_SERVER_URL and MCP_SERVER_TOKEN not set"):
        get_agent_tool_env_and_servers()
    monkeypatch.setenv("MCP_SERVER_URL", "http://h:1/mcp")
    with pytest.raises(EnvironmentFailure, match=r"^MCP_SERVER_TOKEN not set"):
        get_agent_tool_env_and_servers()


def test_each_format_carries_url_and_token() -> None:
    assert json.loads(write_config(CONNECTION, "mcp")) == mcp_servers_config(CONNECTION.mcp_url, "s3cret")
    assert write_config(CONNECTION, "shell").splitlines() == [
        "export MCP_SERVER_URL=http://127.0.0.1:8080/mcp",
        "export MCP_SERVER_TOKEN=s3cret",
    ]


def test_an_unknown_format_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'dotenv'"):
        write_config(CONNECTION, "dotnev")
