"""The files of Squid and Unbound, line by line where a line decides who may reach what."""

import hashlib
import ipaddress
from pathlib import Path
from typing import Any

import pytest

from aworld_train.serving.egress.config import write_files
from aworld_train.serving.egress.hosts import parse_host
from aworld_train.serving.egress.settings import ProxyUser, Settings

PASSWORD = "sixteen or more characters"
HOSTS = ("wiki.org", "10.1.0.0/16", "10.1.2.3", ".a.org", ".b.a.org", "api.org:443", "b.org:443", ".c.org:80")


def written(folder: Path, *, is_open: bool = False, hosts: tuple[str, ...] = HOSTS) -> dict[str, str]:
    account = ProxyUser("odd näme", PASSWORD, is_open, tuple(map(parse_host, hosts)))
    forbidden = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "fd00::/8", "::/0")))
    settings = Settings((account,), forbidden, ("/a",), "/c", squid_port=4000, resolver="127.0.0.5")
    write_files(settings, folder, 5000, ["9.9.9.9", "1.1.1.1@5353"], "nobody")
    return {file.name: file.read_text() for file in folder.iterdir()}


def rules(files: dict[str, str]) -> list[str]:
    """Squid's rules of the server."""
    lines = files["squid.conf"].splitlines()
    first = lines.index("http_access deny ipv6 by_address") + 1
    return lines[first : lines.index("http_access deny all by_host")]


def test_each_kind_of_host_has_its_rule_and_each_rule_its_port(tmp_path: Path) -> None:
    denied_or_allowed = [
        "http_access deny s0 {} !resolved by_name",
        "http_access deny s0 {} forbidden by_address",
        "http_access allow s0 {}",
    ]
    assert rules(written(tmp_path)) == [
        "acl s0 proxy_auth odd=20n=C3=A4me",
        "acl s0n0 dstdomain -n wiki.org",
        "acl s0a0 dst -n 10.1.0.0/16",
        "acl s0d0 dstdomain -n .a.org",
        "acl s0p1 port 80",
        "acl s0d1 dstdomain -n .c.org",
        "acl s0p2 port 443",
        "acl s0n2 dstdomain -n api.org b.org",
        "http_access allow s0 s0n0",
        "http_access allow s0 s0a0",
        "http_access allow s0 s0n2 s0p2",
        *(line.format("s0d0") for line in denied_or_allowed),
        *(line.format("s0d1 s0p1") for line in denied_or_allowed),
        "http_access deny s0 by_host",
    ]


def test_an_open_server_reaches_what_has_a_public_address(tmp_path: Path) -> None:
    assert rules(written(tmp_path, is_open=True, hosts=("wiki.org",))) == [
        "acl s0 proxy_auth odd=20n=C3=A4me",
        "acl s0n0 dstdomain -n wiki.org",
        "http_access allow s0 s0n0",
        "http_access deny s0 !resolved by_name",
        "http_access deny s0 forbidden by_address",
        "http_access allow s0",
        "http_access deny s0 by_host",
    ]


def test_a_server_that_names_nothing_reaches_nothing(tmp_path: Path) -> None:
    assert rules(written(tmp_path, hosts=())) == [
        "acl s0 proxy_auth odd=20n=C3=A4me",
        "http_access deny s0 by_host",
    ]


def test_who_asks_and_where_is_decided_before_any_server_s_rule(tmp_path: Path) -> None:
    lines = written(tmp_path)["squid.conf"].splitlines()
    decisions = [line for line in lines if line.startswith("http_access")]
    assert decisions[:4] == [
        "http_access deny manager",
        "http_access deny !authenticated",
        "http_access deny !connect !http by_host",
        "http_access deny ipv6 by_address",
    ]
    assert decisions[-1] == "http_access deny all by_host"
    assert "http_port 127.0.0.1:4000" in lines and "dns_nameservers 127.0.0.5" in lines
    assert "access_log tcp://127.0.0.1:5000 logformat=aworld" in lines
    assert f'acl forbidden dst "{tmp_path}/forbidden"' in lines


def test_a_password_is_kept_as_its_digest_also_where_md5_may_not_be_used_for_security(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def md5(data: bytes, *, usedforsecurity: bool, md5: Any = hashlib.md5) -> Any:
        assert not usedforsecurity
        return md5(data, usedforsecurity=False)

    monkeypatch.setattr(hashlib, "md5", md5)
    files = written(tmp_path)
    digest = hashlib.md5(PASSWORD.encode(), usedforsecurity=False).hexdigest()
    assert files["passwords"] == f"odd=20n=C3=A4me:{digest}\n"
    assert not any(PASSWORD in content for content in files.values())


def test_forbidden_networks_are_squids_without_ipv4_in_ipv6_form(tmp_path: Path) -> None:
    lines = written(tmp_path)["forbidden"].splitlines()
    assert {"10.0.0.0/8", "192.0.2.1/32"} <= set(lines)
    networks = [ipaddress.ip_network(line) for line in lines]
    for address, is_in in (
        ("::ffff:1.2.3.4", False),
        ("2001:4860::1", True),
        ("fd00::1", True),
        ("8.8.8.8", False),
    ):
        assert any(ipaddress.ip_address(address) in one for one in networks) is is_in, address


def test_unbound_replaces_forbidden_addresses_but_of_names_that_are_listed(tmp_path: Path) -> None:
    files = written(tmp_path)
    zone = files["zone"].splitlines()
    listed = [line.split()[0] for line in zone if line.endswith("CNAME rpz-passthru.")]
    assert listed == ["api.org", "b.org", "wiki.org"]
    assert "8.0.0.0.10.rpz-ip A 192.0.2.1" in zone
    assert "0.0.0.0.0.0.0.0.0.rpz-ip AAAA 2001:db8::1" in zone
    # An address may be in one trigger only.
    assert sum(".rpz-ip AAAA" in line for line in zone) == 1
    unbound = files["unbound.conf"].splitlines()
    assert [line.strip() for line in unbound if "forward-addr" in line] == [
        "forward-addr: 9.9.9.9",
        "forward-addr: 1.1.1.1@5353",
    ]
    assert '  username: "nobody"' in unbound and "  interface: 127.0.0.5" in unbound


def test_a_trigger_of_ipv6_is_written_in_full_and_backwards(tmp_path: Path) -> None:
    account = ProxyUser("web", PASSWORD, True, ())
    networks = tuple(map(ipaddress.ip_network, ("fd00:1::/32", "::ffff:10.0.0.0/104")))
    write_files(Settings((account,), networks, (), "/c"), tmp_path, 1, [], "")
    zone = (tmp_path / "zone").read_text().splitlines()
    assert "32.0.0.0.0.0.0.1.fd00.rpz-ip AAAA 2001:db8::1" in zone
    assert any(line.startswith("96.0.0.ffff.0.0.0.0.0.rpz-ip AAAA") for line in zone)
    squids = (tmp_path / "forbidden").read_text().splitlines()
    assert squids == ["192.0.2.1/32", "2001:db8::1/128", "fd00:1::/32"]
