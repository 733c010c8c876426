"""Probing: a yes or a no, never an exception, and errors of tools in one line."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from aworld_train.env import examine, health_url, probe
from aworld_train.errors import EnvironmentFailure

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (204, True), (401, False), (503, False)])
def test_only_success_is_healthy(status: int, healthy: bool) -> None:
    with answering(status) as url:
        assert probe(url) is healthy


def test_silence_and_refusal_and_nonsense_are_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not probe(f"http://127.0.0.1:{silent.getsockname()[1]}/health", timeout=0.1)
    assert not probe("http://127.0.0.1:1/health")
    assert not probe("no url")
    assert not probe("http://[")


def test_a_proxy_in_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(200) as url:
        assert probe(url)


def test_health_is_asked_for_beside_the_mcp_endpoint() -> None:
    assert health_url("http://host:8080/mcp?x=1") == "http://host:8080/health"


def test_a_token_that_is_refused_is_said_to_be() -> None:
    with answering(401) as url, pytest.raises(EnvironmentFailure, match=r"refuses the token \(401\)"):
        examine(url, "wrong", {}, 30.0)


def test_tools_nobody_serves_are_an_error_in_one_line() -> None:
    with pytest.raises(
        EnvironmentFailure, match=r"http://127\.0\.0\.1:1/mcp cannot be used: ConnectError"
    ) as caught:
        examine("http://127.0.0.1:1/mcp", "t", {}, 30.0)
    assert "\n" not in caught.value.message


def test_tools_that_keep_silent_are_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        with pytest.raises(EnvironmentFailure, match="no answer within 0 s"):
            examine(url, "t", {}, 0.3)
