"""The files that Squid and Unbound read, made from settings.

Squid allows each server first the hosts that it names, whatever their address, then all else that it may reach if no
address of the name is forbidden. Other names are not resolved, so that no data leaves in DNS queries. IPv6 addresses
are refused before anything compares them, since containers have no IPv6, and Squid ends when it converts one
(https://bugs.squid-cache.org/show_bug.cgi?id=5154). For the same reason it does not read /etc/hosts.
"""

import hashlib
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from aworld_train.serving.egress.hosts import Host, Network
from aworld_train.serving.egress.settings import ProxyUser, Settings

LOG_FORMAT = "%>Hs %err_code %{reason}note %>st %<st %un %rm %>rP %>rd"
_SQUID_HELPER = "/usr/lib/squid/basic_ncsa_auth"
_MAX_DESCRIPTORS = 8192
# Unbound replaces forbidden addresses by these (RFC 5737, RFC 3849: for documentation), which Squid refuses.
_REPLACEMENTS = {4: "192.0.2.1", 6: "2001:db8::1"}
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_RECORDS = {4: "A", 6: "AAAA"}
_SQUID = """\
http_port 127.0.0.1:{port}
hosts_file none
visible_hostname aworld-egress
httpd_suppress_version_string on
pid_filename none
coredump_dir {folder}
cache_log /dev/null
logformat aworld {log_format}
access_log tcp://127.0.0.1:{log_port} logformat=aworld
shutdown_lifetime 0 seconds
max_filedescriptors {max_descriptors}

cache deny all
cache_mem 8 MB
maximum_object_size_in_memory 0 KB
netdb_filename none
pinger_enable off
digest_generation off

via off
forwarded_for delete
reply_header_access X-Cache deny all
reply_header_access X-Cache-Lookup deny all
server_persistent_connections off
connect_timeout 15 seconds
forward_timeout 30 seconds
request_timeout 30 seconds

dns_nameservers {resolver}
dns_timeout 15 seconds
positive_dns_ttl 1 minute
negative_dns_ttl 1 second

auth_param basic program {helper} {folder}/passwords
auth_param basic children 4 startup=1 idle=1
auth_param basic realm egress
auth_param basic casesensitive on
acl authenticated proxy_auth REQUIRED
acl connect method CONNECT
acl http proto HTTP
acl ipv6 dstdom_regex -n :
acl resolved dst all
acl forbidden dst "{folder}/forbidden"
acl by_address annotate_transaction reason=address
acl by_host annotate_transaction reason=host
acl by_name annotate_transaction reason=name
deny_info 503:ERR_DNS_FAIL by_name

http_access deny manager
http_access deny !authenticated
http_access deny !connect !http by_host
http_access deny ipv6 by_address
{rules}
http_access deny all by_host
"""
_UNBOUND = """\
server:
  verbosity: 0
  directory: "{folder}"
  chroot: ""
  username: "{user}"
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  interface: {resolver}
  access-control: 127.0.0.0/8 allow
  module-config: "respip iterator"
  do-not-query-localhost: no
  num-threads: 1
  msg-cache-size: 4m
  rrset-cache-size: 8m
  cache-max-negative-ttl: 5
  unblock-lan-zones: yes
  insecure-lan-zones: yes
  local-zone: "home.arpa." nodefault
  local-zone: "test." nodefault
rpz:
  name: "egress."
  zonefile: "{folder}/zone"
forward-zone:
  name: "."
{forwarders}
remote-control:
  control-enable: no
"""
_ZONE = """\
$ORIGIN egress.
$TTL 60
@ SOA localhost. root.localhost. 1 3600 600 86400 60
@ NS localhost.
{rules}
"""


