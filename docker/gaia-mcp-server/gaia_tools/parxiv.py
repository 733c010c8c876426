"""parxiv-server: papers on arXiv, found, described, and downloaded.

arXiv's API (https://info.arxiv.org/help/api/user-manual.html) asks for a pause between requests.
"""

import asyncio
import importlib
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import addresses, arxiv_categories, web
from gaia_tools.files import readable, shown, workspace
from gaia_tools.isolated import isolated
from gaia_tools.pdf_text import paged, pdf_text
from gaia_tools.results import OutputFormat, answer, page
from gaia_tools.saving import save

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

server = FastMCP("parxiv-server", log_level="WARNING")
_SECONDS = 60.0
_PDF_SECONDS = 180.0
_MAX_BYTES = 100 << 20
_CHUNK = 1 << 18
_PAUSE = 3.0  # https://info.arxiv.org/help/api/tou.html
_ATOM, _ARXIV = "{http://www.w3.org/2005/Atom}", "{http://arxiv.org/schemas/atom}"
_TOTAL = "{http://a9.com/-/spec/opensearch/1.1/}totalResults"
# https://info.arxiv.org/help/arxiv_identifier.html
_ID = re.compile(r"(?P<id>\d{4}\.\d{4,5}|[a-z][a-z-]*(?:\.[A-Z]{2})?/\d{7})(?P<version>v[1-9]\d*)?")
_FIELD = re.compile(r"\b(ti|au|abs|co|jr|cat|rn|id|all|submittedDate|lastUpdatedDate):")
_last = 0.0

PaperId = Annotated[
    str, Field(description="2301.00001, with a version 2301.00001v2, hep-th/9901001, or the paper's address.")
]


@server.tool()
async def search_papers(
    query: Annotated[
        str,
        Field(
            description="Words that must all occur, or arXiv's own syntax: ti: (title), au: (author), abs: (abstract), "
            "AND, OR, ANDNOT, phrases in quotes, submittedDate:[202206010000 TO 202207010000].",
            min_length=1,
            max_length=1000,
        ),
    ],
    sort_by: Annotated[
        Literal["relevance", "lastUpdatedDate", "submittedDate"], Field(description="Order of the papers.")
    ] = "relevance",
    sort_order: Annotated[Literal["ascending", "descending"], Field(description="Direction.")] = "descending",
    category: Annotated[
        str, Field(description="Only papers of this category: cs.AI; get_categories lists them.")
    ] = "",
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
    max_results: Annotated[int, Field(description="Most papers.", ge=1, le=100)] = 10,
    start: Annotated[int, Field(description="Number of papers to skip, to go on.", ge=0, le=30_000)] = 0,
) -> CallToolResult:
    """Search arXiv for papers: ids, titles, authors, dates, categories and abstracts."""
    found, total = await _papers(
        {
            "search_query": _search(query, category.strip()),
            "sortBy": sort_by,
            "sortOrder": sort_order,
            "start": str(start),
            "max_results": str(max_results),
        }
    )
    following = start + len(found) if found and start + len(found) < total else None
    lines = [f"{total} papers, from {start + 1} on:" if found else f"No paper is found for {query!r}."]
    lines += [_entry(paper) for paper in found]
    if following is not None:
        lines.append(f"More with start={following}.")
    return answer(
        "\n\n".join(lines), {"total": total, "next_start": following, "papers": found}, output_format
    )


@server.tool()
async def get_paper_details(paper_id: PaperId) -> CallToolResult:
    """All that arXiv says of a paper: authors, abstract, dates, comment, journal, DOI, categories."""
    identifier = _identifier(paper_id)
    found, _ = await _papers({"id_list": identifier, "max_results": "1"})
    if not found:
        raise ToolError(f"There is no paper {identifier} on arXiv. Look for it with search_papers.")
    paper = found[0]
    lines = [
        f"# {paper['title']}",
        f"- id: {paper['id']} ({paper['url']})",
        f"- authors: {'; '.join(paper['authors'])}",
        f"- first version: {paper['published']}",
        f"- this version: {paper['updated']}",
        f"- categories: {', '.join(paper['categories'])} (primary: {paper['primary_category']})",
    ]
    lines += [f"- {name}: {paper[name]}" for name in ("comment", "journal", "doi", "pdf") if paper[name]]
    return answer("\n".join(lines) + f"\n\n{paper['abstract']}", paper)


