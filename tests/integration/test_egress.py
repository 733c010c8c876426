"""The egress of an environment, with the real Squid: each server reaches what it may, and nothing else."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import psutil
import pytest
import requests

from aworld_train.env.egress import EgressRule
from aworld_train.serving.egress.hosts import resolve_hosts
from aworld_train.serving.egress.settings import user_name
from aworld_train.serving.env_gateway.metrics import EgressCounts
from tests.egress import (
    PUBLIC,
    SECOND_PUBLIC,
    Egress,
    need_network_namespaces,
    resolve,
    running,
    site,
    start,
    wait_until_up,
)

SECONDS = 20.0
PRIVATE = "127.66.0.1"
NOT_PUBLIC = (
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "2130706433",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[2001:0:7f00:1::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.88.99.1",
    "10.0.0.1",
    "172.17.0.1",
    "192.168.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "localhost",
    "localhost.",
    "private.example.org",
    "mixed.example.org",
    "metadata.example.org",
    "mapped.example.org",
    "six.example.org",
)


def open_to(*hosts: str) -> EgressRule:
    return EgressRule(True, resolve_hosts(hosts, {}))


def listed(*hosts: str) -> EgressRule:
    return EgressRule(False, resolve_hosts(hosts, {}))


async def get(egress: Egress, url: str, server: str = "web", proxy: str | None = None) -> tuple[int, str]:
    """Status and error of a plain request through the proxy, by aiohttp."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http,
        http.get(url, proxy=proxy or egress.url(server)) as response,
    ):
        await response.read()
        return response.status, response.headers.get("X-Squid-Error", "").partition(" ")[0]


async def connect(egress: Egress, target: str, server: str = "web") -> int:
    """Status of a CONNECT; the tunnel is closed."""
    return await raw(egress, f"CONNECT {target} HTTP/1.1", server)