def write_files(
    settings: Settings, folder: Path, log_port: int, nameservers: Iterable[str], user: str
) -> None:
    """Write ``squid.conf``, ``unbound.conf`` and what they read, for the user of the two programs alone.

    Squid writes a line in `LOG_FORMAT` for each request to ``log_port``. Unbound queries ``nameservers`` (ADDRESS or
    ADDRESS@PORT), and changes to ``user`` once it listens; empty: no change.
    """
    forbidden = [*settings.forbidden, *(ipaddress.ip_network(address) for address in _REPLACEMENTS.values())]
    files = {
        "squid.conf": _squid(settings, folder, log_port),
        "passwords": "".join(
            f"{account.user}:{_hashed(account.password)}\n" for account in settings.accounts
        ),
        "forbidden": "".join(f"{network}\n" for network in _for_squid(forbidden)),
        "unbound.conf": _UNBOUND.format(
            folder=folder,
            user=user,
            resolver=settings.resolver,
            forwarders="\n".join(f"  forward-addr: {server}" for server in nameservers),
        ),
        "zone": _ZONE.format(
            rules="\n".join([*_passthrough_rules(settings.accounts), *_replacement_rules(forbidden)])
        ),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def _squid(settings: Settings, folder: Path, log_port: int) -> str:
    rules = [line for number, one in enumerate(settings.accounts) for line in _rules(f"s{number}", one)]
    return _SQUID.format(
        port=settings.squid_port,
        folder=folder,
        log_format=LOG_FORMAT,
        log_port=log_port,
        max_descriptors=_MAX_DESCRIPTORS,
        resolver=settings.resolver,
        helper=_SQUID_HELPER,
        rules="\n".join(rules),
    )


def _rules(label: str, account: ProxyUser) -> list[str]:
    lines = [f"acl {label} proxy_auth {account.user}"]
    allowed: list[str] = []
    public: list[str] = []
    for number, port in enumerate(sorted({host.port or 0 for host in account.hosts})):
        hosts = [host for host in account.hosts if (host.port or 0) == port]
        condition = ""
        if port:
            lines.append(f"acl {label}p{number} port {port}")
            condition = f" {label}p{number}"
        # -n: compare without DNS, neither the name of an address nor the address of a name.
        names = sorted(host.name for host in hosts if host.name and not host.is_domain)
        if names:
            lines.append(f"acl {label}n{number} dstdomain -n {' '.join(names)}")
            allowed.append(f"http_access allow {label} {label}n{number}{condition}")
        networks = _collapsed(host.network for host in hosts if host.network is not None)
        if networks:
            lines.append(f"acl {label}a{number} dst -n {' '.join(map(str, networks))}")
            allowed.append(f"http_access allow {label} {label}a{number}{condition}")
        domains = _outermost(host.name for host in hosts if host.is_domain)
        if domains:
            lines.append(f"acl {label}d{number} dstdomain -n {' '.join(domains)}")
            public.append(f"{label}d{number}{condition}")
    checked = [
        f"http_access deny {label} {{condition}} !resolved by_name",
        f"http_access deny {label} {{condition}} forbidden by_address",
        f"http_access allow {label} {{condition}}",
    ]
    for condition in [""] if account.is_open else public:
        allowed += [line.format(condition=condition).replace("  ", " ").rstrip() for line in checked]
    return [*lines, *allowed, f"http_access deny {label} by_host"]


def _passthrough_rules(accounts: Iterable[ProxyUser]) -> list[str]:
    hosts: set[Host] = {host for account in accounts for host in account.hosts}
    return sorted({f"{host.name} CNAME rpz-passthru." for host in hosts if host.name and not host.is_domain})


def _replacement_rules(networks: Iterable[Network]) -> list[str]:
    """Rules that replace the addresses of forbidden networks, as triggers of a response policy zone.

    An address may be in one trigger only. IPv4 addresses in IPv6 form are forbidden too: no proper name has them.
    """
    return [
        f"{_trigger(network)}.rpz-ip {_RECORDS[network.version]} {_REPLACEMENTS[network.version]}"
        for network in _collapsed([*networks, _MAPPED])
    ]


def _trigger(network: Network) -> str:
    """``PREFIX.ADDRESS-BACKWARDS``, as https://datatracker.ietf.org/doc/html/draft-vixie-dnsop-dns-rpz-00 has it."""
    if network.version == 4:
        parts = str(network.network_address).split(".")
    else:
        # Written in full, without "zz" for omitted zeros.
        parts = [f"{int(part, 16):x}" for part in network.network_address.exploded.split(":")]
    return ".".join([str(network.prefixlen), *reversed(parts)])


def _for_squid(networks: Iterable[Network]) -> list[Network]:
    """The networks without IPv4 addresses in IPv6 form: Squid takes that range for all IPv4 addresses."""
    squid_networks: list[Network] = []
    for network in _collapsed(networks):
        if isinstance(network, ipaddress.IPv6Network) and network.overlaps(_MAPPED):
            squid_networks += network.address_exclude(_MAPPED) if network.supernet_of(_MAPPED) else []
        else:
            squid_networks.append(network)
    return squid_networks


def _collapsed(networks: Iterable[Network]) -> list[Network]:
    every = list(networks)
    four = [network for network in every if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in every if isinstance(network, ipaddress.IPv6Network)]
    return [*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six)]


def _outermost(domains: Iterable[str]) -> list[str]:
    every = set(domains)
    return sorted(
        domain
        for domain in every
        if not any(domain != parent and domain.endswith(parent) for parent in every)
    )


def _hashed(password: str) -> str:
    # One of the forms that basic_ncsa_auth takes. The passwords are random and long, so a slow hash adds nothing.
    return hashlib.md5(password.encode(), usedforsecurity=False).hexdigest()