@server.tool()
async def download_paper(
    paper_id: PaperId,
    extract_text: Annotated[bool, Field(description="Whether to return the paper's text too.")] = False,
    start: Annotated[int, Field(description="Character of the text to go on from.", ge=0)] = 0,
) -> CallToolResult:
    """Save a paper's PDF in the workspace and, where asked for, its text beside it, which is also returned."""
    identifier = _identifier(paper_id)
    name = f"arxiv-{identifier.replace('/', '-')}.pdf"
    if not (workspace() / name).exists():
        await _download(identifier, name)
    path = readable(name)
    structured: dict[str, Any] = {"id": identifier, "file": name, "bytes": path.stat().st_size}
    message = f"{identifier} is saved as {name}, {structured['bytes']} bytes."
    if not extract_text:
        return answer(message, structured)
    importlib.import_module("pypdfium2")  # before the fork: once, and not for each paper
    pages = await isolated(pdf_text, path)
    text = paged(pages)
    if not any(pages):
        raise ToolError(f"{message} It has {len(pages)} pages without text: use a tool for PDF documents.")
    beside = path.with_suffix(".txt")
    beside.write_text(text)
    part, following = page(text, start)
    structured |= {
        "pages": len(pages),
        "text_file": shown(beside),
        "characters": len(text),
        "next_start": following,
        "text": part,
    }
    return answer(f"{message} Its text is in {shown(beside)}.\n\n{part}", structured)


@server.tool()
async def get_categories() -> CallToolResult:
    """arXiv's categories, by group, with what they are about."""
    lines: list[str] = []
    for group, categories in arxiv_categories.CATEGORIES.items():
        lines += [f"## {group}", *(f"- {name}: {title}" for name, title in categories.items())]
    return answer("\n".join(lines), {"categories": arxiv_categories.CATEGORIES})


def _search(query: str, category: str) -> str:
    """In arXiv's syntax, where bare words would be alternatives."""
    if category and not arxiv_categories.known(category):
        near = ", ".join(arxiv_categories.near(category)) or "see get_categories"
        raise ToolError(f"arXiv has no category {category!r}. Near to it: {near}. get_categories lists all.")
    if not _FIELD.search(query):
        words = re.findall(r'"[^"]+"|[^\s"()]+', query)
        words = [word.strip(",;:.!?") for word in words if word not in ("AND", "OR", "ANDNOT")]
        words = [word for word in words if word]
        if not words:
            raise ToolError("The query has no word to search for.")
        query = " AND ".join(f"all:{word}" for word in words)
    return f"({query}) AND cat:{category}" if category else query


def _identifier(paper_id: str) -> str:
    identifier = paper_id.strip()
    identifier = re.sub(
        r"^https?://(?:[\w.-]*\.)?arxiv\.org/(?:abs|pdf|html|e-print)/", "", identifier, flags=re.IGNORECASE
    )
    identifier = re.sub(
        r"^(?:https?://(?:dx\.)?doi\.org/)?10\.48550/arxiv\.", "", identifier, flags=re.IGNORECASE
    )
    identifier = (
        re.sub(r"^arxiv:\s*", "", identifier, flags=re.IGNORECASE).partition("?")[0].partition("#")[0]
    )
    identifier = identifier.removesuffix(".pdf").rstrip("/")
    if not _ID.fullmatch(identifier):
        raise ToolError(
            f"{paper_id!r} is not an arXiv id: they look like 2301.00001, 2301.00001v2 or hep-th/9901001. "
            "search_papers finds them."
        )
    return identifier


def _base() -> str:
    # The host that arXiv keeps for programs: https://info.arxiv.org/help/bulk_data.html
    return (os.environ.get("ARXIV_BASE_URL") or "https://export.arxiv.org").rstrip("/")


