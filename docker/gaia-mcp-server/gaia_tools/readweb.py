"""readweb-server: a web page as Markdown.

Where fetching fails, because a site turns away what is not a browser or its content comes from scripts, Jina's reader
and then Tavily's are asked, if their keys are set. The answer says who read the page.
"""

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import pages, web
from gaia_tools.results import answer, page

server = FastMCP("readweb-server", log_level="WARNING")
_SECONDS = 40.0
_READER_SECONDS = 60.0
_TRIES = 3
_KEPT = 8  # pages, for going on in them
_GONE = frozenset({404, 410})


@dataclass(frozen=True)
class _Reading:
    url: str
    reader: str
    page: pages.Page


_readings: OrderedDict[tuple[str, bool, bool], _Reading] = OrderedDict()


@server.tool()
async def read_url(
    url: Annotated[str, Field(description="Address of a page, http or https.")],
    include_images: Annotated[bool, Field(description="Whether to show where images are.")] = False,
    start: Annotated[int, Field(description="Character to go on from, for long pages.", ge=0)] = 0,
    whole_page: Annotated[
        bool, Field(description="Whether to keep menus, side columns and footers beside the main content.")
    ] = False,
) -> CallToolResult:
    """Read a web page (or a PDF, JSON or text file on the web) and return it as Markdown with its links and tables."""
    key = (url, include_images, whole_page)
    if not start or key not in _readings:
        _readings[key] = await _read(url, include_images, whole_page)
        _readings.move_to_end(key)
        while len(_readings) > _KEPT:
            _readings.popitem(last=False)
    reading = _readings[key]
    if start and start >= len(reading.page.text):
        raise ToolError(f"{url} has {len(reading.page.text)} characters; there is nothing from {start} on.")
    shown, following = page(reading.page.text, start)
    structured = {
        "url": reading.url,
        "title": reading.page.title,
        "reader": reading.reader,
        "kind": reading.page.kind,
        "needs_javascript": reading.page.needs_javascript,
        "characters": len(reading.page.text),
        "next_start": following,
        "content": shown,
    }
    heading = [f"# {reading.page.title}" if reading.page.title else "", f"{reading.url} ({_how(reading)})"]
    if reading.page.needs_javascript:
        heading.append("This page probably needs JavaScript, and more can be seen in a browser.")
    return answer("\n".join(filter(None, heading)) + f"\n\n{shown}", structured)


def _how(reading: _Reading) -> str:
    return f"{reading.page.kind}, read by {reading.reader}"


async def _read(url: str, images: bool, whole: bool) -> _Reading:
    found: _Reading | None = None
    try:
        found = await _local(url, images, whole)
    except (web.Refused, _Gone):
        raise
    except ToolError as error:
        problem = str(error)
    else:
        if not found.page.needs_javascript:
            return found
        problem = f"{url} needs JavaScript"
    others: list[tuple[str, Callable[[str, bool], Awaitable[_Reading]]]] = [
        ("JINA_API_KEY", _jina),
        ("TAVILY_API_KEY", _tavily),
    ]
    problems = [problem.rstrip(".")]
    for variable, reader in others:
        if os.environ.get(variable, "").strip():
            try:
                return await reader(url, images)
            except ToolError as error:
                problems.append(str(error).rstrip("."))
    if found and found.page.text:
        return found
    raise ToolError(
        f"{'; '.join(problems)}. "
        "Try a tool that drives a browser, another source, or an archived version of the page."
    )


class _Gone(ToolError):
    """There is no such page, whoever asks."""


async def _local(url: str, images: bool, whole: bool) -> _Reading:
    fetched = await web.fetch(url, seconds=_SECONDS, most_bytes=pages.MAX_BYTES, cut=True, tries=_TRIES)
    if fetched.status in _GONE:
        raise _Gone(
            f"{url} answered {fetched.status}: there is no such page. Check the address, "
            "search for the page, or look for an archived version."
        )
    if fetched.status >= 400:
        raise ToolError(f"{url} answered {fetched.status}")
    if not fetched.body.strip():
        raise ToolError(f"{url} answered {fetched.status} with nothing in it")
    read = await pages.readable_page(
        fetched.body, fetched.headers.get("content-type", ""), fetched.url, images=images, whole=whole
    )
    if not read.text and not read.needs_javascript:
        raise ToolError(f"{url} has no text")
    return _Reading(fetched.url, "the local reader", read)


async def _jina(url: str, images: bool) -> _Reading:
    key = os.environ["JINA_API_KEY"].strip()
    fetched = await web.api(
        os.environ.get("JINA_BASE_URL") or "https://r.jina.ai",
        "/",
        "Jina's reader",
        headers={
            "Accept": "application/json",
            "Authorization": f"Bearer {key}",
            "X-Retain-Images": "all" if images else "none",
        },
        body={"url": url},
        seconds=_READER_SECONDS,
        secret=key,
    )
    data = web.decode_json(fetched, "Jina's reader").get("data") or {}
    return _other(url, "Jina's reader", data.get("title"), data.get("content"))


async def _tavily(url: str, images: bool) -> _Reading:
    key = os.environ["TAVILY_API_KEY"].strip()
    fetched = await web.api(
        os.environ.get("TAVILY_BASE_URL") or "https://api.tavily.com",
        "/extract",
        "Tavily's reader",
        headers={"Authorization": f"Bearer {key}"},
        body={"urls": [url], "extract_depth": "advanced", "format": "markdown", "include_images": images},
        seconds=_READER_SECONDS,
        secret=key,
    )
    data = web.decode_json(fetched, "Tavily's reader")
    if not data.get("results"):
        errors = "; ".join(str(one.get("error")) for one in data.get("failed_results") or []) or "no result"
        raise ToolError(f"Tavily's reader could not read it: {errors[:300]}")
    first = data["results"][0]
    return _other(url, "Tavily's reader", first.get("title"), first.get("raw_content"))


def _other(url: str, reader: str, title: str | None, text: str | None) -> _Reading:
    if not text or not text.strip():
        raise ToolError(f"{reader} found nothing on the page")
    return _Reading(url, reader, pages.Page(title or "", text.strip(), "main content"))
