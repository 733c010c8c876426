"""The values in a file, as another library reads them: numbers with their signs, exponents and units, and ticks.

A superscript is read as ``^`` and what is in it, a subscript as ``_``; a mark of a note, an ordinal and a sign such as
``*`` as themselves. A line ends where a block, a cell or a paragraph ends, and no value goes on beyond it.
"""

import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_VALUE = re.compile(
    r"([+\-\u2212±]?\d+(?:[.,:/]\d+)*(?:[\^_][+\-\u2212]?\w+)*)( ?(?:[%°‰€£$]\w?|[^\W\d_]+))?"
)
_TICK = re.compile("[☑☐◉○]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PLAIN = re.compile(r"\[.*\]|[*†‡§¶#°′″®©™]+|TM|SM|st|nd|rd|th|er|[eè][mr]e")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_W14 = "{http://schemas.microsoft.com/office/word/2010/wordml}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_INLINE = re.compile(
    "a|abbr|acronym|b|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|math|q|s|samp|small|span|strong|sub|sup"
    "|time|tt|u|var|wbr"
).fullmatch
_UNSEEN = (
    "script",
    "style",
    "head",
    "template",
    "noscript",
    "annotation",
    "svg",
    "iframe",
    "object",
    "mphantom",
)


def values(lines: str) -> Counter[str]:
    """The values of a text, in which formulas stand between dollars."""
    found: Counter[str] = Counter()
    for number, part in enumerate(re.split(r"\$([^$\n]+)\$", lines)):
        if number % 2:
            found.update(f"${one}" for one in _NUMBER.findall(part))
        else:
            part = re.sub(r"\]\(\w+:[^)\s]*\)", "]", part)
            plain = re.sub(r"[{}*`~\\\u00ad\u200b]", "", unicodedata.normalize("NFC", part)).replace(
                "\xa0", " "
            )
            plain = re.sub(r"[ \t\[\]]+", " ", plain)
            for number_found, unit in _VALUE.findall(plain):
                found[number_found] += 1
                found[f"{number_found} {unit.strip()}"] += bool(unit)
            found.update(_TICK.findall(plain))
    return found


def of_html(path: Path, encoding: str = "utf-8") -> str:
    from lxml import html

    source = re.sub(r"^\s*<\?xml[^>]*\?>", "", path.read_bytes().decode(encoding))
    return "".join(_of_element(html.fromstring(source)))


def _of_element(part: Any) -> Iterator[str]:
    tag = part.tag if isinstance(part.tag, str) else "script"
    style = (part.get("style") or "").replace(" ", "")
    if tag == "math":
        tex = [one.text or "" for one in part.iter("annotation") if "tex" in one.get("encoding", "").lower()]
        numbers = [one.text or "" for one in part.iter("mn")]
        yield f"${' '.join(tex or [part.get('alttext', '')] if tex or part.get('alttext') else numbers) or ' '}$"
    elif tag == "input" and part.get("type", "") in ("checkbox", "radio"):
        yield {"checkbox": "☐☑", "radio": "○◉"}[part.get("type")]["checked" in part.attrib]
    elif tag not in _UNSEEN and "display:none" not in style and "hidden" not in part.attrib:
        block = "" if _INLINE(tag) else "\n"
        inner = "".join([part.text or "", *(text for one in part for text in _of_element(one))])
        # Line ends of the source are spaces, but for those of text that is laid out.
        yield block + (_script(part, inner) if tag in ("sup", "sub") else inner) + block
    yield part.tail or ""


def _script(part: Any, inner: str) -> str:
    links = [*part.iter("a"), *(one for one in part.iterancestors("a"))]
    text = inner.strip()
    is_note = part.tag == "sup" and any(one.get("href", "").startswith("#") for one in links)
    if is_note or not text or (part.tag == "sup" and _PLAIN.fullmatch(text)):
        return f"[{inner}]" if is_note else inner
    return ("^" if part.tag == "sup" else "_") + text


def of_docx(path: Path) -> str:
    with zipfile.ZipFile(path) as book:
        roots = [
            ElementTree.fromstring(book.read(name))
            for name in book.namelist()
            if re.fullmatch(r"word/(document|footnotes|endnotes|header\d*|footer\d*)\.xml", name)
        ]
    return "\n".join(line for root in roots for line in _of_word(root))


def _of_word(root: Any) -> Iterator[str]:
    hidden = {
        id(one) for kind in (f"{_MC}Fallback", f"{_W}del") for part in root.iter(kind) for one in part.iter()
    }
    for paragraph in root.iter(f"{_W}p"):
        inner = {id(one) for box in paragraph.iter(f"{_W}txbxContent") for one in box.iter()}
        line, level = "", 0
        for one in paragraph.iter():
            if id(one) in hidden or id(one) in inner:
                continue
            if one.tag == f"{_W}r":
                raised = one.find(f"{_W}rPr/{_W}vertAlign")
                at = {"superscript": 1, "subscript": -1}.get(
                    "" if raised is None else raised.get(f"{_W}val", ""), 0
                )
                text = "".join(part.text or "" for part in one.iter(f"{_W}t"))
                line += (
                    {1: "^", -1: "_"}.get(at, "")
                    if at != level and text and not _PLAIN.fullmatch(text)
                    else ""
                )
                level = at if text else level
            elif one.tag == f"{_W}t":
                line += one.text or ""
            elif one.tag in (f"{_W}tab", f"{_W}br"):
                line += " "
            elif one.tag == f"{_W14}checked":
                line += "☑" if one.get(f"{_W14}val") in ("1", "true") else "☐"
            elif one.tag == f"{_M}t":
                line += f"${one.text}$"
        yield line


def of_pptx(path: Path) -> str:
    lines = []
    with zipfile.ZipFile(path) as book:
        for name in book.namelist():
            if not re.fullmatch(r"ppt/(slides/slide|notesSlides/notesSlide)\d+\.xml", name):
                continue
            for paragraph in ElementTree.fromstring(book.read(name)).iter(f"{_A}p"):
                line, level = "", 0
                for run in paragraph.findall(f"{_A}r"):
                    properties = run.find(f"{_A}rPr")
                    baseline = "0" if properties is None else properties.get("baseline", "0")
                    at = 0 if baseline == "0" else -1 if baseline.startswith("-") else 1
                    line += {1: "^", -1: "_"}.get(at, "") if at != level else ""
                    line, level = line + (run.findtext(f"{_A}t") or ""), at
                lines.append(line)
    return "\n".join(lines)


def of_odf(path: Path) -> str:
    with zipfile.ZipFile(path) as book:
        root = ElementTree.fromstring(book.read("content.xml"))
        styles = (
            [root, ElementTree.fromstring(book.read("styles.xml"))]
            if "styles.xml" in book.namelist()
            else [root]
        )
    raised = {
        style.get(f"{_STYLE}name"): "_" if position.startswith(("sub", "-")) else "^"
        for source in styles
        for style in source.iter(f"{_STYLE}style")
        for properties in style.iter(f"{_STYLE}text-properties")
        if (position := properties.get(f"{_STYLE}text-position", "0"))[0] not in "0"
    }
    body = root.find(f"{_OFFICE}body")
    assert body is not None
    return "\n".join(_of_odf_line(one, raised) for kind in ("p", "h") for one in body.iter(f"{_TEXT}{kind}"))


def _of_odf_line(part: Any, raised: dict[str | None, str]) -> str:
    line = raised.get(part.get(f"{_TEXT}style-name"), "") if part.tag == f"{_TEXT}span" else ""
    line += part.text or ""
    for one in part:
        if one.tag in (f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break"):
            line += " "
        elif one.tag not in (f"{_TEXT}note", f"{_OFFICE}annotation") and not one.tag.endswith("}frame"):
            line += _of_odf_line(one, raised)
        line += one.tail or ""
    return line


def of_xlsx(path: Path) -> str:
    import openpyxl
    from openpyxl.cell.rich_text import CellRichText

    sheet = openpyxl.load_workbook(path, data_only=True, rich_text=True).worksheets[0]
    cells = []
    for row in sheet.iter_rows(values_only=True):
        for cell in row:
            if isinstance(cell, CellRichText):
                signs = {"superscript": "^", "subscript": "_"}
                pieces = (
                    one if isinstance(one, str) else signs.get(one.font.vertAlign or "", "") + one.text
                    for one in cell
                )
                cells.append("".join(pieces))
            elif isinstance(cell, int | float) and not isinstance(cell, bool):
                cells.append(
                    str(int(cell)) if float(cell).is_integer() and abs(cell) < 1e15 else str(float(cell))
                )
            elif cell is not None:
                written = cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
                cells.append(written.removesuffix("T00:00:00"))
    return "\n".join(cells)
