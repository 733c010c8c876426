"""Hosts as people write them: what each form means, and what is no host."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.egress.hosts import Host, hosts_in, parse_host, resolve_hosts

LONGEST = ".".join(["a" * 63] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pypi.org", Host(name="pypi.org")),
        (" PyPI.org. ", Host(name="pypi.org")),
        ("pypi.org:443", Host(name="pypi.org", port=443)),
        ("pypi.org:1", Host(name="pypi.org", port=1)),
        ("pypi.org:65535", Host(name="pypi.org", port=65535)),
        (LONGEST, Host(name=LONGEST)),
        ("llm", Host(name="llm")),
        ("1.llm", Host(name="1.llm")),
        ("0x1.llm", Host(name="0x1.llm")),
        ("my_host.internal", Host(name="my_host.internal")),
        ("bücher.example", Host(name="xn--bcher-kva.example")),
        (".wikipedia.org", Host(name=".wikipedia.org")),
        (".wikipedia.org:443", Host(name=".wikipedia.org", port=443)),
        ("10.0.0.5", Host(network=ipaddress.ip_network("10.0.0.5/32"))),
        ("10.0.0.5:80", Host(network=ipaddress.ip_network("10.0.0.5/32"), port=80)),
        ("10.0.0.0/8", Host(network=ipaddress.ip_network("10.0.0.0/8"))),
        ("::ffff:10.0.0.5", Host(network=ipaddress.ip_network("10.0.0.5/32"))),
    ],
)
def test_a_host_is_read_and_written(text: str, expected: Host) -> None:
    assert parse_host(text) == expected
    assert parse_host(str(expected)) == expected


@pytest.mark.parametrize("text", ["fd00::1", "[fd00::1]", "[fd00::1]:80", "fd00::/8"])
def test_an_ipv6_address_is_refused_because_environments_have_none(text: str) -> None:
    with pytest.raises(ValueError, match="is IPv6, and an environment's way out has IPv4 alone"):
        parse_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a b",
        "pypi.org:0",
        "pypi.org:65536",
        "pypi.org:000080",
        f"{LONGEST}a",
        "pypi.org:x",
        "https://pypi.org",
        "pypi.org/simple",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "0.0.0.0/0",
        "::/0",
        "::/1",
        "::ffff:10.0.0.0/104",
        "127.1",
        "a.b.1",
        "0x7f000001",
        "2130706433",
        "fe80::1%eth0",
        "-a.org",
        "a..org",
        "*.org",
        "$X",
        "a" * 64,
        "a\nhttp_access allow all",
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_host(text)


def test_a_variable_holds_urls_or_hosts() -> None:
    hosts = hosts_in(
        "http://LLM.internal:8000/v1, https://api.example.org/v1?x=1,http://10.0.0.5/,wiki.internal,10.0.0.6:80,"
    )
    assert list(map(str, hosts)) == [
        "llm.internal:8000",
        "api.example.org:443",
        "10.0.0.5:80",
        "wiki.internal",
        "10.0.0.6:80",
    ]
    assert hosts_in("https://{language}.wikipedia.org") == (Host(name=".wikipedia.org", port=443),)
    for value in ("ftp://x", "http://", "http://[", "http://a:99999/"):
        with pytest.raises(ValueError, match="URL"):
            hosts_in(value)


def test_variables_are_looked_up_and_a_value_is_in_no_error() -> None:
    assert resolve_hosts(("$A", "b.org", "$NONE"), {"A": "http://a.org"}) == (
        Host(name="a.org", port=80),
        Host(name="b.org"),
    )
    for value in ("gopher://secret", "secret/secret", "ok.org,se cret:secret", "secret:0"):
        with pytest.raises(ValueError, match=r"^\$A: it holds ") as caught:
            resolve_hosts(("$A",), {"A": value})
        assert "secret" not in str(caught.value)


addresses = st.ip_addresses(v=4).map(str)
ports = st.none() | st.integers(1, 65535)


@given(addresses, ports)
def test_any_address_is_read_as_it_was_written(address: str, port: int | None) -> None:
    host = parse_host(address if port is None else f"{address}:{port}")
    assert host.port == port
    assert host.network is not None and host.network.num_addresses == 1
    assert parse_host(str(host)) == host


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_a_host_that_is_taken_has_nothing_that_a_configuration_would_take_for_more(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    assert set(str(host)) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-_:/[]")
