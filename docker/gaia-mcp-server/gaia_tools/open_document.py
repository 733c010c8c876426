"""What OpenDocument files say beside their text: headers, footers, comments, properties, and the slides of a show; and
what readers leave out of it, written as text: superscripts, formulas, ticks. `zips.office` has checked a file before.
"""

import copy
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gaia_tools import superscripts
from gaia_tools.zips import with_parts

_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TEXT, _STYLE = (f"{{{_OASIS}{name}:1.0}}" for name in ("office", "text", "style"))
_DRAW, _SHOW, _META = (f"{{{_OASIS}{name}:1.0}}" for name in ("drawing", "presentation", "meta"))
_FORM = f"{{{_OASIS}form:1.0}}"
_FIELD_NAMES = ("{http://www.w3.org/XML/1998/namespace}id", f"{_FORM}id")
_HEAD_BYTES = 4096
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_WITH_PREVIEWS = (f"{{{_OASIS}table:1.0}}table", f"{_DRAW}object", f"{_DRAW}object-ole")
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
_LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Slide:
    """A slide; ``content`` is a presentation of it alone, without its title and notes."""

    title: str
    is_hidden: bool
    notes: str
    objects: int
    content: bytes


def readable_text(content: io.BytesIO) -> tuple[bytes, int]:
    """A text in which comments stand as ``[Comment by Ann: ...]``, without what was deleted from it; and how many
    charts and other objects it has, which are not shown.
    """
    with zipfile.ZipFile(content) as archive:
        root = _parsed(archive, "content.xml")
        for deleted in list(root.iter(f"{_TEXT}tracked-changes")):
            _removed(deleted)
        for comment in list(root.iter(f"{_OFFICE}annotation")):
            author = comment.findtext(f"{_DUBLIN_CORE}creator") or "?"
            _replaced(comment, f" [Comment by {author}: {_paragraphs(comment)}]")
        _write_unread(archive, root)
        objects = sum(1 for _ in root.iter(f"{_DRAW}object", f"{_DRAW}object-ole"))
        return _rewritten(archive, root), objects


def readable_tables(content: io.BytesIO) -> io.BytesIO:
    from lxml import etree

    with zipfile.ZipFile(content) as archive:
        styles = [name for name in ("styles.xml", "content.xml") if name in archive.namelist()]
        is_raised = any(b"text-position" in archive.read(name) for name in styles)
        root = _parsed(archive, "content.xml") if is_raised else None
        if root is None or not _write_scripts(archive, root):
            content.seek(0)
            return content
    return with_parts(content, {"content.xml": etree.tostring(root, xml_declaration=True, encoding="utf-8")})


def around(content: io.BytesIO, kind: str) -> list[str]:
    with zipfile.ZipFile(content) as archive:
        if "styles.xml" not in archive.namelist():
            return []
        root = _parsed(archive, "styles.xml")
    kinds = [f"{_STYLE}{kind}{pages}" for pages in ("", "-left", "-first")]
    texts = dict.fromkeys(_paragraphs(one) for name in kinds for one in root.iter(name))
    return [text for text in texts if text]


def properties(content: io.BytesIO) -> dict[str, str]:
    with zipfile.ZipFile(content) as archive:
        if "meta.xml" not in archive.namelist():
            return {"title": "", "author": ""}
        root = _parsed(archive, "meta.xml")
    author = root.findtext(f".//{_META}initial-creator") or root.findtext(f".//{_DUBLIN_CORE}creator")
    return {"title": root.findtext(f".//{_DUBLIN_CORE}title") or "", "author": author or ""}


def slides(content: io.BytesIO) -> Iterator[Slide]:
    with zipfile.ZipFile(content) as archive:
        root = _parsed(archive, "content.xml")
        _write_unread(archive, root)
        pages = list(root.iter(f"{_DRAW}page"))
        hidden = {
            style.get(f"{_STYLE}name")
            for style in root.iter(f"{_STYLE}style")
            for shown in style.iter(f"{_STYLE}drawing-page-properties")
            if shown.get(f"{_SHOW}visibility") == "hidden"
        }
        for page in pages:
            _removed(page)
        show = next(root.iter(f"{_OFFICE}presentation"))
        for page in pages:
            alone = copy.deepcopy(page)
            title = _taken(alone, "title")
            notes = " / ".join(_paragraphs(part) for part in _taken_notes(alone))
            for drawn in list(alone.iterfind(f".//{_DRAW}frame/{_DRAW}image")):
                if any(drawn.getparent().find(name) is not None for name in _WITH_PREVIEWS):
                    _removed(drawn)  # a preview of the table or object beside it
            objects = sum(1 for _ in alone.iter(f"{_DRAW}object", f"{_DRAW}object-ole"))
            show.insert(0, alone)
            yield Slide(
                title, page.get(f"{_DRAW}style-name") in hidden, notes, objects, _rewritten(archive, root)
            )
            show.remove(alone)


