"""Formulas as TeX: MathML of pages and books, and Office Math of Word and PowerPoint.

anydoc reads both in documents made of them. A formula in which a digit would be lost stays as its own text.
"""

import copy
import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gaia_tools import office_model

MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles><rootfile'
    ' full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest><item id="a" href="a.xhtml"'
    ' media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'
)
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels"'
    ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml"'
    ' ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="a"'
    ' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="word/document.xml"/></Relationships>'
)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_ROWS = ("math", "mrow", "mstyle", "mtd", "mpadded", "semantics")
_INVISIBLE = " \t\r\n\xa0\u2009\u200a\u2061\u2062\u2063\u2064"
_DIGIT = re.compile(r"\d")
_BRACED_BASE = re.compile(r"(?<![}\w\\^_])\{(\w+)\}(?=[\^_]|$)")


def of_mathml(formulas: Sequence[Any]) -> list[str]:
    for formula in formulas:
        for unseen in formula.find_all(["mphantom", "annotation", "annotation-xml"]):
            unseen.decompose()
        for root in formula.find_all("menclose", attrs={"notation": "radical"}):
            root.name = "msqrt"
        for number in formula.find_all("mn"):
            _set_apart(number)
        formula.attrs = {"xmlns": "http://www.w3.org/1998/Math/MathML"}
    body = "".join(f"<p>{number} {formula}</p>" for number, formula in enumerate(formulas))
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "a.opf": PACKAGE,
        "a.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>',
    }
    plain = [formula.get_text(" ", strip=True) for formula in formulas]
    return _checked(plain, parts, "epub")


def _set_apart(number: Any) -> None:
    node = number
    while node.parent.name != "math" and not _previous(node):
        node = node.parent
    before = _previous(node)
    while before is not None and before.name in _ROWS and (inner := before.find_all(True, recursive=False)):
        before = inner[-1]
    if before is not None and before.name == "mn" and node.parent.name in _ROWS:
        space = copy.copy(number)  # of a new element there is only a soup to ask
        space.name, space.attrs, space.string = "mspace", {"width": "1em"}, ""
        node.insert_before(space)


def _previous(node: Any) -> Any:
    before = node.find_previous_sibling()
    while before is not None and before.name in ("mo", "mtext") and not before.get_text().strip(_INVISIBLE):
        before = before.find_previous_sibling()
    return before


def of_office_math(formulas: Sequence[Any]) -> list[str]:
    from lxml import etree

    body = "".join(
        f"<w:p><w:r><w:t>{number} </w:t></w:r>{etree.tostring(formula, encoding='unicode', with_tail=False)}</w:p>"
        for number, formula in enumerate(formulas)
    )
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _RELATIONS,
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
    }
    plain = [" ".join(text.text or "" for text in formula.iter(f"{MATH}t")) for formula in formulas]
    return _checked(plain, parts, "docx")


def _checked(plain: list[str], parts: dict[str, str], kind: str) -> list[str]:
    from mcp.server.fastmcp.exceptions import ToolError

    if not plain:
        return []
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as package:
        for name, content in parts.items():
            package.writestr(name, content)
    found: dict[int, str] = {}
    try:
        blocks = office_model.model(file.getvalue(), kind, "a formula").blocks
    except ToolError:  # malformed beyond reading
        blocks = []
    for block in blocks:
        number, *inlines = block.content or [None]
        if number is not None and (number.text or "").strip().isdecimal():
            found[int(number.text or "")] = "".join(one.text or "" for one in inlines)
    return [f"${_whole(found.get(number, ''), text)}$" for number, text in enumerate(plain)]


def _whole(tex: str, plain: str) -> str:
    missing = Counter(_DIGIT.findall(plain)) - Counter(_DIGIT.findall(tex))
    return plain if missing or not tex.strip() else _BRACED_BASE.sub(r"\1", tex.strip())
