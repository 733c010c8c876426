"""A check's folder stands in for a service at its files' paths alone, and its servers and calls are led there."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aworld_train.serving.manifest import Manifest, ProbeCall, ServerEntry
from aworld_train.serving.worker.check import SessionCheck, Site
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import CommandPaths
from tests.unit.serving.worker.test_relay import CHANGED, Servers, with_tools

# The folder


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    folder = tmp_path / "site"
    (folder / "v1" / "http%3A").mkdir(parents=True)
    (folder / "v1" / "words").write_text("a bird")
    (folder / "v1" / "http%3A" / "page.html").write_text("<p>a page</p>")
    (tmp_path / "secret").write_text("no answer")
    (folder / "link").symlink_to(tmp_path / "secret")
    opened = Site(folder)
    await opened.open()
    yield opened
    await opened.close()


async def asked(site: Site, method: str, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, f"http://{site.host}{path}") as response,
    ):
        return response.status, response.content_type, await response.text()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_a_file_answers_at_its_path_whatever_the_method_and_the_query(site: Site, method: str) -> None:
    status, _, text = await asked(site, method, "/v1/words?q=gull&n=3")
    assert (status, text) == (200, "a bird")


async def test_an_address_in_a_path_is_found_under_its_quoted_name(site: Site) -> None:
    assert await asked(site, "GET", "/v1/http://page.html") == (200, "text/html", "<p>a page</p>")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/none", "/link", "/..%2Fsecret", "//etc/passwd"])
async def test_nothing_else_is_answered(site: Site, path: str) -> None:
    status, _, text = await asked(site, "GET", path)
    assert status == 404
    assert "no answer" not in text


async def test_it_ends_when_it_is_closed(tmp_path: Path) -> None:
    opened, other = Site(tmp_path), Site(tmp_path)
    assert opened.host == ""
    await opened.close()
    for site in (opened, other):
        await site.open()
        assert (await asked(site, "GET", "/"))[0] == 404
        assert site.host.startswith("127.0.0.1:")
    assert opened.host != other.host
    await opened.close()
    assert (await asked(other, "GET", "/"))[0] == 404
    await other.close()
    with pytest.raises(aiohttp.ClientConnectorError):
        await asked(opened, "GET", "/")


# Servers and calls

TESTS = {
    "site": ProbeCall("x", site="site", environment={"URL": "{site}/v1", "HOST": "{site_host}"}),
    "same": ProbeCall("x", site="site"),
    "variables": ProbeCall("x", environment={"URL": "{here}"}),
    "plain": ProbeCall("x"),
    "none": None,
}


def check_of(folder: Path, servers: Servers, notifications: list[Any]) -> SessionCheck:
    entries = {
        name: ServerEntry(command=("none",), optional_keys=("URL", "HOST"), test=test)
        for name, test in TESTS.items()
    }
    (folder / "site").mkdir()
    (folder / "site" / "file").write_text("an answer")
    paths = CommandPaths("python", folder, Path("/workspace"))
    return SessionCheck(
        Manifest("name", entries),
        paths,
        servers,
        lambda name: lambda message: notifications.append((name, message)),
    )


async def filled(check: SessionCheck, name: str, arguments: Any) -> Any:
    params = await check.filled(name, {"name": "x", "arguments": arguments})
    assert params.keys() == {"name", "arguments"} and params["name"] == "x"
    return params["arguments"]


async def test_placeholders_are_replaced_wherever_a_text_stands_in_the_arguments(tmp_path: Path) -> None:
    check = check_of(tmp_path, Servers(), [])
    url = await filled(check, "site", "{site}")
    host = url.removeprefix("http://")
    arguments = {"a": ["{site}/x", 3, None, {"b": "{site_host} {here}"}], "{here}": "{workspace}"}
    expected = {"a": [f"{url}/x", 3, None, {"b": f"{host} {tmp_path}"}], "{here}": "/workspace"}
    for name in ("site", "same"):
        assert await filled(check, name, arguments) == expected
    for name in ("plain", "none"):
        assert await filled(check, name, ["{site}", "{here}"]) == ["{site}", str(tmp_path)]
    assert await check.filled("plain", {}) == {"arguments": None}
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/file") as response:
            assert await response.text() == "an answer"
        await check.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{url}/file")


@pytest.mark.parametrize("before", [None, "example.org"])
async def test_a_server_whose_test_names_variables_is_started_anew_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        if before is not None:
            monkeypatch.setenv(name, before)
    changing = with_tools("x", x={"result": {}, "before": [CHANGED]})
    servers, notifications = Servers(site=changing, variables=with_tools("x")), list[Any]()
    check = check_of(tmp_path, servers, notifications)
    for name in ("same", "plain", "none"):
        assert await check.server(name) is None
    for name in ("site", "variables"):
        server = await check.server(name)
        assert server is not None and server is await check.server(name)
        await server.request("tools/call", {"name": "x"})
    url = await filled(check, "site", "{site}")
    direct = "127.0.0.1" if before is None else "example.org,127.0.0.1"
    assert servers.started == [
        (
            "site",
            {
                "URL": f"{url}/v1",
                "HOST": url.removeprefix("http://"),
                "NO_PROXY": direct,
                "no_proxy": direct,
            },
        ),
        ("variables", {"URL": str(tmp_path)}),
    ]
    assert notifications == [("site", CHANGED)]
    check.stop_servers()
    assert servers.ended == [1, 2]
    await check.close()


async def test_a_folder_that_cannot_be_served_is_a_failure_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Site) -> None:
        raise OSError("no port is free")

    check = check_of(tmp_path, Servers(), [])
    with monkeypatch.context() as patch:
        patch.setattr(Site, "open", refuse)
        for work in (check.server("site"), check.filled("same", {})):
            with pytest.raises(CallFailure, match="site cannot be served: no port is free") as failed:
                await work
            assert failed.value.kind == "tool_unavailable"
    assert (await filled(check, "same", "{site}")).startswith("http://127.0.0.1:")
    await check.close()
