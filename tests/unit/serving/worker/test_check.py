"""The folder that stands in for a service answers at its files' paths, and nothing outside of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from aworld_train.serving.worker.check import Site


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
    opened = Site(tmp_path)
    await opened.open()
    assert (await asked(opened, "GET", "/"))[0] == 404
    await opened.close()
    with pytest.raises(aiohttp.ClientConnectorError):
        await asked(opened, "GET", "/")
