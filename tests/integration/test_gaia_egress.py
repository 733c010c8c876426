"""The tools of gaia-mcp-server where the only way out is a proxy: the real Squid, real tools, a real browser."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from aworld_train.env.directory import find_directory
from aworld_train.env.egress import EgressRule
from aworld_train.env.interpreter import find_interpreter
from aworld_train.serving.egress.hosts import resolve_hosts
from tests.egress import PUBLIC, free_port, running, site

DIRECTORY = find_directory("gaia-mcp-server")
BROWSER_REQUIRED = "AWORLD_TRAIN_TESTS_NEED_BROWSER"
PRIVATE = "127.66.0.1"
SECONDS = 120.0
# Does what its input says, one after the other, and prints what came of it.
PROGRAM = """
import asyncio, json, sys
from gaia_tools import llm, web
from gaia_tools.browser.chromium import Browser

async def main():
    browser = Browser()
    for kind, argument in json.load(sys.stdin):
        try:
            if kind == "fetch":
                found = (await web.fetch(argument)).body.decode()
            elif kind == "api":
                found = (await web.api(argument, "/x", "Service")).body.decode()
            elif kind == "ask":
                found = await llm.ask("CODE_LLM", [{"role": "user", "content": "?"}], seconds=30)
            else:
                found = (await browser.open(argument)).text
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        print(json.dumps(found), flush=True)
    await browser.close()

asyncio.run(main())
"""


async def results(variables: dict[str, str], *work: tuple[str, str]) -> list[str]:
    """What tools with these variables, and without any name server, give for each piece of work."""
    python = await asyncio.to_thread(find_interpreter, DIRECTORY, print)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        PROGRAM,
        cwd=DIRECTORY.path,
        env={**kept, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        output, errors = await process.communicate(json.dumps(work).encode())
    found = [str(json.loads(line)) for line in output.splitlines()]
    assert len(found) == len(work), errors.decode()
    return found


@asynccontextmanager
async def secure_site(name: str, folder: Path) -> AsyncIterator[int]:
    """A site over TLS whose certificate is ``folder/cert.pem``, at a public address; its port."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        f"/CN={name}",
    ]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    await asyncio.to_thread(
        subprocess.run,
        [*command, "-addext", f"subjectAltName=DNS:{name}", *files],
        check=True,
        capture_output=True,
        timeout=60,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="over TLS")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, PUBLIC, port, ssl_context=context).start()
    try:
        yield port
    finally:
        await runner.cleanup()


def open_to(*hosts: str) -> EgressRule:
    return EgressRule(True, resolve_hosts(hosts, {}))


NAMES = {
    "public.example.org": [[PUBLIC]],
    "private.example.org": [[PRIVATE]],
    "service.internal": [[PRIVATE]],
    "wiki.internal": [[PRIVATE]],
}


def refused(host: str) -> str:
    return f"{host} is not a public address, or not allowed by this environment's egress, and tools may not reach it"


async def test_pages_and_services_come_through_the_proxy_and_refusals_are_told_apart(tmp_path: Path) -> None:
    async with (
        site(PUBLIC) as public,
        site(PRIVATE) as private,
        secure_site("public.example.org", tmp_path) as secure,
        running({"web": open_to(f"service.internal:{private}")}) as egress,
    ):
        egress.names.answers |= NAMES
        variables = {**egress.variables("web"), "SSL_CERT_FILE": str(tmp_path / "cert.pem")}
        found = await results(
            variables,
            ("fetch", f"http://public.example.org:{public}/page?a=1"),
            ("fetch", f"https://public.example.org:{secure}/"),
            ("fetch", f"http://private.example.org:{private}/"),
            ("fetch", f"https://private.example.org:{private}/"),
            ("fetch", f"http://nowhere.example.org:{public}/"),
            ("fetch", "https://nowhere.example.org/"),
            ("fetch", f"http://public.example.org:{free_port()}/"),
            ("fetch", "http://169.254.169.254/latest/meta-data/"),
            ("api", f"http://service.internal:{private}"),
            ("fetch", f"http://service.internal:{free_port()}/"),
        )
        assert json.loads(found[0])["path"] == "/page?a=1"
        assert "proxy-authorization" not in found[0].lower()
        assert found[1] == "over TLS"
        assert found[2].startswith(f"Refused: {refused('private.example.org')}")
        assert found[3].startswith(f"Refused: {refused('private.example.org')}")
        for one in found[4:6]:
            assert one.startswith("ToolError") and "cannot be reached: its name does not lead" in one
        assert "cannot be reached: nothing answers there" in found[6]
        assert found[7].startswith("Refused: 169.254.169.254 is not a public address, and tools may not")
        assert json.loads(found[8])["at"] == PRIVATE
        assert found[9].startswith(f"Refused: {refused('service.internal')}")
        assert not any(egress.passwords["web"] in one for one in found)


