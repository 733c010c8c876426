"""wiki-server: articles of Wikipedia, as they are and as they were, through MediaWiki's action API
(https://www.mediawiki.org/wiki/API:Action_API), as the site renders them.
"""

import calendar
import contextlib
import datetime
import functools
import html
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, unquote

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import page_markdown, web
from gaia_tools.isolated import isolated
from gaia_tools.results import answer, page

server = FastMCP("wiki-server", log_level="WARNING")
_SECONDS = 60.0
_MAX_REQUESTS = 20
# https://foundation.wikimedia.org/wiki/Policy:Wikimedia_Foundation_User-Agent_Policy
_USER_AGENT = "gaia-tools/1.0 (aworld-train; reads single articles for a research agent) aiohttp"
_WITHOUT = (
    ".mw-editsection",
    ".mw-empty-elt",
    ".navbox",
    ".toc",
    "#toc",
    ".mw-jump-link",
    ".noprint",
    ".sistersitebox",
)

Title = Annotated[
    str, Field(description="Title of the article, or its address.", min_length=1, max_length=2000)
]
Language = Annotated[
    str, Field(description="Wikipedia's language code: en, de, simple.", pattern=r"^[a-z][a-z0-9-]{1,19}$")
]
Start = Annotated[int, Field(description="Character to go on from, for long texts.", ge=0)]


@server.tool()
async def search_wikipedia(
    query: Annotated[str, Field(description="Words to search for.", min_length=1, max_length=300)],
    limit: Annotated[int, Field(description="Most results.", ge=1, le=50)] = 10,
    language: Language = "en",
) -> CallToolResult:
    """Search Wikipedia's articles: titles, and where the words stand in them."""
    found = await _query(
        language, list="search", srsearch=query, srlimit=str(limit), srinfo="totalhits|suggestion"
    )
    results = [
        {
            "title": one["title"],
            "url": _address(language, one["title"]),
            "snippet": _plain(one.get("snippet", "")),
            "words": one.get("wordcount"),
            "changed": one.get("timestamp"),
        }
        for one in found["query"]["search"]
    ]
    info = found["query"].get("searchinfo", {})
    structured = {"results": results, "total": info.get("totalhits"), "suggestion": info.get("suggestion")}
    lines = [
        f"{place}. **{one['title']}** {one['url']}\n   {one['snippet']}"
        for place, one in enumerate(results, 1)
    ]
    if not results:
        lines = [f"Nothing is found for {query!r}."]
    if info.get("suggestion"):
        lines.append(f"Did you mean: {info['suggestion']}")
    return answer("\n".join(lines), structured)


@server.tool()
async def get_article_content(
    title: Title,
    language: Language = "en",
    section: Annotated[str, Field(description="Heading of the one section to return.")] = "",
    start: Start = 0,
) -> CallToolResult:
    """An article's text as Markdown, with its infobox, tables and references, and the list of its sections."""
    parsed = await _parsed(language, title, {"page": _title(title), "redirects": "1"})
    return await _article(parsed, language, section, start, {})


@server.tool()
async def get_article_summary(title: Title, language: Language = "en") -> CallToolResult:
    """The text of an article before its first heading, and what it is in a few words."""
    found = await _page(
        language,
        title,
        prop="extracts|description|pageprops|info",
        exintro="1",
        ppprop="disambiguation|wikibase_item",
        inprop="url",
    )
    _warm()
    # As HTML: its plain text has 1020 for 10 to the 20.
    extract = await isolated(_markdown, found.get("extract") or "", "", seconds=_SECONDS)
    structured = {
        "title": found["title"],
        "url": _address(language, found["title"]),
        "description": found.get("description", ""),
        "summary": extract,
        "disambiguation": "disambiguation" in found.get("pageprops", {}),
        "wikidata": found.get("pageprops", {}).get("wikibase_item", ""),
    }
    lines = [f"# {found['title']}", structured["url"], structured["description"], "", extract]
    if structured["disambiguation"]:
        lines.append("\nThis title stands for several articles: get_article_links lists them.")
    return answer("\n".join(lines), structured)


@server.tool()
async def get_article_categories(
    title: Title,
    language: Language = "en",
    include_hidden: Annotated[bool, Field(description="Whether to list those for maintenance too.")] = False,
) -> CallToolResult:
    """The categories that an article is in."""
    shown = {} if include_hidden else {"clshow": "!hidden"}
    found = await _page(language, title, prop="categories", cllimit="max", **shown)
    names = [one["title"].partition(":")[2] for one in found.get("categories", [])]
    structured = {"title": found["title"], "categories": names}
    return answer("\n".join(f"- {name}" for name in names) or "It is in no category.", structured)


