"""Which servers are near, and so are never reached through a proxy."""

import httpx
import pytest

from aworld_train.network import is_near


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