async def _papers(query: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
    await _turn()
    fetched = await web.api(_base(), "/api/query", "arXiv", params=query, seconds=_SECONDS)
    if fetched.status in (429, 503):
        raise ToolError(
            f"arXiv is asked too often or overloaded ({fetched.status}): wait a minute, then ask again."
        )
    if fetched.status not in (200, 400):
        raise ToolError(f"arXiv answered {fetched.status}: {fetched.body[:300].decode(errors='replace')}")
    from defusedxml import DefusedXmlException, ElementTree

    try:
        feed = ElementTree.fromstring(fetched.body)
    except (ElementTree.ParseError, DefusedXmlException) as error:
        raise ToolError(f"arXiv gave an answer that is not an Atom feed: {error}.") from error
    entries = feed.findall(f"{_ATOM}entry")
    for entry in entries:
        # From the manual, 3.4: an error is an entry.
        if "/api/errors" in _text(entry, f"{_ATOM}id"):
            raise ToolError(f"arXiv does not take this: {_text(entry, f'{_ATOM}summary')}.")
    if fetched.status != 200:
        raise ToolError(f"arXiv answered {fetched.status} and gave no reason.")
    # An id that does not exist may come back as an entry without a title.
    papers = [_paper(entry) for entry in entries if _text(entry, f"{_ATOM}title")]
    total = _text(feed, _TOTAL)
    return papers, int(total) if total.isdecimal() else len(papers)


async def _turn() -> None:
    global _last
    now = time.monotonic()
    _last = max(_last + _PAUSE, now)  # calls at the same time get a turn each
    await asyncio.sleep(_last - now)


def _paper(entry: "Element") -> dict[str, Any]:
    address = _text(entry, f"{_ATOM}id")
    identifier = re.sub(r"^.*?/abs/", "", address)
    links = {link.get("title"): link.get("href", "") for link in entry.findall(f"{_ATOM}link")}
    primary = entry.find(f"{_ARXIV}primary_category")
    return {
        "id": identifier,
        "title": _text(entry, f"{_ATOM}title"),
        "authors": [_text(author, f"{_ATOM}name") for author in entry.findall(f"{_ATOM}author")],
        "abstract": _text(entry, f"{_ATOM}summary"),
        "published": _text(entry, f"{_ATOM}published"),
        "updated": _text(entry, f"{_ATOM}updated"),
        "primary_category": primary.get("term", "") if primary is not None else "",
        "categories": [one.get("term", "") for one in entry.findall(f"{_ATOM}category")],
        "comment": _text(entry, f"{_ARXIV}comment"),
        "journal": _text(entry, f"{_ARXIV}journal_ref"),
        "doi": _text(entry, f"{_ARXIV}doi"),
        "url": address.replace("http://", "https://", 1),
        "pdf": links.get("pdf", f"http://arxiv.org/pdf/{identifier}").replace("http://", "https://", 1),
    }


def _text(element: "Element", name: str) -> str:
    return " ".join((element.findtext(name) or "").split())


def _entry(paper: Mapping[str, Any]) -> str:
    authors = paper["authors"]
    names = ", ".join(authors[:10]) + (f" and {len(authors) - 10} more" if len(authors) > 10 else "")
    abstract = paper["abstract"] if len(paper["abstract"]) <= 500 else f"{paper['abstract'][:500]}..."
    when = f"{paper['published'][:10]}, updated {paper['updated'][:10]}, {', '.join(paper['categories'])}"
    return f"**{paper['title']}** ({paper['id']})\n{names}\n{when}\n{abstract}"


async def _download(identifier: str, name: str) -> None:
    await _turn()
    url = f"{_base()}/pdf/{identifier}"
    trusted = addresses.service(_base())
    async with web.opened(url, seconds=_PDF_SECONDS, tries=3, trusted=trusted) as response:
        if response.status == 404:
            raise ToolError(
                f"There is no PDF of {identifier} on arXiv: the id or version is wrong, or it was withdrawn."
            )
        if response.status != 200:
            raise ToolError(
                f"arXiv answered {response.status} for the PDF of {identifier}; try again in a minute."
            )
        await save(
            response.content.iter_chunked(_CHUNK),
            name,
            overwrite=False,
            most_bytes=_MAX_BYTES,
            what=url,
            magic=b"%PDF-",
        )
