"""Numbers of headings and lists that Word makes when it shows a document, written as text where they stand.

A list stays one of HTML where its numbers are those that HTML gives: 1, 2, 3 up to the next other paragraph.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gaia_tools.office_model import written_number
from gaia_tools.zips import with_parts

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCUMENT = re.compile(r"word/document\d*\.xml")
_STYLES, _NUMBERING = "word/styles.xml", "word/numbering.xml"
_HEADING = re.compile(r"heading [1-9]", re.IGNORECASE)
_PLACE = re.compile(r"%([1-9])")
_MAX_DEPTH = 20  # of styles that are based on each other
_SEEN = ("t", "drawing", "pict", "object", "sym")
_MARKERS = {
    "lowerLetter": "lower-alpha",
    "upperLetter": "upper-alpha",
    "lowerRoman": "lower-roman",
    "upperRoman": "upper-roman",
}


@dataclass(frozen=True)
class _Level:
    key: tuple[str, int]
    start: int
    kind: str
    text: str
    is_decimal: bool
    restarts_after: int
    source: Any


def with_numbers(content: io.BytesIO) -> io.BytesIO:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    with zipfile.ZipFile(content) as package:
        names = [name for name in package.namelist() if _DOCUMENT.fullmatch(name)]
        if not names or not {_STYLES, _NUMBERING} <= set(package.namelist()):
            content.seek(0)
            return content
        parts = {
            name: etree.fromstring(package.read(name), parser) for name in (names[0], _STYLES, _NUMBERING)
        }
    document, styles, numbering = parts.values()
    _write(document, _Lists(styles, numbering))
    return with_parts(
        content,
        {
            name: etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
            for name, root in parts.items()
            if name != _STYLES
        },
    )


class _Lists:
    def __init__(self, styles: Any, numbering: Any):
        self._styles = {one.get(f"{_WORD}styleId"): one for one in styles.iter(f"{_WORD}style")}
        self._definitions = {
            one.get(f"{_WORD}abstractNumId"): one for one in numbering.iter(f"{_WORD}abstractNum")
        }
        self._lists = {one.get(f"{_WORD}numId"): one for one in numbering.iter(f"{_WORD}num")}
        self.counts: dict[tuple[str, int], int] = {}
        self._used: set[tuple[str, int]] = set()

    def is_heading(self, paragraph: Any) -> bool:
        style = self._styles.get(_value(paragraph, "pPr/pStyle"))
        return style is not None and _HEADING.fullmatch(_value(style, "name")) is not None

    def numbered(self, paragraph: Any) -> tuple[_Level, str] | None:
        style = _value(paragraph, "pPr/pStyle")
        number, depth = _value(paragraph, "pPr/numPr/numId"), _value(paragraph, "pPr/numPr/ilvl")
        for name in self._based_on(style):
            number = number or _value(self._styles[name], "pPr/numPr/numId")
            depth = depth or _value(self._styles[name], "pPr/numPr/ilvl")
        levels = self._levels(number)
        if not depth:
            own = (at for at, one in levels.items() if _value(one.source, "pStyle") in (style or "-"))
            depth = str(next(own, 0))
        level = levels.get(int(depth))
        if level is None or level.kind in ("bullet", "none"):
            return None
        self._count(level, levels, number)
        return level, _PLACE.sub(lambda found: self._number(levels, level, int(found[1]) - 1), level.text)

    def _based_on(self, style: str) -> Iterator[str]:
        for _ in range(_MAX_DEPTH):
            if style not in self._styles:
                return
            yield style
            style = _value(self._styles[style], "basedOn")

    def _levels(self, number: str) -> dict[int, _Level]:
        list_ = self._lists.get(number)
        name = "" if list_ is None else _value(list_, "abstractNumId")
        for _ in range(_MAX_DEPTH):
            definition = self._definitions.get(name)
            if definition is None or not (linked := _value(definition, "numStyleLink")):
                break
            style = self._styles.get(linked)
            held = self._lists.get("" if style is None else _value(style, "pPr/numPr/numId"))
            name = "" if held is None else _value(held, "abstractNumId")
        if list_ is None or definition is None:
            return {}
        found = {int(one.get(f"{_WORD}ilvl", "0")): (one, "") for one in definition.iterfind(f"{_WORD}lvl")}
        for change in list_.iterfind(f"{_WORD}lvlOverride"):
            at = int(change.get(f"{_WORD}ilvl", "0"))
            own = change.find(f"{_WORD}lvl")
            if own is not None or at in found:
                found[at] = (found[at][0] if own is None else own, _value(change, "startOverride"))
        return {at: _level(name, at, source, start) for at, (source, start) in found.items()}

    def _count(self, level: _Level, levels: dict[int, _Level], number: str) -> None:
        name, depth = level.key
        is_restarted = (number, depth) not in self._used and level.start != _start(level.source)
        self._used.add((number, depth))
        before = None if is_restarted else self.counts.get(level.key)
        self.counts[level.key] = level.start if before is None else before + 1
        for at, lower in levels.items():
            if at > depth and lower.restarts_after > depth:
                self.counts.pop((name, at), None)

    def _number(self, levels: dict[int, _Level], level: _Level, at: int) -> str:
        if at not in levels:
            return ""
        shown = levels[at]
        count = self.counts.setdefault(shown.key, shown.start)
        kind = "decimal" if level.is_decimal and at < level.key[1] else shown.kind
        if kind == "decimalZero":
            return f"{count:02}"
        return written_number(count, _MARKERS.get(kind, "decimal"), repeats_letters=True)


def _write(document: Any, lists: _Lists) -> None:
    found: list[tuple[Any, _Level, str]] = []
    unlike: set[tuple[str, int]] = set()
    expected: dict[int, int] = {}
    parent = None
    for paragraph in document.iter(f"{_WORD}p"):
        numbered = lists.numbered(paragraph)
        is_empty = not any(next(paragraph.iter(f"{_WORD}{name}"), None) is not None for name in _SEEN)
        if paragraph.getparent() is not parent or (numbered is None and not is_empty):
            expected, parent = {}, paragraph.getparent()
        if numbered is None or is_empty:
            continue
        level, text = numbered
        found.append((paragraph, level, text))
        if lists.is_heading(paragraph):
            _prepend(paragraph, text)
            found.pop()
            expected = {}
            continue
        depth = level.key[1]
        expected = {at: count for at, count in expected.items() if at <= depth}
        expected[depth] = expected.get(depth, 0) + 1
        if text.rstrip(".)") != str(expected[depth]):
            unlike.add(level.key)
    for paragraph, level, text in found:
        if level.key in unlike:
            _prepend(paragraph, text)
            _set(level.source, "numFmt", "bullet")


def _level(name: str, depth: int, source: Any, start: str) -> _Level:
    restart = _value(source, "lvlRestart")
    return _Level(
        key=(name, depth),
        start=int(start or _start(source)),
        kind=_value(source, "numFmt") or "decimal",
        text=_value(source, "lvlText"),
        is_decimal=source.find(f"{_WORD}isLgl") is not None,
        # Of 0 the level continues whatever comes; by default it starts anew after any that is higher.
        restarts_after=int(restart) if restart else depth,
        source=source,
    )


def _start(source: Any) -> int:
    return int(_value(source, "start") or 0)


def _value(part: Any, path: str) -> str:
    found = part.find("/".join(f"{_WORD}{name}" for name in path.split("/")))
    return "" if found is None else found.get(f"{_WORD}val", "")


def _set(part: Any, name: str, value: str) -> None:
    part.find(f"{_WORD}{name}").set(f"{_WORD}val", value)


def _prepend(paragraph: Any, text: str) -> None:
    run = paragraph.makeelement(f"{_WORD}r", {}, None)
    content = run.makeelement(f"{_WORD}t", {}, None)
    content.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    content.text = f"{text} " if text else ""
    run.append(content)
    properties = paragraph.find(f"{_WORD}pPr")
    paragraph.insert(0 if properties is None else 1, run)
