"""What becomes of the proxy's password, which is this server's own, and of answers that are the proxy's own.

That tools go through a real proxy is tested with Squid, in the project that this one is a part of.
"""

import os

import pytest
from gaia_tools import python_code, upstream
from gaia_tools.addresses import Refused
from gaia_tools.browser import chromium
from mcp.server.fastmcp.exceptions import ToolError

from tests.conftest import content

URL = "http://web:password@127.0.0.1:3128"


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in upstream.VARIABLES:
        monkeypatch.setenv(name, URL)


def test_without_the_variable_there_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in upstream.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert upstream.proxy("a.org") is None
    monkeypatch.setenv("https_proxy", URL)
    found = upstream.proxy("a.org")
    assert found is not None and (found.host, found.port, found.user) == ("127.0.0.1", 3128, "web")


@pytest.mark.usefixtures("proxied")
def test_what_a_session_serves_to_itself_is_not_sought_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1, localhost")
    assert upstream.proxy("127.0.0.1") is upstream.proxy("LOCALHOST") is None
    assert upstream.proxy("127.0.0.2") is not None


@pytest.mark.usefixtures("proxied")
def test_programs_of_the_browser_do_not_get_the_password() -> None:
    with chromium._without_keys():
        assert URL not in os.environ.values()
    assert os.environ["HTTPS_PROXY"] == URL


@pytest.mark.usefixtures("proxied")
async def test_python_code_has_the_way_out_that_its_server_has() -> None:
    found = await content(
        python_code.server, "run_python_code", code="import os; print(os.environ['https_proxy'])"
    )
    assert found["stdout"].strip() == URL


@pytest.mark.parametrize(
    ("status", "header", "kind", "text"),
    [
        (403, "ERR_ACCESS_DENIED 0", Refused, "a.org is not a public address, or not allowed"),
        (407, "ERR_CACHE_ACCESS_DENIED 0", ToolError, "does not take this server's password"),
        (503, "503:ERR_DNS_FAIL 0", upstream.Unreachable, "its name does not lead to an address"),
        (503, "ERR_CONNECT_FAIL 111", upstream.Unreachable, "nothing answers there"),
        (502, "ERR_READ_ERROR 104", upstream.Unreachable, "the proxy answers 502 ERR_READ_ERROR"),
        (502, "", upstream.Unreachable, "the proxy answers 502"),
    ],
)
def test_an_answer_of_the_proxy_itself_is_an_error_that_says_what_is_wrong(
    status: int, header: str, kind: type[Exception], text: str
) -> None:
    failure = upstream.failure("a.org", status, {upstream.HEADER: header})
    assert type(failure) is kind
    assert text in str(failure)
