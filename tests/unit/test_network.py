"""Which servers are near, and so are never reached through a proxy, and which proxy leads to the others."""

import httpx
import pytest

from aworld_train.errors import UsageError
from aworld_train.network import is_near, proxy_for, without_passwords
from tests.proxies import proxy_variables

PROXY, OTHER = "http://127.0.0.1:3128", "http://127.0.0.1:3129"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/mcp",
        "http://127.0.0.1/v1",
        "https://10.1.2.3:8443",
        "http://192.168.0.9",
        "http://[::1]:80/mcp",
        "http://[fd00::5]/mcp",
        "http://user:password@127.0.0.1:1/",
    ],
)
def test_this_machine_and_private_addresses_are_near(url: str) -> None:
    assert is_near(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://8.8.8.8",
        "http://[2606:4700::1]/",
        "http://localhost.example.com",
        "http://example.com/127.0.0.1",
        "http://127.0.0.1@example.com/",
    ],
)
def test_names_and_public_addresses_are_not_near(url: str) -> None:
    assert not is_near(url)


def test_what_is_no_url_is_an_error() -> None:
    with pytest.raises(httpx.InvalidURL):
        is_near("http://127.0.0.1:port/")


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "https://a.example/v1", None),
        ({"http": PROXY}, "http://a.example/v1", PROXY),
        ({"http": PROXY}, "https://a.example/v1", None),
        ({"https": PROXY}, "https://a.example/v1", PROXY),
        ({"all": PROXY}, "https://a.example/v1", PROXY),
        ({"all": OTHER, "https": PROXY}, "https://a.example/v1", PROXY),
        ({"all": PROXY, "https": ""}, "https://a.example/v1", PROXY),
        ({"all": PROXY.upper()}, "http://a.example/v1", PROXY.upper()),
        ({"http": "127.0.0.1:3128"}, "http://a.example", "http://127.0.0.1:3128"),
        ({"http": "https://proxy.example"}, "http://a.example", "https://proxy.example"),
        ({"http": "http://user:word@proxy.example"}, "http://a.example", "http://user:word@proxy.example"),
    ],
)
def test_the_proxy_is_the_scheme_s_or_that_for_all(
    variables: dict[str, str], url: str, proxy: str | None
) -> None:
    with proxy_variables(**variables):
        assert proxy_for(url) == proxy


def test_the_variables_may_be_in_upper_case(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy_variables():
        monkeypatch.setenv("ALL_PROXY", PROXY)
        monkeypatch.setenv("NO_PROXY", "b.example")
        assert proxy_for("http://a.example") == PROXY
        assert proxy_for("http://b.example") is None


@pytest.mark.parametrize("url", ["http://localhost:8000", "https://10.1.2.3", "http://[::1]/mcp"])
def test_no_proxy_leads_to_a_near_server(url: str) -> None:
    with proxy_variables(http=PROXY, https=PROXY, all=PROXY):
        assert proxy_for(url) is None


@pytest.mark.parametrize(
    ("no_proxy", "url", "exempt"),
    [
        ("*", "https://a.example", True),
        ("b.example, a.example", "https://a.example/v1", True),
        (".example", "https://a.example/v1", True),
        ("example", "https://a.example", True),
        ("A.Example", "https://a.EXAMPLE", True),
        ("example.com", "https://notexample.com", False),
        ("a.example:443", "https://a.example", True),
        ("a.example:8443", "https://a.example:8443/v1", True),
        ("a.example:8443", "https://a.example", False),
        ("a.example:80", "http://user:word@a.example", True),
        ("8.8.8.8", "http://8.8.8.8:9000", True),
        ("8.8.8.8:80", "http://8.8.8.8:9000", False),
        ("8.8.0.0/16", "http://8.8.4.4:9000", True),
        ("8.8.0.0/16", "http://8.9.4.4", False),
        ("2606:4700::/32", "http://[2606:4700::1]:80/v1", True),
        ("2606:4700::1", "http://[2606:4700::1]", True),
        ("[2606:4700::1]", "https://[2606:4700::1]:8443", True),
        ("2606:4700::1", "http://[2606:4700::2]", False),
        ("8.8.0.0/99,,/,nonsense/8", "http://8.8.8.8", False),
    ],
)
def test_no_proxy_leads_to_what_no_proxy_names(no_proxy: str, url: str, exempt: bool) -> None:
    with proxy_variables(all=PROXY, no=no_proxy):
        assert proxy_for(url) == (None if exempt else PROXY)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "SOCKS4", "ftp"])
def test_another_kind_of_proxy_is_refused_without_its_password(scheme: str) -> None:
    with proxy_variables(all=f"{scheme}://user:sesame@proxy.example:1"):
        with pytest.raises(
            UsageError, match=rf"a {scheme} proxy for a\.example.* HTTPS_PROXY .* NO_PROXY"
        ) as caught:
            proxy_for("https://a.example/v1")
        assert "sesame" not in str(caught.value)
        assert proxy_for("http://127.0.0.1:1") is None


def test_what_is_no_url_has_no_proxy() -> None:
    with pytest.raises(httpx.InvalidURL):
        proxy_for("http://a.example:port/")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("407, url='http://user:word@proxy:1'", "407, url='http://***@proxy:1'"),
        ("http://a@b:p@ss@host/x and https://u:p@h", "http://***@host/x and https://***@h"),
        ("mail a@example.com, see http://example.com/@me", "mail a@example.com, see http://example.com/@me"),
    ],
)
def test_users_and_passwords_of_urls_are_hidden(text: str, expected: str) -> None:
    assert without_passwords(text) == expected
