"""What came from the web as text for a model: HTML as Markdown, PDF as its text, other text as it is.

The main content of HTML counts unless it is so little, or lacks so much of the page's main part or of its table rows,
that it must have been missed.
"""

import codecs
import contextlib
import functools
import logging
import re
import sys
from dataclasses import dataclass
from typing import Literal

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import charsets, page_markdown
from gaia_tools.isolated import isolated
from gaia_tools.pdf_text import paged, pdf_text

Kind = Literal["main content", "whole page", "plain text", "text", "PDF"]
MAX_BYTES = 10 << 20
_SECONDS = 45.0
_MAX_FOR_MAIN_CONTENT = 1_000_000  # characters; finding it takes more than linear time
_MIN_SHARE = 0.25
_MAX_SHARE = 0.7
_DEEPEST = 10_000
_LITTLE = 200  # characters
# Labels that the WHATWG Encoding Standard reads as a larger encoding than their name says.
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
_HEADER = re.compile(r"charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
_HTML = re.compile(
    rb"\s*(?:<!--.{0,1000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_WANTS_JAVASCRIPT = re.compile(
    r"(enable|turn on|requires?|needs?|without|activate)\W+(?:\w+\W+){0,3}javascript"
    r"|javascript\W+(?:\w+\W+){0,4}(enabled|disabled|required|turned off|not available)",
    re.IGNORECASE,
)
_FOR = {
    "image": "download_file and a tool for images",
    "audio": "download_file and a tool for audio",
    "video": "a tool for videos",
    "application": "download_file and a tool for that kind of file, or the terminal",
    "font": "download_file",
}


@dataclass(frozen=True)
class Page:
    """A page as text (Markdown where it was HTML); ``kind`` is what that is of the page.

    ``needs_javascript``: what there is to see probably comes from a script.
    """

    title: str
    text: str
    kind: Kind
    needs_javascript: bool = False


async def readable_page(
    body: bytes, content_type: str, url: str, *, images: bool = False, whole: bool = False
) -> Page:
    """What came from ``url`` as text; ``whole`` does not look for the main content."""
    media = content_type.partition(";")[0].strip().lower()
    if body.startswith(b"%PDF-"):
        pages = await isolated(pdf_text, body, seconds=_SECONDS)
        if not any(pages):
            raise ToolError(
                f"{url} is a PDF of {len(pages)} pages without text, probably scanned: "
                "use download_file and a tool for PDF documents."
            )
        return Page("", paged(pages), "PDF")
    if media in ("text/html", "application/xhtml+xml") or _HTML.match(body):
        _warm()
        try:
            return await isolated(_html_apart, body, content_type, url, images, whole, seconds=_SECONDS)
        except ToolError:  # too large, or nested too deeply
            return await isolated(_plain, body, content_type, url, seconds=_SECONDS)
    if not charsets.is_text(body):
        kind = media.partition("/")[0]
        what = media if media not in ("", "text/plain") else "a binary file"
        raise ToolError(f"{url} is not text but {what}: use {_FOR.get(kind, _FOR['application'])}.")
    return Page("", await isolated(decoded, body, content_type, url, seconds=_SECONDS), "text")


def decoded(body: bytes, content_type: str, url: str) -> str:
    """Bytes as text: as a byte order mark says, the header, the page itself, or else as their content suggests."""
    header, meta = _HEADER.search(content_type), _META.search(body[:4096])
    labels = [header[1] if header else "", meta[1].decode() if meta else ""]
    if not body.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        for label in filter(None, labels):
            # What a page says of itself may be wrong. Its last character may be cut.
            with contextlib.suppress(LookupError, ValueError):
                name = codecs.lookup(label).name
                return str(codecs.getincrementaldecoder(_WIDER.get(name, name))().decode(body))
    return charsets.decode(body, "auto", url).text


@functools.cache
def _warm() -> None:
    """Load what reading takes, which is most of the time for most pages: here, and not in each forked process."""
    _html(b"<p>A page.</p>", "", "", False, False)


def _html_apart(body: bytes, content_type: str, url: str, images: bool, whole: bool) -> Page:
    # A level of a page is several of Python's; what does not fit here either ends this process, and not the server.
    sys.setrecursionlimit(_DEEPEST)
    return _html(body, content_type, url, images, whole)


def _html(body: bytes, content_type: str, url: str, images: bool, whole: bool) -> Page:
    html = decoded(body, content_type, url)
    # lxml does not take text that names another encoding than its own.
    html = re.sub(r"^\s*<\?xml[^>]*\?>", "", html)
    title = page_markdown.title(html)
    tree = page_markdown.tree(html, url, images=images)
    seen = str(tree) if not whole and len(html) <= _MAX_FOR_MAIN_CONTENT else ""
    marked = tree.select("main, [role=main]") or tree.select("article")
    marked_words = len(marked[0].get_text(" ").split()) if len(marked) == 1 else 0
    everything = page_markdown.markdown(tree)
    missing = _needs_javascript(html, everything)
    main = _main_content(seen, url, images) if seen else ""
    if main and not _misses(main, everything, marked_words):
        return Page(title, main, "main content", missing)
    return Page(title, everything, "whole page", missing)


def _plain(body: bytes, content_type: str, url: str) -> Page:
    html = decoded(body, content_type, url)
    return Page(page_markdown.title(html), page_markdown.plain(html), "plain text")


def _main_content(html: str, url: str, images: bool) -> str:
    import trafilatura

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    found = trafilatura.extract(
        html,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_images=images,
        include_comments=True,
        favor_recall=True,
    )
    # It escapes what might be taken for Markdown; that would only spoil names and formulas.
    return re.sub(r"\\([_*`#~<>\[\]])", r"\1", found or "").strip()


def _misses(main: str, everything: str, marked_words: int) -> bool:
    if len(everything) < _LITTLE:
        return len(main) < len(everything)
    rows, kept, words = _rows(everything), _rows(main), len(_words(main))
    if rows > 3 and kept < rows * _MAX_SHARE:
        return True
    return words < _MIN_SHARE * len(_words(everything)) or words < _MAX_SHARE * marked_words


def _rows(markdown: str) -> int:
    return sum(line.startswith("|") and line.count("|") > 2 for line in markdown.splitlines())


def _words(markdown: str) -> list[str]:
    """Without the addresses of links, which may be most of a page."""
    return re.sub(r"\]\([^)]*\)", "]", markdown).split()


def _needs_javascript(html: str, text: str) -> bool:
    words = len(_words(text))
    if words > 100 or not re.search(r"<script", html, re.IGNORECASE):
        return False
    return words < 15 or bool(_WANTS_JAVASCRIPT.search(re.sub(r"<[^>]{0,300}>", " ", html)))
