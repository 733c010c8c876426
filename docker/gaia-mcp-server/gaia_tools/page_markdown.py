"""Web pages as Markdown, whole: as a reader sees them, with absolute links, formulas as TeX, and merged table cells
written out where they reach.

To be called in a process of its own: the HTML may be anything.
"""

from collections.abc import Iterable
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_UNSEEN = (
    "head, script, style, template, noscript, svg, iframe, object, "
    "[hidden], [style*='display:none'], [style*='display: none']"
)
_MAX_SPAN = 100
_MAX_CELLS = 100_000
_ELSEWHERE = ("http://", "https://", "ftp://", "mailto:")


def tree(
    html: str, url: str = "", *, images: bool = False, links: bool = True, without: Iterable[str] = ()
) -> "BeautifulSoup":
    """What a reader sees of a page, each table with all its cells.

    Args:
        url: Of the page; links are made absolute with it.
        images: Whether to keep images.
        links: Whether to keep links within a wiki; those marked as external are kept anyhow.
        without: CSS selectors of what to leave out.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "lxml")
    _formulas(soup)
    for part in soup.select(", ".join([_UNSEEN, *without])):
        part.decompose()
    _links(soup, url, links)
    _images(soup, url, images)
    for table in soup.find_all("table"):
        _unnest(table)
    for table in soup.find_all("table"):
        _spread(soup, table)
    return soup


def markdown(soup: "BeautifulSoup") -> str:
    """A tree as Markdown; its cells are changed.

    Raises:
        RecursionError: It is nested too deeply.
    """
    from markdownify import ATX, MarkdownConverter

    for cell in soup.find_all(["td", "th"]):
        for text in cell.find_all(string=lambda found: "|" in found):
            text.replace_with(text.replace("|", "\\|"))
    written: str = MarkdownConverter(
        heading_style=ATX, bullets="-", autolinks=False, escape_asterisks=False, escape_underscores=False
    ).convert_soup(soup)
    return _compact(written)


def plain(html: str) -> str:
    """The words of a page that cannot be converted, however it is nested, one line for each piece."""
    words = _Words()
    words.feed(html)
    words.close()
    return "\n".join(words.found)


def title(html: str) -> str:
    """The page's title, or nothing."""
    from bs4 import BeautifulSoup, SoupStrainer

    found = BeautifulSoup(html[:200_000], "lxml", parse_only=SoupStrainer("title")).find("title")
    return " ".join(found.get_text().split())[:300] if found else ""


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._unseen = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "title"):
            self._unseen = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._unseen:
            self._unseen = ""

    def handle_data(self, data: str) -> None:
        if not self._unseen and (text := " ".join(data.split())):
            self.found.append(text)


def _formulas(soup: "BeautifulSoup") -> None:
    for formula in soup.find_all("math"):
        tex = formula.find("annotation", attrs={"encoding": "application/x-tex"})
        text = tex.get_text() if tex else formula.get("alttext") or formula.get_text(" ", strip=True)
        # MediaWiki hides its MathML beside an image of the formula.
        whole = formula.find_parent(class_="mwe-math-element") or formula
        whole.replace_with(f"${str(text).strip()}$")


def _links(soup: "BeautifulSoup", url: str, own: bool) -> None:
    for link in soup.find_all("a"):
        given = str(link.get("href") or "").strip()
        target = _absolute(url, given)
        if (
            given.startswith("#")
            or not given
            or not target.startswith(_ELSEWHERE)
            or not (own or _is_external(link))
        ):
            link.unwrap()
        else:
            link.attrs = {"href": target}


def _images(soup: "BeautifulSoup", url: str, wanted: bool) -> None:
    for image in soup.find_all("img"):
        source = _absolute(url, str(image.get("src") or image.get("data-src") or ""))
        if wanted and source.startswith(_ELSEWHERE):
            image.attrs = {"src": source, "alt": str(image.get("alt") or "")}
        else:
            image.decompose()


def _unnest(table: "Tag") -> None:
    """Markdown has no tables in tables: the inner ones become text, or the outer one a mere arrangement of parts."""
    inner = table.find_all("table")
    if not inner:
        return
    if table.find("th") and not table.find_parent("table"):
        for one in inner:
            if one.parent is not None:
                cells = (cell.get_text(" ", strip=True) for cell in one.find_all(["td", "th"]))
                one.replace_with("; ".join(filter(None, cells)))
        return
    parts = table.find_all(["thead", "tbody", "tfoot", "tr", "td", "th", "caption"])
    own = [part for part in parts if part.find_parent("table") is table]
    for part in [table, *own]:
        part.name = "div"
        part.attrs = {}


def _spread(soup: "BeautifulSoup", table: "Tag") -> None:
    """Write cells that span rows or columns into each place that they span, so that every row has all its cells."""
    below: dict[int, tuple[int, Any]] = {}  # column -> rows still to fill, and the cell
    written = 0
    for row in table.find_all("tr"):
        cells = row.find_all(["td", "th"], recursive=False)
        full: list[Any] = []
        alone = len(cells) == 1 and not below
        while cells or any(column >= len(full) for column in below):
            column = len(full)
            if column in below:
                left, cell = below.pop(column)
                if left > 1:
                    below[column] = (left - 1, cell)
                full.append(_copy(soup, cell))
            elif cells:
                cell = cells.pop(0)
                down, across = _span(cell, "rowspan"), 1 if alone else _span(cell, "colspan")
                cell.attrs = {}
                for place in range(across):
                    if down > 1:
                        below[column + place] = (down - 1, cell)
                    full.append(cell if place == 0 else _copy(soup, cell))
            else:
                full.append(soup.new_tag("td"))
            written += 1
            if written > _MAX_CELLS:
                return
        row.extend(full)


def _copy(soup: "BeautifulSoup", cell: "Tag") -> "Tag":
    copy = soup.new_tag(cell.name)
    copy.string = cell.get_text(" ", strip=True)
    return copy


def _span(cell: "Tag", name: str) -> int:
    """How far a cell reaches; to the end of the table where it says 0."""
    said = str(cell.get(name, ""))
    return min(int(said) or _MAX_SPAN, _MAX_SPAN) if said.isdecimal() and len(said) < 10 else 1


def _is_external(link: "Tag") -> bool:
    """Whether MediaWiki marked a link as one to another site."""
    return "external" in (link.get("class") or [])


def _absolute(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return ""


def _compact(text: str) -> str:
    """Without spaces at line ends, and with one empty line between paragraphs."""
    lines = [line.rstrip() for line in text.replace("\xa0", " ").split("\n")]
    kept = [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]
    return "\n".join(kept).strip()
