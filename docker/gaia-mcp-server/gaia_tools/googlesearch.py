"""googlesearch-server: Google's results, by its Custom Search JSON API, whose key is in no error.

https://developers.google.com/custom-search/v1/reference/rest/v1/cse/list: ten results a page, a hundred in all.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import web
from gaia_tools.results import OutputFormat, answer

server = FastMCP("googlesearch-server", log_level="WARNING")
_WHAT = "Google's search"
_SECONDS = 30.0
_PAGE = 10
_MOST = 100
_OVER = ("quota", "dailyLimitExceeded", "rateLimitExceeded", "RESOURCE_EXHAUSTED", "userRateLimitExceeded")


@server.tool()
async def search_google(
    query: Annotated[
        str,
        Field(
            description='What to search for; site:, "phrase", -word, filetype: work.',
            min_length=1,
            max_length=2000,
        ),
    ],
    num_results: Annotated[
        int, Field(description="Most results; each ten cost one request.", ge=1, le=_MOST)
    ] = 10,
    safe_search: Annotated[bool, Field(description="Whether to leave out explicit results.")] = True,
    language: Annotated[
        str,
        Field(
            description="Language of the search, as a code: en, de.",
            pattern=r"^([a-z]{2,3}(-[A-Za-z]{2,4})?)?$",
        ),
    ] = "en",
    country: Annotated[
        str,
        Field(
            description="Country to search from, as a code of two letters: us, de.",
            pattern=r"^([A-Za-z]{2})?$",
        ),
    ] = "us",
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
    start: Annotated[
        int, Field(description="Number of the first result, to go on from.", ge=1, le=_MOST)
    ] = 1,
) -> CallToolResult:
    """Search the web with Google: title, address and snippet of each result."""
    key, engine = _needed("GOOGLE_API_KEY"), _needed("GOOGLE_CSE_ID")
    query_parameters = {"cx": engine, "q": query, "safe": "active" if safe_search else "off"}
    query_parameters |= {name: value for name, value in (("hl", language), ("gl", country.lower())) if value}
    results: list[dict[str, Any]] = []
    total = spelling = ""
    last = min(start + num_results - 1, _MOST)
    while (place := start + len(results)) <= last:
        number = min(_PAGE, last - place + 1)
        found = await _request(key, {**query_parameters, "start": str(place), "num": str(number)})
        total = str(found.get("searchInformation", {}).get("totalResults", total))
        spelling = found.get("spelling", {}).get("correctedQuery", spelling)
        items = found.get("items") or []
        results += [_result(position, item) for position, item in enumerate(items, place)]
        if len(items) < number or "nextPage" not in found.get("queries", {}):
            break
    structured = {"query": query, "results": results, "total": total, "spelling": spelling}
    lines = [f"{one['position']}. [{one['title']}]({one['url']})\n   {one['snippet']}" for one in results]
    if output_format == "text":
        lines = [
            f"{one['position']}. {one['title']}\n   {one['url']}\n   {one['snippet']}" for one in results
        ]
    if not results:
        lines = [f"Google finds nothing for {query!r}. Use fewer or other words."]
    if spelling:
        lines.append(f"Did you mean: {spelling}")
    return answer("\n".join(lines), structured, output_format)


async def _request(key: str, query_parameters: Mapping[str, str]) -> dict[str, Any]:
    fetched = await web.api(
        os.environ.get("GOOGLE_SEARCH_BASE_URL") or "https://customsearch.googleapis.com",
        "/customsearch/v1",
        _WHAT,
        params={"key": key, **query_parameters},
        seconds=_SECONDS,
        secret=key,
    )
    if fetched.status != 200:
        _refuse(fetched)
    return dict(web.decode_json(fetched, _WHAT))


def _refuse(fetched: web.Fetched) -> None:
    body = fetched.body.decode(errors="replace")
    message = re.search(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"', body)
    reason = message[1] if message else body[:300]
    if fetched.status == 429 or any(word in body for word in _OVER):
        raise ToolError(
            f"{_WHAT} has reached its quota ({reason}). It is renewed at midnight Pacific time; the operator of "
            "GOOGLE_API_KEY can raise it. Search elsewhere meanwhile."
        )
    if "API key" in body or "keyInvalid" in body:
        raise ToolError(f"{_WHAT} does not take GOOGLE_API_KEY: {reason}")
    if fetched.status == 403:
        raise ToolError(f"{_WHAT} may not be used with GOOGLE_API_KEY: {reason}")
    if fetched.status == 400:
        raise ToolError(f"{_WHAT} does not take this search (or GOOGLE_CSE_ID): {reason}")


def _needed(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ToolError(
            f"{name} is not set: this environment has no search. Read pages whose address you know, or an encyclopedia."
        )
    return value


def _result(position: int, item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "position": position,
        "title": item.get("title", ""),
        "url": item.get("link", ""),
        "snippet": " ".join(str(item.get("snippet", "")).split()),
        "site": item.get("displayLink", ""),
        "file_format": item.get("fileFormat", ""),
    }