@server.tool()
async def get_article_links(title: Title, language: Language = "en", start: Start = 0) -> CallToolResult:
    """The titles of all articles that an article links to, in alphabetical order."""
    found = await _page(language, title, prop="links", plnamespace="0", pllimit="max")
    names = [one["title"] for one in found.get("links", [])]
    text, following = page("\n".join(names), start)
    structured = {
        "title": found["title"],
        "count": len(names),
        "next_start": following,
        "links": text.splitlines(),
    }
    if following is not None:
        structured["links"] = structured["links"][:-1]
    return answer(f"{found['title']} links to {len(names)} articles:\n{text}", structured)


@server.tool()
async def get_article_history(
    title: Title,
    date: Annotated[str, Field(description="2021-06-30; or 2021-06 or 2021, which mean their last day.")],
    language: Language = "en",
    section: Annotated[str, Field(description="Heading of the one section to return.")] = "",
    start: Start = 0,
) -> CallToolResult:
    """An article as it was at the end of a day: the last revision up to then, its text as Markdown, and its editor."""
    moment = _end_of(date)
    query = {"prop": "revisions", "rvlimit": "1", "rvprop": "ids|timestamp|user|comment|size"}
    found = await _page(language, title, **query, rvstart=moment, rvdir="older")
    if not found.get("revisions"):
        first = (await _page(language, title, **query, rvdir="newer")).get("revisions") or [{}]
        raise ToolError(
            f"{found['title']} has no revision up to {moment}: its first one is of {first[0].get('timestamp')}."
        )
    revision = found["revisions"][0]
    parsed = await _parsed(language, title, {"oldid": str(revision["revid"])})
    about = {
        "date": moment,
        "revision": revision["revid"],
        "timestamp": revision["timestamp"],
        "user": revision.get("user", ""),
        "comment": revision.get("comment", ""),
        "bytes": revision.get("size"),
        "previous_revision": revision.get("parentid"),
        "revision_url": f"{_base(language)}/w/index.php?oldid={revision['revid']}",
    }
    return await _article(parsed, language, section, start, about)


async def _article(
    parsed: dict[str, Any], language: str, section: str, start: int, about: dict[str, Any]
) -> CallToolResult:
    title = parsed["title"]
    url = about.get("revision_url") or _address(language, title)
    _warm()
    text = await isolated(_markdown, parsed["text"], f"{_base(language)}/wiki/", seconds=_SECONDS)
    headings = [_unmarked(_markdown(one["line"], "")) for one in parsed.get("sections", [])]
    if section:
        text = _section(text, section, headings)
    shown, following = page(text, start)
    disambiguation = "disambiguation" in parsed.get("properties", {})
    redirected = [one["from"] for one in parsed.get("redirects", [])]
    structured = {
        "title": title,
        "url": url,
        "redirected_from": redirected,
        "disambiguation": disambiguation,
        "sections": headings,
        "characters": len(text),
        "next_start": following,
        **about,
        "content": shown,
    }
    lines = [f"# {title}", url]
    if redirected:
        lines.append(f"Redirected from {', '.join(redirected)}.")
    if about:
        lines.append(
            f"Revision {about['revision']} of {about['timestamp']} by {about['user'] or 'someone hidden'}, "
            f"{about['bytes']} bytes, comment: {about['comment'] or 'none'}. What it takes from templates is of today."
        )
    if disambiguation:
        lines.append("This title stands for several articles: choose one of those below.")
    if headings and not section and not start:
        lines.append(f"Sections: {'; '.join(headings)}")
    return answer("\n".join(lines) + f"\n\n{shown}", structured)


@functools.cache
def _warm() -> None:
    """Load what reading takes: here, and not in each forked process."""
    _markdown("<p>An article.</p>", "")


def _markdown(article: str, url: str) -> str:
    return page_markdown.markdown(page_markdown.tree(article, url, links=False, without=_WITHOUT))


def _unmarked(heading: str) -> str:
    return re.sub(r"[*`]", "", heading)


def _section(text: str, section: str, headings: list[str]) -> str:
    name = section.strip().lstrip("# ").casefold()
    lines = text.split("\n")
    for place, line in enumerate(lines):
        found = re.fullmatch(r"(#+) (.+)", line)
        if found and _unmarked(found[2]).strip().casefold() == name:
            level = len(found[1])
            end = next(
                (
                    later
                    for later in range(place + 1, len(lines))
                    if (next_one := re.match(r"(#+) ", lines[later])) and len(next_one[1]) <= level
                ),
                len(lines),
            )
            return "\n".join(lines[place:end]).strip()
    raise ToolError(f"There is no section {section!r}. There are: {'; '.join(headings) or 'none'}.")


