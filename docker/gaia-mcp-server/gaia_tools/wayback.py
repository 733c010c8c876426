"""wayback-server: pages as the Internet Archive's Wayback Machine kept them.

Captures are listed by its CDX server and replayed as they were archived (``id_``), the one nearest to the moment asked
for.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field
from yarl import URL

from gaia_tools import pages, web
from gaia_tools.results import MAX_CHARACTERS, answer, page

server = FastMCP("wayback-server", log_level="WARNING")
_WHAT = "The Wayback Machine"
_SECONDS = 90.0  # it is often slow
_WHOLE = 200_000  # characters
_FIELDS = "timestamp,original,mimetype,statuscode,digest,length"
# How replay addresses look, https://en.wikipedia.org/wiki/Help:Using_the_Wayback_Machine
_REPLAYED = re.compile(r"/web/(\d{4,14})(?:id_)?/(.+)")

Address = Annotated[str, Field(description="Address of the page: https://example.com/a or example.com/a.")]
Day = Annotated[str, Field(description="2015, 2015-06, 2015-06-30 or as a timestamp, 20150630.")]


@server.tool()
async def list_archived_versions(
    url: Address,
    limit: Annotated[int, Field(description="Most versions to list.", ge=1, le=1000)] = 20,
    from_date: Day = "",
    to_date: Day = "",
    newest_first: Annotated[bool, Field(description="Whether to list from the newest on.")] = False,
) -> CallToolResult:
    """The moments at which the Wayback Machine archived a page, the oldest first."""
    query = {
        "url": _address(url),
        "output": "json",
        "fl": _FIELDS,
        # From the CDX server's documentation: a negative limit counts from the last capture.
        "limit": str(-limit if newest_first else limit),
    }
    if from_date:
        query["from"] = _timestamp(from_date)
    if to_date:
        query["to"] = _timestamp(to_date)
    fetched = await _request("/cdx/search/cdx", query)
    _refuse(fetched, url)
    rows = web.decode_json(fetched, _WHAT) if fetched.body.strip() else []
    names = rows[0] if rows else []
    versions = [_version(dict(zip(names, row, strict=False))) for row in rows[1:]]
    if newest_first:
        versions.reverse()
    if not versions:
        between = (
            f" between {from_date or 'the beginning'} and {to_date or 'now'}" if from_date or to_date else ""
        )
        message = (
            f"No version of {url} is archived{between}. Try other dates, its site, or with and without www."
        )
        return answer(message, {"url": url, "versions": []})
    lines = [
        f"{one['timestamp']} ({one['date']}): {one['mimetype']}, status {one['status']}, {one['original']}"
        for one in versions
    ]
    if len(versions) == limit:
        lines.append(
            "There may be more: narrow down with from_date and to_date, raise limit, or set newest_first."
        )
    return answer("\n".join(lines), {"url": url, "versions": versions})


@server.tool()
async def get_archived_content(
    url: Address,
    timestamp: Annotated[str, Field(description="When: 20150630120000, 20150630, 2015-06-30 or 2015.")],
    extract_text_only: Annotated[
        bool, Field(description="Whether to return the page as Markdown and not as HTML.")
    ] = True,
    truncate_content: Annotated[
        bool, Field(description="Whether to return 30,000 characters at a time and not 200,000.")
    ] = True,
    start: Annotated[int, Field(description="Character to go on from, for long pages.", ge=0)] = 0,
) -> CallToolResult:
    """A page as the Wayback Machine archived it, from the capture nearest to a moment."""
    requested, address = _timestamp(timestamp), _address(url)
    fetched = await _request(f"/web/{requested}id_/{address}")
    # Replayed captures, and only those, have this header (RFC 7089); their status is that of the archived answer.
    if "memento-datetime" not in fetched.headers and fetched.status != 200:
        _refuse(fetched, url)
        raise ToolError(f"{_WHAT} answered {fetched.status} for {url}; try again later.")
    replayed = _REPLAYED.search(fetched.url)
    found, original = (replayed[1], replayed[2]) if replayed else (requested, address)
    content_type = fetched.headers.get("content-type", "")
    if extract_text_only:
        read = await pages.readable_page(fetched.body, content_type, fetched.url)
        title, text = read.title, read.text
    else:
        title, text = "", await asyncio.to_thread(pages.decoded, fetched.body, content_type, fetched.url)
    shown, following = page(text, start, MAX_CHARACTERS if truncate_content else _WHOLE)
    archive_url = f"{_base()}/web/{found}/{original}"
    structured = {
        "url": original,
        "requested": requested,
        "timestamp": found,
        "date": _date(found),
        "status": fetched.status,
        "archive_url": archive_url,
        "title": title,
        "characters": len(text),
        "next_start": following,
        "content": shown,
    }
    lines = [f"# {title}" if title else "", f"{archive_url}, archived {_date(found)}"]
    if not found.startswith(requested):
        lines.append(f"There is no capture of {requested}; this is the nearest one.")
    if fetched.status != 200:
        lines.append(f"The site itself answered {fetched.status} then.")
    return answer("\n".join(filter(None, lines)) + f"\n\n{shown}", structured)


async def _request(path: str, params: Mapping[str, str] | None = None) -> web.Fetched:
    return await web.api(_base(), path, _WHAT, params=params, seconds=_SECONDS)


def _base() -> str:
    return (os.environ.get("WAYBACK_BASE_URL") or "https://web.archive.org").rstrip("/")


def _refuse(fetched: web.Fetched, url: str) -> None:
    if fetched.status == 200:
        return
    if fetched.status == 404:
        raise ToolError(f"{_WHAT} has no capture of {url}. list_archived_versions says what it has.")
    why = fetched.headers.get("x-archive-wayback-runtime-error", "")
    if fetched.status in (403, 451) or "AccessControl" in why:
        raise ToolError(
            f"{url} is excluded from the Wayback Machine ({fetched.status}); look for another source."
        )
    if fetched.status in (429, 503):
        raise ToolError(
            f"{_WHAT} is asked too often or overloaded ({fetched.status}): wait a minute, then ask again."
        )


def _version(row: Mapping[str, str]) -> dict[str, Any]:
    moment, original = row.get("timestamp", ""), row.get("original", "")
    return {
        "timestamp": moment,
        "date": _date(moment),
        "original": original,
        "mimetype": row.get("mimetype", ""),
        "status": row.get("statuscode", ""),
        "digest": row.get("digest", ""),
        "bytes": row.get("length", ""),
        "archive_url": f"{_base()}/web/{moment}/{original}",
    }


def _address(url: str) -> str:
    """The address to look up: one in the archive stands for what it is a capture of."""
    address = url.strip()
    if inner := re.match(r"https?://web\.archive\.org/web/\d+[a-z_]*/(.+)", address):
        address = inner[1]
    if "://" not in address:
        address = f"http://{address}"
    try:
        # Its path is made plain here: it must not lead out of the archive's own path.
        parsed = URL(address).with_fragment(None)
    except ValueError as error:
        raise ToolError(f"{url} is not an address: {error}.") from error
    if parsed.scheme not in ("http", "https", "ftp") or not parsed.host:
        raise ToolError(f"{url} is not an address of a page.")
    return str(parsed)


def _timestamp(moment: str) -> str:
    digits = re.sub(r"[-/:TZ\s.]", "", moment.strip())
    if not re.fullmatch(r"(19|20)\d{2}(\d{2}){0,5}", digits):
        raise ToolError(f"{moment!r} is not a moment: write 2015, 2015-06, 2015-06-30 or 20150630120000.")
    return digits


def _date(timestamp: str) -> str:
    parts = re.fullmatch(r"(\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})", timestamp)
    return f"{parts[1]}-{parts[2]}-{parts[3]} {parts[4]}:{parts[5]}:{parts[6]} UTC" if parts else timestamp
