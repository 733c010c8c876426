"""Archived pages come from the capture nearest to the moment asked for, and the answer says which it is."""

from typing import Any

import pytest
from aiohttp import web as http
from gaia_tools import web
from gaia_tools.wayback import server

from tests.conftest import Serve, body, call, content, refusal, text

HEADER = ["timestamp", "original", "mimetype", "statuscode", "digest", "length"]
ROWS = [
    [f"20{year:02}0615120000", "http://example.org:80/", "text/html", "200", f"DIGEST{year}", "1234"]
    for year in range(5, 15)
]
PAGE = "<html><head><title>News of 2010</title></head><body><h1>News</h1><p>Ducks &amp; drakes.</p></body></html>"


class Archive:
    """Answers as web.archive.org does."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        self.headers: dict[str, str] = {}

    async def __call__(self, request: http.Request) -> http.StreamResponse:
        self.asked.append(request.path_qs)
        if self.status != 200:
            return http.Response(status=self.status, text="<html>error</html>", headers=self.headers)
        if request.path == "/cdx/search/cdx":
            return http.json_response(self.cdx(request.query))
        return self.replay(request)

    def cdx(self, asked: Any) -> list[list[str]]:
        assert asked["output"] == "json"
        if "example.org" not in asked["url"]:
            return []
        rows = [row for row in ROWS if asked.get("from", "0") <= row[0] <= asked.get("to", "9") + "9"]
        limit = int(asked["limit"])
        rows = rows[limit:] if limit < 0 else rows[:limit]
        return [HEADER, *rows] if rows else []

    def replay(self, request: http.Request) -> http.StreamResponse:
        _, _, moment, address = request.raw_path.split("/", 3)
        capture = "20100615120000"
        if "gone" in address:
            return http.Response(
                status=404, text="<html>Hrm. The Wayback Machine has not archived that URL.</html>"
            )
        if moment != f"{capture}id_":
            return http.Response(status=302, headers={"Location": f"/web/{capture}id_/{address}"})
        memento = {"Memento-Datetime": "Tue, 15 Jun 2010 12:00:00 GMT"}
        if "missing" in address:
            return http.Response(
                status=404, text="<p>Page not found</p>", content_type="text/html", headers=memento
            )
        if "long" in address:
            return http.Response(text="line of text\n" * 10_000, headers=memento)
        if "picture" in address:
            return http.Response(body=bytes(range(256)), content_type="image/png", headers=memento)
        return http.Response(text=PAGE, content_type="text/html", headers=memento)


@pytest.fixture
async def archive(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)
    site = Archive()
    monkeypatch.setenv("WAYBACK_BASE_URL", await serve(site, allowed=False))
    return site


async def test_versions_are_listed_between_dates_and_from_either_end(archive: Archive) -> None:
    found = await content(server, "list_archived_versions", url="example.org", limit=3)
    assert [one["timestamp"][:4] for one in found["versions"]] == ["2005", "2006", "2007"]
    first = found["versions"][0]
    assert (first["date"], first["status"], first["mimetype"]) == (
        "2005-06-15 12:00:00 UTC",
        "200",
        "text/html",
    )
    assert first["archive_url"].endswith("/web/20050615120000/http://example.org:80/")
    found = await content(server, "list_archived_versions", url="example.org", limit=2, newest_first=True)
    assert [one["timestamp"][:4] for one in found["versions"]] == ["2014", "2013"]
    found = await content(
        server, "list_archived_versions", url="http://example.org/", from_date="2007-01-01", to_date="2008"
    )
    assert [one["timestamp"][:4] for one in found["versions"]] == ["2007", "2008"]
    assert "from=20070101&to=2008" in archive.asked[-1]


async def test_what_is_not_archived_is_said(archive: Archive) -> None:
    result = await call(server, "list_archived_versions", url="nowhere.test", from_date="2001")
    assert not result.isError
    assert "No version of nowhere.test is archived between 2001 and now" in text(result)
    assert "has no capture" in await refusal(
        server, "get_archived_content", url="example.org/gone", timestamp="2010"
    )


async def test_the_nearest_capture_is_read_and_named(archive: Archive) -> None:
    result = await call(server, "get_archived_content", url="http://example.org/", timestamp="2009-01-01")
    said = text(result)
    assert "# News of 2010" in said
    assert "archived 2010-06-15 12:00:00 UTC" in said
    assert "no capture of 20090101; this is the nearest one" in said
    assert "Ducks & drakes." in said
    result = await call(server, "get_archived_content", url="http://example.org/", timestamp="20100615")
    assert "nearest" not in text(result)


async def test_the_html_comes_where_asked_for(archive: Archive) -> None:
    found = await content(
        server, "get_archived_content", url="example.org", timestamp="2010", extract_text_only=False
    )
    assert found["content"] == PAGE


async def test_long_content_is_cut_and_goes_on(archive: Archive) -> None:
    asked = {"url": "example.org/long", "timestamp": "2010"}
    found = await content(server, "get_archived_content", **asked)
    assert found["next_start"] == 30_000
    found = await content(server, "get_archived_content", **asked, start=120_000)
    assert (found["next_start"], len(body(found["content"]))) == (None, 10_000)
    found = await content(server, "get_archived_content", **asked, truncate_content=False)
    assert (found["next_start"], len(body(found["content"]))) == (None, 130_000)


async def test_an_archived_error_page_is_content_with_its_status(archive: Archive) -> None:
    result = await call(server, "get_archived_content", url="example.org/missing", timestamp="2010")
    assert not result.isError
    assert "The site itself answered 404 then" in text(result)
    assert "Page not found" in text(result)


async def test_what_is_no_text_is_said(archive: Archive) -> None:
    said = await refusal(server, "get_archived_content", url="example.org/picture", timestamp="2010")
    assert "image/png" in said


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (429, "asked too often"),
        (503, "overloaded"),
        (403, "excluded"),
        (451, "excluded"),
        (500, "answered 500"),
    ],
)
@pytest.mark.parametrize("tool", ["list_archived_versions", "get_archived_content"])
async def test_errors_of_the_archive_are_clear(archive: Archive, tool: str, status: int, said: str) -> None:
    archive.status = status
    more = {"timestamp": "2010"} if tool == "get_archived_content" else {}
    assert said in await refusal(server, tool, url="example.org", **more)


async def test_an_address_cannot_lead_out_of_the_archive(archive: Archive) -> None:
    for url in ("http://example.org/../../../save/x", "http://example.org/%2e%2e/%2e%2e/%2e%2e/save/x"):
        await call(server, "get_archived_content", url=url, timestamp="2010")
    assert all(asked.startswith("/web/20") for asked in archive.asked)


async def test_an_address_in_the_archive_stands_for_its_page(archive: Archive) -> None:
    url = "https://web.archive.org/web/20200101000000if_/http://example.org/a?b=c"
    await content(server, "get_archived_content", url=url, timestamp="20100615120000")
    assert archive.asked == ["/web/20100615120000id_/http://example.org/a?b=c"]


@pytest.mark.parametrize("url", ["", "javascript:alert(1)", "file:///etc/passwd", "http://"])
async def test_what_is_no_address_is_refused(archive: Archive, url: str) -> None:
    assert "not an address" in await refusal(server, "list_archived_versions", url=url)
    assert not archive.asked


@pytest.mark.parametrize("moment", ["now", "", "20", "2010-6", "99999999999999"])
async def test_what_is_no_moment_is_refused(archive: Archive, moment: str) -> None:
    said = await refusal(server, "get_archived_content", url="example.org", timestamp=moment)
    assert "is not a moment" in said