async def _parsed(language: str, title: str, which: Mapping[str, str]) -> dict[str, Any]:
    query = {
        "action": "parse",
        "prop": "text|sections|revid|properties",
        "disableeditsection": "1",
        "disabletoc": "1",
        "disablelimitreport": "1",
        **which,
    }
    found = await _request(language, query, missing=title)
    return dict(found["parse"])


async def _page(language: str, title: str, **query: str) -> dict[str, Any]:
    answered = await _query(language, titles=_title(title), redirects="1", **query)
    first = (answered.get("query", {}).get("pages") or [{"missing": True}])[0]
    if first.get("invalid"):
        raise ToolError(f"{title!r} cannot be a title: {first.get('invalidreason', 'it is not valid')}.")
    if first.get("missing") or first.get("title") is None:
        raise await _no_article(language, title)
    lists = {name: list(value) for name, value in first.items() if isinstance(value, list)}
    if "revisions" in query.get("prop", ""):
        return first
    for _ in range(_MAX_REQUESTS):
        if not (more := answered.get("continue")):
            return {**first, **lists}
        answered = await _query(language, titles=_title(title), redirects="1", **query, **more)
        for name, value in (answered.get("query", {}).get("pages") or [{}])[0].items():
            if isinstance(value, list):
                lists.setdefault(name, []).extend(value)
    raise ToolError(f"{title} has more than can be listed.")


async def _query(language: str, **query: str) -> dict[str, Any]:
    return dict(await _request(language, {"action": "query", **query}))


async def _request(language: str, query: Mapping[str, str], missing: str = "") -> Any:
    what = f"Wikipedia ({language})"
    headers = {"User-Agent": os.environ.get("WIKIPEDIA_USER_AGENT") or _USER_AGENT}
    params = {"format": "json", "formatversion": "2", "errorformat": "plaintext", **query}
    fetched = await web.api(
        _base(language), "/w/api.php", what, params=params, headers=headers, seconds=_SECONDS
    )
    found = web.decode_json(fetched, what)
    errors = found.get("errors") or [] if isinstance(found, dict) else []
    codes = {one.get("code") for one in errors}
    if codes & {"missingtitle", "nosuchrevid", "pagecannotexist"}:
        raise await _no_article(language, missing)
    if errors:
        raise ToolError(f"{what} refused: {'; '.join(str(one.get('text')) for one in errors)[:500]}")
    return found


async def _no_article(language: str, title: str) -> ToolError:
    name = _title(title)
    fuzzy = {"action": "opensearch", "search": name[:200], "limit": "5", "profile": "fuzzy"}
    search = {"action": "query", "list": "search", "srsearch": name[:200], "srlimit": "5"}
    near: list[str] = []
    # The missing article is reported in any case.
    with contextlib.suppress(ToolError):
        near += (await _request(language, fuzzy))[1]
    with contextlib.suppress(ToolError):
        near += [one["title"] for one in (await _request(language, search))["query"]["search"]]
    suggestions = "; ".join(dict.fromkeys(near))
    return ToolError(
        f"There is no article {name!r} in Wikipedia ({language}). "
        + (f"There are: {suggestions}." if suggestions else "Use search_wikipedia to find one.")
    )


def _base(language: str) -> str:
    base = os.environ.get("WIKIPEDIA_BASE_URL") or "https://{language}.wikipedia.org"
    return base.replace("{language}", language).rstrip("/")


def _address(language: str, title: str) -> str:
    return f"{_base(language)}/wiki/{quote(title.replace(' ', '_'), safe='/:(),')}"


def _title(name: str) -> str:
    address = re.match(r"https?://[^/]+/wiki/([^?#]+)", name.strip())
    return unquote(address[1]).replace("_", " ").strip() if address else name.strip()


def _plain(marked: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", marked)).strip()


def _end_of(date: str) -> str:
    """The last second of a day, month or year, or a moment as it is, as MediaWiki writes it."""
    text = date.strip().replace("/", "-")
    try:
        if re.fullmatch(r"\d{4}", text):
            day = datetime.date(int(text), 12, 31)
        elif re.fullmatch(r"\d{4}-\d{1,2}", text):
            year, month = map(int, text.split("-"))
            day = datetime.date(year, month, calendar.monthrange(year, month)[1])
        elif re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", text):
            day = datetime.date(*map(int, text.split("-")))
        else:
            moment = datetime.datetime.fromisoformat(text)
            moment = moment.astimezone(datetime.UTC) if moment.tzinfo else moment
            return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    except ValueError as error:
        raise ToolError(f"{date!r} is not a date: write it as 2021-06-30, 2021-06 or 2021.") from error
    return f"{day.isoformat()}T23:59:59Z"
