"""Web pages as Markdown, whole: as a reader sees them, with absolute links, formulas as TeX, superscripts as ``10^20``,
what is filled in and ticked, and merged table cells written out. To be called in a process of its own.
"""

import copy
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from gaia_tools import superscripts

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_UNSEEN = (
    "head, script, style, template, noscript, svg, iframe, object, "
    "[hidden], [style*='display:none'], [style*='display: none']"
)
_TEX = re.compile(r"^(application/x-)?(la)?tex$", re.IGNORECASE)
_FORMULA = re.compile(r"\b(tex|latex|math)\b")  # the class of its picture, whose other text is TeX
# What scripts draw beside the formula that they read.
_DRAWN_FORMULAS = ".katex-mathml ~ .katex-html, .MathJax_Preview, .MathJax, .MathJax_Display, .MathJax_SVG"
_SCRIPTS = "sup, sub, [style*='vertical-align']"
_RAISED = re.compile(r"vertical-align:\s*(super|sub)\b")
_NOTE = re.compile(r"\b(reference|footnote|fn|noteref)")
_INLINE = re.compile(
    r"a|abbr|b|bd[io]|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|math|nobr|q|rp|rt|ruby|s|samp|small|span"
    r"|strong|su[bp]|time|tt|u|var|wbr"
).fullmatch
# Those on lines of their own that markdownify takes for inline ones.
_BLOCKS = (
    "address, aside, center, details, dialog, dir, fieldset, figure, footer, form, header, hgroup, legend, main, menu, "
    "nav, search, summary, [style*='display:block'], [style*='display: block']"
)
_TICKS = {("checkbox", True): "☑", ("checkbox", False): "☐", ("radio", True): "◉", ("radio", False): "○"}
_MARKERS = {"a": "lower-alpha", "A": "upper-alpha", "i": "lower-roman", "I": "upper-roman"}
_NOT_SHOWN = ("hidden", "password", "file", "image")
_MAX_OPTIONS = 30
_MAX_SPAN = 100
_MAX_CELLS = 100_000
_ELSEWHERE = ("http://", "https://", "ftp://", "mailto:")


