"""What the libraries for Office files leave out, written as text where it stands before they read a file: equations,
choices in forms, superscripts of slides and cells, and slides' parts with an alternative for older programs.

A file was checked by `zips.office` before, so that its XML declares no entities.
"""

import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

from gaia_tools import superscripts
from gaia_tools.formulas import MATH, of_office_math
from gaia_tools.zips import with_parts

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_EQUATION = f"{MATH}oMath"
_HOLDERS = (f"{MATH}oMathPara", "{http://schemas.microsoft.com/office/drawing/2010/main}m")
_LEVELS = {"superscript": 1, "subscript": -1}
_WORD_PARTS = re.compile(r"word/(document\d*|footnotes|endnotes|comments)\.xml")
_SLIDE_PARTS = re.compile(r"ppt/(slides|notesSlides)/\w+\.xml")
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_SHEET_PARTS = re.compile(r"xl/(sharedStrings|worksheets/[^/]+)\.xml", re.IGNORECASE)
_EMBEDDED = re.compile(r"(?:word|ppt|xl)/embeddings/([^/]+)")


def readable_word(content: io.BytesIO) -> io.BytesIO:
    return _changed(content, _WORD_PARTS, _write_word, b"oMath", b"ddList")


def readable_slides(content: io.BytesIO) -> io.BytesIO:
    return _changed(content, _SLIDE_PARTS, _write_slide, b"AlternateContent", b"baseline=", b"oMath")


def readable_sheets(content: io.BytesIO) -> io.BytesIO:
    return _changed(content, _SHEET_PARTS, _write_cells, b"vertAlign")


def word_line(paragraph: Any) -> str:
    pieces = []
    for run in paragraph.iter(f"{_WORD}r"):
        raised = run.find(f"{_WORD}rPr/{_WORD}vertAlign")
        level = 0 if raised is None else _LEVELS.get(raised.get(f"{_WORD}val"), 0)
        names = {f"{_WORD}tab": " ", f"{_WORD}br": " "}
        text = "".join(one.text or "" if one.tag == f"{_WORD}t" else names.get(one.tag, "") for one in run)
        pieces.append((text, level))
    return " ".join(superscripts.joined(pieces).split())


def embedded(content: io.BytesIO) -> list[str]:
    with zipfile.ZipFile(content) as package:
        charts = "".join(
            package.read(name).decode("utf-8", "replace")
            for name in package.namelist()
            if "/charts/_rels/" in name
        )
        names = filter(None, map(_EMBEDDED.fullmatch, package.namelist()))
        return [name[1] for name in names if f"/{name[1]}" not in charts]


def _changed(
    content: io.BytesIO, parts: re.Pattern[str], write: Callable[[Any], None], *marks: bytes
) -> io.BytesIO:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    changed = {}
    with zipfile.ZipFile(content) as package:
        for name in filter(parts.fullmatch, package.namelist()):
            source = package.read(name)
            if any(mark in source for mark in marks):
                root = etree.fromstring(source, parser)
                write(root)
                changed[name] = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
    return with_parts(content, changed)


def _write_word(root: Any) -> None:
    for choices in root.iter(f"{_WORD}ddList"):
        names = [one.get(f"{_WORD}val", "") for one in choices.findall(f"{_WORD}listEntry")]
        found = [choices.find(f"{_WORD}{name}") for name in ("result", "default")]
        number = next((one.get(f"{_WORD}val", "0") for one in found if one is not None), "0")
        run = next(choices.iterancestors(f"{_WORD}r"), None)
        if run is not None and number.isdecimal() and int(number) < len(names):
            run.addprevious(_run(run, _WORD, f"{names[int(number)]} [of: {'; '.join(names)}]"))
    _write_equations(root, _WORD)


def _write_slide(root: Any) -> None:
    for alternatives in list(root.iter(f"{_COMPATIBILITY}AlternateContent")):
        choice, fallback = (alternatives.find(f"{_COMPATIBILITY}{name}") for name in ("Choice", "Fallback"))
        has_math = choice is not None and next(choice.iter(_EQUATION), None) is not None
        taken = choice if has_math or fallback is None or not len(fallback) else fallback
        if taken is not None and alternatives.getparent().tag.endswith(("}spTree", "}grpSp")):
            for shape in list(taken):
                alternatives.addprevious(shape)
            alternatives.getparent().remove(alternatives)
    _write_equations(root, _DRAWING)
    for paragraph in root.iter(f"{_DRAWING}p"):
        runs = paragraph.findall(f"{_DRAWING}r")
        levels = (_baseline(one.find(f"{_DRAWING}rPr")) for one in runs)
        _write_scripts([(one.find(f"{_DRAWING}t"), level) for one, level in zip(runs, levels, strict=True)])


def _write_cells(root: Any) -> None:
    for rich in root.iter(f"{_SHEET}si", f"{_SHEET}is"):
        runs = rich.findall(f"{_SHEET}r")
        raised = [one.find(f"{_SHEET}rPr/{_SHEET}vertAlign") for one in runs]
        levels = (0 if one is None else _LEVELS.get(one.get("val"), 0) for one in raised)
        _write_scripts([(one.find(f"{_SHEET}t"), level) for one, level in zip(runs, levels, strict=True)])


def _write_scripts(runs: list[tuple[Any, int]]) -> None:
    """Write marks into the texts of a line's runs, each with its level."""
    runs = [(text, level) for text, level in runs if text is not None]
    pieces = [(text.text or "", level) for text, level in runs]
    for (text, _), written in zip(runs, superscripts.spread(pieces), strict=True):
        text.text = written


def _baseline(properties: Any) -> int:
    raised = "0" if properties is None else properties.get("baseline", "0").rstrip("%")
    return 0 if not raised.lstrip("-").strip("0.") else -1 if raised.startswith("-") else 1


def _write_equations(root: Any, namespace: str) -> None:
    equations = [one for one in root.iter(_EQUATION) if next(one.iterancestors(_EQUATION), None) is None]
    for equation, tex in zip(equations, of_office_math(equations), strict=True):
        place = equation
        while place.getparent().tag in _HOLDERS:
            place = place.getparent()
        following = place.getnext()
        is_beside_another = following is not None and following.tag in (_EQUATION, *_HOLDERS)
        place.addprevious(_run(place, namespace, f"{tex} " if is_beside_another else tex))
    for written in list(root.iter(_EQUATION, *_HOLDERS)):
        if (parent := written.getparent()) is not None:
            parent.remove(written)


def _run(near: Any, namespace: str, text: str) -> Any:
    run = near.makeelement(f"{namespace}r", {}, None)
    content = run.makeelement(f"{namespace}t", {}, None)
    content.set(_SPACE, "preserve")
    content.text = text
    run.append(content)
    return run