def _write_unread(archive: zipfile.ZipFile, root: Any) -> None:
    for held in list(root.iter(f"{_DRAW}object")):
        part = str(held.get(_LINK, "")).removeprefix("./") + "/content.xml"
        if part in archive.namelist() and (text := _formula(archive.read(part))):
            _replaced(held.getparent(), text)
    fields = {one.get(name): one for one in root.iter(f"{_FORM}*") for name in _FIELD_NAMES if one.get(name)}
    for control in list(root.iter(f"{_DRAW}control")):
        field = fields.get(control.get(f"{_DRAW}control"))
        if field is not None and (text := _field(field)):
            _replaced(control, f" {text} ")
    _write_scripts(archive, root)


def _formula(source: bytes) -> str:
    if b"math" not in source[:_HEAD_BYTES]:
        return ""
    from gaia_tools.page_markdown import tree

    text = tree(_DECLARATION.sub("", source.decode("utf-8", "replace"))).get_text().strip()
    return text if text.startswith("$") else ""


def _field(field: Any) -> str:
    kind, label = field.tag.removeprefix(_FORM), field.get(f"{_FORM}label", "")
    if kind in ("checkbox", "radio"):
        state = field.get(f"{_FORM}current-state" if kind == "checkbox" else f"{_FORM}current-selected")
        state = state or field.get(f"{_FORM}state") or field.get(f"{_FORM}selected")
        return f"{'☑' if state in ('checked', 'true') else '☐'} {label}"
    chosen = [one.get(f"{_FORM}label", "") for one in field if one.get(f"{_FORM}current-selected") == "true"]
    return ", ".join(chosen) or field.get(f"{_FORM}current-value") or field.get(f"{_FORM}value") or label


def _write_scripts(archive: zipfile.ZipFile, root: Any) -> bool:
    levels: dict[str, int] = {}
    for styles in (_parsed(archive, "styles.xml"), root) if "styles.xml" in archive.namelist() else (root,):
        for style in styles.iter(f"{_STYLE}style"):
            for properties in style.iter(f"{_STYLE}text-properties"):
                if level := _level(properties.get(f"{_STYLE}text-position", "")):
                    levels[style.get(f"{_STYLE}name", "")] = level
    if not levels:
        return False
    for paragraph in root.iter(f"{_TEXT}p", f"{_TEXT}h"):
        places = list(_places(paragraph, levels, 0))
        pieces = [(getattr(part, name) or "", level) for part, name, level in places]
        for (part, name, _), text in zip(places, superscripts.spread(pieces), strict=True):
            if text:
                setattr(part, name, text)
    return True


def _level(position: str) -> int:
    """Of ``super 58%``, ``-33% 58%`` and so on."""
    moved = position.partition(" ")[0]
    if moved in ("super", "sub"):
        return 1 if moved == "super" else -1
    return 0 if not moved.strip("-0.%") else -1 if moved.startswith("-") else 1


def _places(part: Any, levels: dict[str, int], above: int) -> Iterator[tuple[Any, str, int]]:
    level = levels.get(part.get(f"{_TEXT}style-name", ""), above)
    yield part, "text", level
    for inner in part:
        if inner.tag not in (f"{_TEXT}note", f"{_TEXT}p", f"{_DRAW}frame"):
            yield from _places(inner, levels, level)
        yield inner, "tail", level


def _taken(page: Any, kind: str) -> str:
    frames = [one for one in page.iter(f"{_DRAW}frame") if one.get(f"{_SHOW}class") == kind]
    frames = [one for one in frames if next(one.iterancestors(f"{_SHOW}notes"), None) is None]
    text = " ".join(_paragraphs(frame) for frame in frames)
    for frame in frames:
        _removed(frame)
    return " ".join(text.split())


def _taken_notes(page: Any) -> list[Any]:
    found = []
    for notes in list(page.iter(f"{_SHOW}notes")):
        found += [one for one in notes.iter(f"{_DRAW}frame") if one.get(f"{_SHOW}class") == "notes"]
        _removed(notes)
    return [one for one in found if _paragraphs(one)]


def _paragraphs(part: Any) -> str:
    lines = ("".join(line.itertext()).strip() for line in part.iter(f"{_TEXT}p", f"{_TEXT}h"))
    return " / ".join(filter(None, lines))


def _replaced(part: Any, text: str) -> None:
    span = part.makeelement(f"{_TEXT}span", {}, None)
    span.text, span.tail = text, part.tail
    part.getparent().replace(part, span)


def _removed(part: Any) -> None:
    parent, before = part.getparent(), part.getprevious()
    if part.tail and before is not None:
        before.tail = (before.tail or "") + part.tail
    elif part.tail:
        parent.text = (parent.text or "") + part.tail
    part.tail = None
    parent.remove(part)


def _parsed(archive: zipfile.ZipFile, name: str) -> Any:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    return etree.fromstring(archive.read(name), parser)


def _rewritten(archive: zipfile.ZipFile, root: Any) -> bytes:
    from lxml import etree

    linked = {str(one.get(_LINK)).removeprefix("./") for one in root.iter() if one.get(_LINK)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for entry in archive.infolist():
            if entry.filename == "content.xml":
                new.writestr("content.xml", etree.tostring(root, xml_declaration=True, encoding="utf-8"))
            elif (
                "/" not in entry.filename
                or entry.filename.startswith("META-INF/")
                or entry.filename in linked
            ):
                new.writestr(entry.filename, archive.read(entry))
    return file.getvalue()