def tree(
    html: str, url: str = "", *, images: bool = False, links: bool = True, without: Iterable[str] = ()
) -> "BeautifulSoup":
    """What a reader sees of a page, each table with all its cells, without what the CSS selectors in ``without`` name.

    ``links`` keeps links within a wiki; those marked as external are kept anyhow.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "lxml")
    _formulas(soup)
    for part in soup.select(", ".join([_UNSEEN, *without])):
        part.decompose()
    for part in soup.select(_BLOCKS):
        part.name = "div"
    for above in soup.find_all("rt"):
        if not above.find_previous_sibling("rp"):
            above.insert(0, "(")
            above.append(")")
    _fields(soup)
    _labels(soup)
    _scripts(soup)
    _links(soup, url, links)
    _images(soup, url, images)
    soup.smooth()
    for table in soup.find_all("table"):
        _unnest(table)
    for table in soup.find_all("table"):
        _spread(soup, table)
    return soup


def markdown(soup: "BeautifulSoup") -> str:
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
    if scripts := soup.select("script[type^='math/tex']"):
        for script in scripts:
            script.replace_with(f"${script.get_text().strip()}$")
    for drawn in soup.select(_DRAWN_FORMULAS) if scripts or soup.find("math") else ():
        if not drawn.decomposed and (scripts or "katex-html" in drawn["class"]):
            drawn.decompose()
    for prefixed in soup.find_all(re.compile(r"^\w+:math$")):
        for tag in [prefixed, *prefixed.find_all(True)]:
            tag.name = tag.name.rpartition(":")[2]
    without_tex = []
    for formula in soup.find_all("math"):
        tex = formula.find("annotation", attrs={"encoding": _TEX})
        if text := str(tex.get_text() if tex else formula.get("alttext") or "").strip():
            _formula_replaced(formula, f"${text}$")
        else:
            without_tex.append(formula)
    if without_tex:
        from gaia_tools.formulas import of_mathml

        for formula, text in zip(without_tex, of_mathml(without_tex), strict=True):
            _formula_replaced(formula, text)


def _formula_replaced(formula: "Tag", text: str) -> None:
    # MediaWiki hides its MathML beside an image of the formula.
    (formula.find_parent(class_="mwe-math-element") or formula).replace_with(text)


def _fields(soup: "BeautifulSoup") -> None:
    for field in soup.find_all("input"):
        kind = str(field.get("type") or "text").lower()
        if kind in _NOT_SHOWN:
            field.decompose()
        else:
            field.replace_with(_TICKS.get((kind, field.has_attr("checked"))) or f" {field.get('value', '')} ")
    for field in soup.find_all(["button", "textarea"]):
        field.insert_before(" ")
        field.insert_after(" ")
    for field in soup.find_all(["meter", "progress"], value=True):
        field.replace_with(f" {field['value']} of {field.get('max', 1)} ")
    for field in soup.find_all("select"):
        options = field.find_all("option")
        names = [" ".join(one.get_text().split()) or str(one.get("label", "")) for one in options]
        chosen = [name for name, one in zip(names, options, strict=True) if one.has_attr("selected")]
        if not field.has_attr("multiple"):
            chosen = chosen[-1:] or names[:1]
        more = [f"and {len(names) - _MAX_OPTIONS} more"] if len(names) > _MAX_OPTIONS else []
        of = "; ".join([*names[:_MAX_OPTIONS], *more])
        field.replace_with(f" {', '.join(chosen) or 'none chosen'} [of: {of}] ")


def _labels(soup: "BeautifulSoup") -> None:
    from gaia_tools.office_model import written_number

    for numbered in soup.find_all("ol"):
        items = numbered.find_all("li", recursive=False)
        marker, is_down = _MARKERS.get(str(numbered.get("type")), ""), numbered.has_attr("reversed")
        if not (marker or is_down or any(item.has_attr("value") for item in items)):
            continue
        number = _whole_number(numbered.get("start"), len(items) if is_down else 1)
        for item in items:
            number = _whole_number(item.get("value"), number)
            item.insert(0, f"{written_number(number, marker)}. ")
            number += -1 if is_down else 1
        numbered.name = "ul"


def _whole_number(given: Any, default: int) -> int:
    return int(given) if re.fullmatch(r"-?\d{1,9}", str(given)) else default


def _scripts(soup: "BeautifulSoup") -> None:
    for raised in soup.find_all("sup"):
        _fraction(raised)
    for part in reversed(soup.select(_SCRIPTS)):
        found = None if part.name in ("sup", "sub") else _RAISED.search(str(part["style"]))
        if part.name not in ("sup", "sub") and not found:
            continue
        level = 1 if part.name == "sup" or (found and found[1] == "super") else -1
        text = " ".join(part.get_text().split())
        for beginning in part.find_all(string=True)[:1]:
            beginning.replace_with(beginning.lstrip())
        if level > 0 and text.isalnum() and _is_note(part):
            opening, closing = "[", "]"
        else:
            opening, closing = superscripts.marks(
                text, level, _beside(part, False)[-20:], _beside(part, True)[:2]
            )
        if opening:
            part.insert(0, opening)
            part.append(closing)
        part.unwrap()


def _fraction(raised: "Tag") -> None:
    """``3 1/2`` for 3<sup>1</sup>/<sub>2</sub>."""
    bar = raised.next_sibling
    lowered = bar.next_sibling if isinstance(bar, str) and bar.strip() in ("/", "\u2044") else None
    if getattr(lowered, "name", "") != "sub" or not (raised.get_text() + lowered.get_text()).isdecimal():
        return
    before = _beside(raised, False)[-1:]
    if not before.isalpha():
        if before.isdigit():
            raised.insert_before(" ")
        raised.unwrap()
        lowered.unwrap()


def _is_note(part: "Tag") -> bool:
    links = [*part.find_all("a"), *filter(None, [part.find_parent("a")])]
    if any(str(link.get("href") or "").startswith("#") for link in links):
        return True
    named = (
        str(one.get(name, "")) for one in (part, *links) for name in ("class", "role", "epub:type", "id")
    )
    return any(map(_NOTE.search, named))


def _beside(part: "Tag", forward: bool) -> str:
    node: Any = part
    while _INLINE(node.name) or node is part:
        siblings = node.next_siblings if forward else node.previous_siblings
        for other in siblings:
            if isinstance(other, str):
                text = str(other)
            elif _INLINE(other.name):
                text = other.get_text()
            else:
                return ""
            if text:
                return text
        node = node.parent
    return ""


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
        alt, cell = str(image.get("alt") or ""), image.find_parent(["td", "th"])
        if _FORMULA.search(str(image.get("class", ""))) and alt:
            image.replace_with(f"${alt}$")
        elif wanted and source.startswith(_ELSEWHERE):
            image.attrs = {"src": source, "alt": alt}
        elif alt and cell and not cell.get_text(strip=True):
            image.replace_with(alt)  # such as a tick
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
                cells = map(_line, one.find_all(["td", "th"]))
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
                full.append(copy.copy(cell))
            elif cells:
                cell = cells.pop(0)
                down, across = _span(cell, "rowspan"), 1 if alone else _span(cell, "colspan")
                cell.attrs = {}
                for place in range(across):
                    if down > 1:
                        below[column + place] = (down - 1, cell)
                    full.append(cell if place == 0 else copy.copy(cell))
            else:
                full.append(soup.new_tag("td"))
            written += 1
            if written > _MAX_CELLS:
                return
        row.extend(full)


def _line(part: "Tag") -> str:
    for inner in part.find_all(lambda tag: not _INLINE(tag.name)):
        inner.insert_before(" ")
        inner.insert_after(" ")
    return " ".join(part.get_text().split())


def _span(cell: "Tag", name: str) -> int:
    """How far a cell reaches; to the end of the table where it says 0."""
    said = str(cell.get(name, ""))
    return min(int(said) or _MAX_SPAN, _MAX_SPAN) if said.isdecimal() and len(said) < 10 else 1


def _is_external(link: "Tag") -> bool:
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
