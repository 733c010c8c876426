"""What each server may reach: its manifest, the environment's ceiling, and what no server reaches without naming it."""

import ipaddress
import json
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.env.egress import (
    EgressRule,
    described_rules,
    egress_passwords,
    egress_rules,
    egress_settings,
    forbidden_networks,
    machine_addresses,
)
from aworld_train.errors import UsageError
from aworld_train.serving.egress.hosts import Host
from aworld_train.serving.egress.settings import read_settings, server_name, user_name
from aworld_train.serving.manifest import Manifest, ServerEntry


def entry(**egress: Any) -> ServerEntry:
    return ServerEntry(function="a:b", optional_keys=("BASE_URL",), **egress)


MANIFEST = Manifest(
    "tools",
    {
        "closed": entry(egress="none"),
        "shell": entry(),
        "model": entry(egress_hosts=("$BASE_URL",)),
        "web": entry(egress="open", egress_hosts=("wiki.internal",)),
    },
)
KEYS = {"BASE_URL": "http://llm.internal:8000/v1"}
OWN = {"model": ("llm.internal:8000",), "web": ("wiki.internal",)}


def shown(ceiling: str | None, hosts: tuple[str, ...] = ()) -> dict[str, tuple[bool, tuple[str, ...]]]:
    rules = egress_rules(MANIFEST, tuple(MANIFEST.servers), KEYS, ceiling, hosts)
    return {name: (rule.is_open, tuple(map(str, rule.hosts))) for name, rule in rules.items()}


def test_a_server_has_what_its_manifest_says_up_to_the_ceiling() -> None:
    own = {"model": (False, OWN["model"]), "web": (True, OWN["web"])}
    assert shown(None) == own
    assert shown("open") == own
    assert shown("listed") == own | {"web": (False, OWN["web"])}
    assert shown("none") == {}


def test_hosts_of_the_environment_are_for_all_that_may_reach_any() -> None:
    more = ("pypi.org:443",)
    all_of_them = {
        "shell": (False, more),
        "model": (False, OWN["model"] + more),
        "web": (True, OWN["web"] + more),
    }
    assert shown(None, more) == all_of_them
    assert shown("open", more) == all_of_them
    assert shown("listed", more) == all_of_them | {"web": (False, OWN["web"] + more)}
    assert shown("none", more) == {}


def test_a_variable_that_is_not_set_names_nothing() -> None:
    assert egress_rules(MANIFEST, ("model",), {}) == {}


def test_servers_that_are_off_have_no_rule() -> None:
    assert set(egress_rules(MANIFEST, ("web",), KEYS)) == {"web"}


def test_what_cannot_be_understood_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Did you mean 'listed'"):
        egress_rules(MANIFEST, ("web",), KEYS, "liste")
    for host in ("https://pypi.org", "$BASE_URL"):
        with pytest.raises(UsageError, match="The environment cannot have its egress_hosts"):
            egress_rules(MANIFEST, ("web",), KEYS, None, (host,))
    with pytest.raises(UsageError, match=r"The server 'model' of tools .*\$BASE_URL"):
        egress_rules(MANIFEST, ("model",), {"BASE_URL": "not a url"})


def test_a_container_reads_the_settings_that_were_made_for_it() -> None:
    rules = egress_rules(MANIFEST, tuple(MANIFEST.servers), KEYS)
    passwords = egress_passwords(rules)
    assert len(set(passwords.values())) == len(rules)
    stored = egress_settings(rules, passwords, ["/a", "/b"], "/c", forbidden_networks())
    settings = read_settings(json.loads(json.dumps(stored)))
    assert {one.server: EgressRule(one.is_open, one.hosts) for one in settings.accounts} == rules
    assert {one.server: one.password for one in settings.accounts} == passwords
    assert settings.forbidden == forbidden_networks()
    assert (settings.sockets, settings.counts) == (("/a", "/b"), "/c")
    assert not any(password in repr(settings) for password in passwords.values())
    assert not any(password in json.dumps(described_rules(rules)) for password in passwords.values())
    for name in ("servers", "forbidden", "sockets", "counts"):
        with pytest.raises(KeyError):
            read_settings({key: value for key, value in stored.items() if key != name})


@given(st.text(min_size=1))
def test_a_server_is_known_to_the_proxy_by_a_name_that_leads_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    user = user_name(name)
    assert set(user) <= set("=.-_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    assert server_name(user) == name


FORBIDDEN = forbidden_networks()


def is_forbidden(address: str | ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(ipaddress.ip_address(address) in network for network in FORBIDDEN)


@given(st.ip_addresses())
def test_every_address_that_the_library_takes_for_not_public_is_forbidden(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_link_local:
        assert is_forbidden(address)


# https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry, as of 2025.
@pytest.mark.parametrize(
    "network",
    [
        "0.0.0.0/8",
        "0.0.0.0/32",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.0.0/29",
        "192.0.0.8/32",
        "192.0.0.9/32",
        "192.0.0.10/32",
        "192.0.0.170/32",
        "192.0.0.171/32",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.88.99.2/32",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "255.255.255.255/32",
        "224.0.0.0/4",
        "::1/128",
        "::/128",
        "::ffff:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "100:0:0:1::/64",
        "2001::/23",
        "2001::/32",
        "2001:1::1/128",
        "2001:1::2/128",
        "2001:1::3/128",
        "2001:2::/48",
        "2001:3::/32",
        "2001:4:112::/48",
        "2001:10::/28",
        "2001:20::/28",
        "2001:30::/28",
        "2001:db8::/32",
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "ff00::/8",
    ],
)
def test_every_block_of_the_registries_is_forbidden(network: str) -> None:
    block = ipaddress.ip_network(network)
    assert is_forbidden(block[0]) and is_forbidden(block[-1])


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"]
)
def test_metadata_services_are_forbidden(address: str) -> None:
    assert is_forbidden(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.215.14", "192.0.1.1", "198.20.0.1", "2606:4700::1111", "2001:4860:4860::8888"],
)
def test_public_addresses_are_not_forbidden(address: str) -> None:
    assert not is_forbidden(address)


def test_this_machine_is_forbidden_by_all_its_addresses() -> None:
    addresses = machine_addresses()
    assert "127.0.0.1" in addresses
    of_cards = {
        one.address for card in psutil.net_if_addrs().values() for one in card if one.family.name == "AF_INET"
    }
    assert of_cards <= set(addresses)
    networks = forbidden_networks([*addresses, "93.184.215.14", "2606:4700::/32"])
    for address in (*addresses, "93.184.215.14", "2606:4700::1"):
        assert any(ipaddress.ip_address(address) in network for network in networks)
    assert not is_forbidden("93.184.215.14")


def test_a_manifest_names_hosts_that_there_can_be() -> None:
    ok = ServerEntry(function="a:b", keys=("URL",), egress_hosts=("$URL", ".a.org", "10.0.0.0/8"))
    assert ok.egress == "listed"
    for hosts, match in (
        (("$OTHER",), "not among its keys"),
        (("https://a.org",), "no"),
        (("10.0.0.1/8",), "host bits"),
    ):
        with pytest.raises(ValueError, match=match):
            ServerEntry(function="a:b", keys=("URL",), egress_hosts=hosts)
    with pytest.raises(ValueError, match="egress is none"):
        ServerEntry(function="a:b", egress="none", egress_hosts=("a.org",))
    assert Host(name=".a.org").is_domain