async def test_a_model_is_asked_through_the_proxy_where_the_operator_named_it() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, PRIVATE, port).start()
    keys = {"CODE_LLM_API_KEY": "k", "CODE_LLM_MODEL_NAME": "m"}
    try:
        async with running(
            {"code": EgressRule(False, resolve_hosts((f"service.internal:{port}",), {}))}
        ) as egress:
            egress.names.answers |= NAMES
            variables = {**egress.variables("code"), **keys}
            for base, expected in (
                (f"http://service.internal:{port}/v1", "42"),
                (f"http://wiki.internal:{port}/v1", refused("wiki.internal")),
                (f"https://wiki.internal:{port}/v1", refused("wiki.internal")),
            ):
                (found,) = await results({**variables, "CODE_LLM_BASE_URL": base}, ("ask", ""))
                assert expected in found
                assert egress.passwords["code"] not in found
    finally:
        await runner.cleanup()


async def test_a_wrong_password_and_a_proxy_that_is_gone_are_told_from_a_site_that_is() -> None:
    async with site(PUBLIC) as public, running({"web": open_to()}) as egress:
        egress.names.answers |= NAMES
        page = f"http://public.example.org:{public}/"
        secure = "https://public.example.org/"
        good = egress.variables("web")["HTTPS_PROXY"]
        wrong = good.replace(egress.passwords["web"], "wrong")
        found = await results({"HTTPS_PROXY": wrong}, ("fetch", page), ("fetch", secure))
        assert all("does not take this server's password" in one for one in found)
        gone = f"http://web:x@127.0.0.1:{free_port()}"
        found = await results({"HTTPS_PROXY": gone}, ("fetch", page), ("fetch", secure))
        assert all(
            "cannot be reached: the way out of this environment does not answer" in one for one in found
        )
        egress.process.terminate()
        await asyncio.to_thread(egress.process.wait, SECONDS)
        found = await results(egress.variables("web"), ("fetch", page), ("fetch", secure))
        assert all(
            "cannot be reached: the way out of this environment does not answer" in one for one in found
        )


def need_browser() -> None:
    if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        return
    if os.environ.get(BROWSER_REQUIRED):
        pytest.fail(f"there is no Chromium, and {BROWSER_REQUIRED} is set")
    pytest.skip("there is no Chromium")


async def test_the_browser_goes_through_the_proxy_and_says_what_was_refused(tmp_path: Path) -> None:
    need_browser()
    async with (
        site(PUBLIC) as public,
        site(PRIVATE) as private,
        running({"web": open_to(f"wiki.internal:{private}")}) as egress,
    ):
        egress.names.answers |= NAMES
        found = await results(
            {**egress.variables("web"), "WORKSPACE": str(tmp_path)},
            ("browse", f"http://public.example.org:{public}/page"),
            ("browse", f"http://wiki.internal:{private}/page"),
            ("browse", f"http://private.example.org:{private}/"),
            ("browse", f"https://private.example.org:{private}/"),
            ("browse", f"http://nowhere.example.org:{public}/"),
            ("browse", f"http://127.0.0.1:{private}/"),
            ("browse", "https://nowhere.example.org/"),
        )
        assert "/page" in found[0] and PUBLIC in found[0]
        assert "proxy-authorization" not in found[0].lower()
        assert "/page" in found[1] and PRIVATE in found[1]
        assert refused("private.example.org") in found[2]
        assert refused("private.example.org") in found[3]
        assert "nowhere.example.org cannot be reached: its name does not lead to an address" in found[4]
        assert "127.0.0.1 is not a public address, and tools may not reach it" in found[5]
        assert "nowhere.example.org cannot be reached: its name does not lead to an address" in found[6]
        assert (await egress.outcomes("web", 4))["refused_address"] >= 2
