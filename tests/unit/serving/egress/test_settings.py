"""The settings of an egress container, as it reads them."""

import ipaddress
from typing import Any

import pytest

from aworld_train.serving.egress.hosts import Host
from aworld_train.serving.egress.settings import ProxyUser, Settings, read_settings

PASSWORD = "a" * 16
STORED: dict[str, Any] = {
    "servers": {"odd näme": {"password": PASSWORD, "open": 1, "hosts": ["a.org:80"]}},
    "forbidden": ["10.0.0.0/8"],
    "sockets": ["/a", "/b"],
    "counts": "/c",
}


def test_settings_have_defaults_where_they_may_be_left_out() -> None:
    account = ProxyUser("odd näme", PASSWORD, True, (Host(name="a.org", port=80),))
    required = ((account,), (ipaddress.ip_network("10.0.0.0/8"),), ("/a", "/b"), "/c")
    settings = read_settings(STORED)
    assert settings == Settings(*required, (), 3128, "127.0.0.1")
    assert (account.user, PASSWORD in repr(settings)) == ("odd=20n=C3=A4me", False)
    optional = {"nameservers": ["9.9.9.9"], "squid_port": "4000", "resolver": "127.0.0.5"}
    assert read_settings(STORED | optional) == Settings(*required, ("9.9.9.9",), 4000, "127.0.0.5")


def test_a_short_password_is_refused() -> None:
    short = {"a": STORED["servers"]["odd näme"], "b": {"password": "a" * 15, "open": False, "hosts": []}}
    with pytest.raises(ValueError, match="a password has less than 16 characters"):
        read_settings(STORED | {"servers": short})
