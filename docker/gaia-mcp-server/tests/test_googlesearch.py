"""Google's results come in their order, page by page, and its errors say what to do and never the key."""

from typing import Any

import pytest
from aiohttp import web as http
from gaia_tools import web
from gaia_tools.googlesearch import server

from tests.conftest import Serve, call, content, refusal, text

KEY = "AIza-secret/key+1"
FOUND = 34


class Google:
    """Answers as the Custom Search JSON API does."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.error: tuple[int, dict[str, Any]] | None = None
        self.failures = 0
        self.more: dict[str, Any] = {}

    async def __call__(self, request: http.Request) -> http.Response:
        assert request.path == "/customsearch/v1"
        asked = dict(request.query)
        self.asked.append(asked)
        assert asked["key"] == KEY
        if self.failures:
            self.failures -= 1
            return http.Response(status=503, text="unavailable")
        if self.error:
            return http.json_response(self.error[1], status=self.error[0])
        start, number = int(asked["start"]), int(asked["num"])
        assert 1 <= number <= 10
        assert start + number <= 101
        places = range(start, min(start + number, FOUND + 1)) if asked["q"] != "nothing" else range(0)
        items = [
            {
                "kind": "customsearch#result",
                "title": f"Result {n}",
                "link": f"https://example.org/{n}",
                "displayLink": "example.org",
                "snippet": f"Snippet\n {n} ...",
                "pagemap": {"metatags": [{}]},
            }
            for n in places
        ]
        queries: dict[str, Any] = {"request": [{"startIndex": start}]}
        if places and places[-1] < FOUND:
            queries["nextPage"] = [{"startIndex": start + number}]
        found = {
            "kind": "customsearch#search",
            "queries": queries,
            "searchInformation": {"totalResults": str(FOUND)},
        }
        return http.json_response(found | ({"items": items} if items else {}) | self.more)


@pytest.fixture
async def google(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Google:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)
    site = Google()
    monkeypatch.setenv("GOOGLE_SEARCH_BASE_URL", await serve(site, allowed=False))
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_CSE_ID", "engine:1")
    return site


def error(code: int, message: str, reason: str, status: str = "") -> tuple[int, dict[str, Any]]:
    """As Google's APIs write errors: https://cloud.google.com/apis/design/errors."""
    errors = [{"message": message, "domain": "usageLimits", "reason": reason}]
    return code, {"error": {"code": code, "message": message, "errors": errors, "status": status}}


async def test_results_come_with_title_address_and_snippet(google: Google) -> None:
    result = await call(server, "search_google", query="ducks", num_results=2, output_format="text")
    assert text(result) == "1. Result 1\n   https://example.org/1\n   Snippet 1 ...\n2. Result 2\n   " + (
        "https://example.org/2\n   Snippet 2 ..."
    )
    assert result.structuredContent["results"][1] == {
        "position": 2,
        "title": "Result 2",
        "url": "https://example.org/2",
        "snippet": "Snippet 2 ...",
        "site": "example.org",
        "file_format": "",
    }


async def test_what_is_asked_for_reaches_google(google: Google) -> None:
    await content(
        server,
        "search_google",
        query="enten & co",
        num_results=3,
        safe_search=False,
        language="de",
        country="DE",
        start=5,
    )
    wanted = {
        "cx": "engine:1",
        "q": "enten & co",
        "num": "3",
        "start": "5",
        "safe": "off",
        "hl": "de",
        "gl": "de",
    }
    assert google.asked == [{"key": KEY, **wanted}]
    await content(server, "search_google", query="x", language="", country="")
    assert "hl" not in google.asked[-1]
    assert google.asked[-1]["safe"] == "active"


async def test_more_than_a_page_is_fetched_page_by_page_until_there_is_no_more(google: Google) -> None:
    found = await content(server, "search_google", query="x", num_results=25, output_format="json")
    assert [one["position"] for one in found["results"]] == list(range(1, 26))
    assert [(asked["start"], asked["num"]) for asked in google.asked] == [
        ("1", "10"),
        ("11", "10"),
        ("21", "5"),
    ]
    for start, last in ((1, 100), (30, 50)):
        found = await content(
            server, "search_google", query="x", num_results=last, start=start, output_format="json"
        )
        assert len(found["results"]) == FOUND - start + 1


async def test_nothing_found_and_a_better_spelling_are_said(google: Google) -> None:
    google.more = {"spelling": {"correctedQuery": "something"}}
    result = await call(server, "search_google", query="nothing")
    assert not result.isError
    assert "Google finds nothing for 'nothing'" in text(result)
    assert "Did you mean: something" in text(result)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            error(
                429, "Quota exceeded for quota metric 'Queries'", "rateLimitExceeded", "RESOURCE_EXHAUSTED"
            ),
            "its quota",
        ),
        (error(403, "Daily Limit Exceeded", "dailyLimitExceeded"), "its quota"),
        (
            error(400, f"API key not valid: {KEY}.", "badRequest", "INVALID_ARGUMENT"),
            "does not take GOOGLE_API_KEY",
        ),
        (
            error(403, "Custom Search API has not been used in project 1", "accessNotConfigured"),
            "may not be used",
        ),
        (error(400, "Request contains an invalid argument.", "badRequest"), "GOOGLE_CSE_ID"),
        (error(500, "Internal error", "backendError"), "answered 500"),
    ],
)
async def test_errors_say_what_to_do_and_not_the_key(
    google: Google, answer: tuple[int, dict[str, Any]], said: str
) -> None:
    google.error = answer
    refused = await refusal(server, "search_google", query="x")
    assert said in refused
    assert "secret" not in refused


async def test_a_failing_google_is_asked_again(google: Google) -> None:
    google.failures = 2
    assert (await content(server, "search_google", query="x", num_results=1))["results"]


@pytest.mark.parametrize("name", ["GOOGLE_API_KEY", "GOOGLE_CSE_ID"])
async def test_a_missing_key_is_named(google: Google, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)
    assert f"{name} is not set" in await refusal(server, "search_google", query="x")
    assert not google.asked


@pytest.mark.parametrize(
    "more",
    [{"num_results": 0}, {"num_results": 101}, {"language": "en&key=x"}, {"country": "usa"}, {"query": ""}],
)
async def test_arguments_out_of_range_are_refused(google: Google, more: dict[str, Any]) -> None:
    assert next(iter(more)) in await refusal(server, "search_google", **{"query": "x", **more})
    assert not google.asked


async def test_an_unreachable_google_does_not_betray_the_key(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SEARCH_BASE_URL", "http://127.0.0.1:1")
    refused = await refusal(server, "search_google", query="x")
    assert "Google's search" in refused
    assert "secret" not in refused