async def raw(egress: Egress, line: str, server: str = "web") -> int:
    """Status of a request with that line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", egress.port)
    try:
        async with asyncio.timeout(SECONDS):
            writer.write(
                f"{line}\r\nHost: x\r\nProxy-Authorization: {basic(egress, server)}\r\n\r\n".encode()
            )
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


def basic(egress: Egress, server: str = "web") -> str:
    pair = f"{user_name(server)}:{egress.passwords[server]}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def by_curl(variables: dict[str, str], url: str) -> str:
    finished = subprocess.run(
        ["curl", "-sS", "--max-time", str(SECONDS), url],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout


def by_httpx(variables: dict[str, str], url: str) -> str:
    return httpx.get(url, proxy=variables["HTTP_PROXY"], timeout=SECONDS).text


def by_requests(variables: dict[str, str], url: str) -> str:
    return requests.get(url, proxies={"http": variables["HTTP_PROXY"]}, timeout=SECONDS).text


def by_urllib(variables: dict[str, str], url: str) -> str:
    handler = urllib.request.ProxyHandler({"http": variables["HTTP_PROXY"]})
    try:
        with urllib.request.build_opener(handler).open(url, timeout=SECONDS) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


CLIENTS: list[Callable[[dict[str, str], str], str]] = [by_curl, by_httpx, by_requests, by_urllib]


@pytest.mark.parametrize("client", CLIENTS)
async def test_ordinary_clients_reach_what_is_allowed_and_not_the_rest(client: Callable[..., str]) -> None:
    if client is by_curl and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    async with running({"odd näme": open_to()}) as egress, site(PUBLIC) as public, site(PRIVATE) as private:
        egress.names.answers["public.example.org"] = [[PUBLIC]]
        variables = egress.variables("odd näme")
        page = await asyncio.to_thread(client, variables, f"http://public.example.org:{public}/a?b=1")
        assert json.loads(page)["path"] == "/a?b=1"
        headers = {name.lower() for name in json.loads(page)["headers"]}
        assert not headers & {
            "via",
            "x-forwarded-for",
            "forwarded",
            "proxy-authorization",
            "proxy-connection",
        }
        refused = await asyncio.to_thread(client, variables, f"http://{PRIVATE}:{private}/")
        assert "Access Denied" in refused or "ERR_ACCESS_DENIED" in refused
        assert await egress.outcomes("odd näme", 2) == {"ok": 1, "refused_address": 1}


async def test_what_is_not_public_is_refused_by_number_and_by_name() -> None:
    async with running({"web": open_to()}) as egress, site() as private:
        egress.names.answers |= {
            "private.example.org": [["10.1.2.3"]],
            "mixed.example.org": [[PUBLIC, "127.0.0.1"]],
            "metadata.example.org": [["169.254.169.254"]],
            "mapped.example.org": [["::ffff:127.0.0.1"]],
            "six.example.org": [[PUBLIC, "::1"]],
        }
        found = {host: await connect(egress, f"{host}:{private}") for host in NOT_PUBLIC}
        plain = {host: (await get(egress, f"http://{host}:{private}/"))[0] for host in NOT_PUBLIC}
        assert set(found.values()) == {403}, found
        assert set(plain.values()) == {403}, plain
        assert await egress.outcomes("web", 2 * len(NOT_PUBLIC)) == {"refused_address": 2 * len(NOT_PUBLIC)}


async def test_an_ipv6_address_is_refused_where_there_is_no_ipv6_and_everybody_elses_requests_go_on() -> None:
    need_network_namespaces()
    hosts = (
        "[::1]",
        "[::]",
        "[2606:4700::1111]",
        "[::ffff:127.0.0.1]",
        "[::1%lo]",
        "::1",
        "0::1",
        "ip6-localhost",
    )
    async with running({"web": open_to(), "other": listed("127.0.0.1")}, ipv6=False) as egress:
        found = {}
        for host in hosts:
            found[host] = {
                await raw(egress, f"CONNECT {host}:80 HTTP/1.1"),
                await raw(egress, f"GET http://{host}:80/ HTTP/1.1"),
            }
            assert await connect(egress, "127.0.0.1:1", "other") == 503, host  # nothing listens there
        assert egress.process.poll() is None
        assert "started again" not in egress.log.read_text()
        assert {host for host, statuses in found.items() if not statuses <= {400, 403, 503}} == set()
        assert found["[::1]"] == {403}


async def test_a_name_that_means_another_address_a_moment_later_leads_nowhere_private() -> None:
    async with running({"web": open_to()}) as egress, site(PUBLIC) as port, site(PRIVATE, port):
        egress.names.answers["flips.example.org"] = [[PUBLIC], [PRIVATE]] * 1000
        reached, statuses = set(), set()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as http:

            async def send_request() -> None:
                async with http.get(f"http://flips.example.org:{port}/", proxy=egress.url("web")) as response:
                    statuses.add(response.status)
                    if response.status == 200:
                        reached.add((await response.json())["at"])

            async with asyncio.timeout(SECONDS):
                while statuses != {200, 403}:  # Squid keeps an answer for a second
                    await asyncio.gather(*(send_request() for _ in range(20)))
        assert reached == {PUBLIC}
        assert egress.names.queried.count("flips.example.org") > 2


async def test_squid_is_given_no_forbidden_address_but_of_hosts_that_are_named() -> None:
    async with running({"web": open_to("wiki.internal")}) as egress:
        egress.names.answers |= {
            "wiki.internal": [["10.1.2.3", "::1"]],
            "below.wiki.internal": [["10.1.2.3", "::1"]],
            "mixed.example.org": [[PUBLIC, "169.254.169.254"]],
            "mapped.example.org": [["::ffff:127.0.0.1"]],
            "public.example.org": [[PUBLIC, "2606:4700::1111"]],
        }
        resolver = egress.settings["resolver"]
        found = {
            (name, version): await resolve(resolver, name, version)
            for name in egress.names.answers
            for version in (4, 6)
        }
    assert found == {
        ("wiki.internal", 4): ["10.1.2.3"],
        ("wiki.internal", 6): ["::1"],
        ("below.wiki.internal", 4): ["192.0.2.1"],
        ("below.wiki.internal", 6): ["2001:db8::1"],
        ("mixed.example.org", 4): ["192.0.2.1"],
        ("mixed.example.org", 6): [],
        ("mapped.example.org", 4): [],
        ("mapped.example.org", 6): ["2001:db8::1"],
        ("public.example.org", 4): [PUBLIC],
        ("public.example.org", 6): ["2606:4700::1111"],
    }


async def test_a_listed_server_reaches_its_hosts_on_their_ports_and_looks_up_no_other_name() -> None:
    async with site(PRIVATE) as port, site(PRIVATE) as other, site(PUBLIC, port), site(SECOND_PUBLIC, port):
        rule = listed(f"wiki.internal:{port}", ".example.org", SECOND_PUBLIC, f"{PRIVATE}:{other}")
        async with running({"web": rule, "all": open_to()}) as egress:
            egress.names.answers |= {
                "wiki.internal": [[PRIVATE]],
                "example.org": [[PUBLIC]],
                "a.b.example.org": [[PUBLIC]],
                "private.example.org": [[PRIVATE]],
                "leads.to.named.address": [[SECOND_PUBLIC]],
            }
            expected = {
                f"wiki.internal:{port}": 200,
                f"WIKI.internal.:{port}": 200,
                f"wiki.internal:{other}": 403,
                f"example.org:{port}": 200,
                f"a.b.example.org:{port}": 200,
                f"notexample.org:{port}": 403,
                f"private.example.org:{port}": 403,
                f"none.example.org:{port}": 503,
                f"{SECOND_PUBLIC}:{port}": 200,
                f"leads.to.named.address:{port}": 403,
                f"{PUBLIC}:{port}": 403,
                f"{PRIVATE}:{other}": 200,
                f"{PRIVATE}:{port}": 403,
                "secret-in-a-name.evil.org:443": 403,
            }
            assert {target: await connect(egress, target) for target in expected} == expected
            assert {target: (await get(egress, f"http://{target}/"))[0] for target in expected} == expected
            unresolved = {"notexample.org", "secret-in-a-name.evil.org", "leads.to.named.address"}
            assert not unresolved & set(egress.names.queried)
            # What one server names is nothing to the others.
            assert await connect(egress, f"wiki.internal:{port}", "all") == 403
            assert await connect(egress, f"{PRIVATE}:{other}", "all") == 403
            assert await connect(egress, f"leads.to.named.address:{port}", "all") == 200


async def test_who_a_number_belongs_to_counts_for_nothing() -> None:
    """A name for an address is whatever the owner of the address says."""
    async with site(PUBLIC) as port, running({"web": listed("pypi.org")}) as egress:
        assert await connect(egress, f"{PUBLIC}:{port}") == 403
        assert not [name for name in egress.names.queried if name.endswith("arpa")]


async def test_without_a_name_and_password_there_is_no_way_out() -> None:
    async with site(PUBLIC) as port, running({"web": open_to(), "other": listed("pypi.org")}) as egress:
        page = f"http://{PUBLIC}:{port}/"
        valid_password = egress.passwords["web"]
        for credentials in (
            "",
            f"web:{valid_password[:-1]}@",
            "web:@",
            f"other:{valid_password}@",
            f"nobody:{valid_password}@",
            f"WEB:{valid_password}@",
        ):
            status, _ = await get(egress, page, proxy=f"http://{credentials}127.0.0.1:{egress.port}")
            assert status == 407, credentials
        assert await egress.outcomes("-", 6) == {"refused_credentials": 6}
        assert (await get(egress, page, "other"))[0] == 403
        assert (await get(egress, page))[0] == 200


async def test_the_proxy_speaks_http_alone_and_says_nothing_of_itself() -> None:
    async with running({"web": open_to("127.0.0.1")}) as egress, site() as port:
        squid = egress.settings["squid_port"]
        for url in (
            f"http://127.0.0.1:{squid}/squid-internal-mgr/info",
            f"http://aworld-egress:{squid}/squid-internal-mgr/info",
            f"http://aworld-egress:{squid}/squid-internal-dynamic/netdb",
        ):
            assert (await get(egress, url))[0] in (403, 404, 407, 503), url
        for line in ("GET ftp://127.0.0.1/ HTTP/1.1", f"GET https://127.0.0.1:{port}/ HTTP/1.1"):
            assert await raw(egress, line) in (400, 403), line


async def test_much_passes_both_ways_and_who_does_not_read_holds_it_up() -> None:
    size = 64 << 20
    received = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()

    server = await asyncio.start_server(echo, PUBLIC, 0)
    port = server.sockets[0].getsockname()[1]
    async with running({"web": open_to()}) as egress:
        egress_process = psutil.Process(egress.process.pid)
        before = egress_process.memory_info().rss
        reader, writer = await asyncio.open_connection("127.0.0.1", egress.port)
        writer.write(
            f"CONNECT {PUBLIC}:{port} HTTP/1.1\r\nProxy-Authorization: {basic(egress)}\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

        async def send() -> None:
            chunk = bytes(1 << 20)
            for _ in range(size >> 20):
                writer.write(chunk)
                await writer.drain()

        sending = asyncio.create_task(send())
        await asyncio.sleep(1)  # while nobody reads what comes back
        assert not sending.done()
        async with asyncio.timeout(60):
            while received < size:
                received += len(await reader.read(1 << 20))
            await sending
        assert egress_process.memory_info().rss - before < 16 << 20
        writer.close()
        await egress.outcomes("web")
        transferred = (await egress.counts())["bytes"]["web"]
        assert transferred["sent"] >= size and transferred["received"] >= size
    server.close()


async def is_served(egress: Egress, page: str, restarts: int) -> bool:
    """Wait until the page is reached after that many restarts."""
    async with asyncio.timeout(SECONDS):
        while True:
            assert egress.process.poll() is None, egress.log.read_text()
            if (await egress.counts())["restarts"] == restarts and (await get(egress, page))[0] == 200:
                return True
            await asyncio.sleep(0.05)


async def test_squid_and_unbound_are_started_again_a_few_times_and_then_the_egress_ends() -> None:
    for program in ("squid", "unbound"):
        async with site(PUBLIC) as port, running({"web": open_to()}) as egress:
            page = f"http://{PUBLIC}:{port}/"

            def kill(program: str = program, egress: Egress = egress) -> list[psutil.Process]:
                children = psutil.Process(egress.process.pid).children(recursive=True)
                next(child for child in children if child.name() == program).send_signal(signal.SIGKILL)
                return children

            for restart in range(1, 6):
                kill()
                assert await is_served(egress, page, restart)
            children = kill()
            assert await asyncio.to_thread(egress.process.wait, SECONDS) == 1
            log = egress.log.read_text()
            assert f"{program} ended with SIGKILL; it is started again (restart 5)" in log
            assert f"The egress ends: {program} ended with SIGKILL, after 5 restarts within a minute" in log
            _, still_alive = await asyncio.to_thread(psutil.wait_procs, children, SECONDS)
            assert not still_alive
            # The worker's port stays, and says what is wrong.
            assert await get(egress, page) == (503, "ERR_NO_EGRESS")
            with contextlib.suppress(OSError):
                (egress.folder / "counts.sock").unlink()
            egress.process = start(egress.settings, egress.log)
            try:
                await wait_until_up(egress)
                assert (await get(egress, page))[0] == 200
            finally:
                egress.process.terminate()
                egress.process.wait(SECONDS)


async def test_its_sockets_are_for_its_user_alone_and_its_files_are_gone_afterwards() -> None:
    async with running({"web": open_to()}) as egress:
        for name in ("egress.sock", "counts.sock"):
            assert (egress.folder / name).stat().st_mode & 0o777 == 0o600
        (squid,) = [one for one in psutil.Process(egress.process.pid).children() if one.name() == "squid"]
        config = Path(squid.cmdline()[-1])
        assert squid.uids().real != 0 or os.geteuid() != 0
        assert config.parent.stat().st_mode & 0o777 == 0o700
        assert "forbidden" in {file.name for file in config.parent.iterdir()}
        assert egress.passwords["web"] not in egress.log.read_text()
    assert not config.parent.exists()


async def test_settings_that_cannot_be_used_start_nothing(tmp_path: Any) -> None:
    for settings in ({}, {"servers": {}, "sockets": [], "counts": ""}, {"servers": {"a": {"password": "x"}}}):
        process = start(settings, tmp_path / "log")
        assert await asyncio.to_thread(process.wait, SECONDS) == 1
    assert (tmp_path / "log").read_text().count("AWORLD_EGRESS cannot be used") == 3


async def test_the_gateway_shows_what_was_refused() -> None:
    async with site(PUBLIC) as port, running({"web": open_to()}) as egress:
        shown = EgressCounts(str(egress.folder / "counts.sock"))
        assert shown.described() == {"status": "down", "refused": 0}
        await get(egress, f"http://{PUBLIC}:{port}/some/path?key=secret")
        await get(egress, f"http://169.254.169.254:{port}/latest?key=secret")
        await egress.outcomes("web", 2)
        await shown.refresh()
        assert shown.described() == {"status": "ok", "refused": 1}
        text = shown.text().decode()
        assert 'aworld_egress_requests_total{outcome="refused_address",server="web"} 1.0' in text
        assert 'aworld_egress_requests_total{outcome="ok",server="web"} 1.0' in text
        assert "aworld_egress_up 1.0" in text
        assert 'aworld_egress_bytes_total{direction="sent",server="web"}' in text
        log = egress.log.read_text()
        assert f"refused_address web 169.254.169.254:{port}" in log
        assert "secret" not in log
    async with asyncio.timeout(SECONDS):
        while shown.described()["status"] == "ok":  # it is asked once a second at most
            await asyncio.sleep(0.1)
            await shown.refresh()
    assert shown.described() == {"status": "down", "refused": 1}
    assert "aworld_egress_up 0.0" in shown.text().decode()
