"""What OpenDocument files say beside their text: headers, footers, comments, properties, and the slides of a show.

A file has been checked by `zips.office` before any of this, so that its XML declares no entities.
"""

import copy
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TEXT, _STYLE = (f"{{{_OASIS}{name}:1.0}}" for name in ("office", "text", "style"))
_DRAW, _SHOW, _META = (f"{{{_OASIS}{name}:1.0}}" for name in ("drawing", "presentation", "meta"))
_WITH_PREVIEWS = (f"{{{_OASIS}table:1.0}}table", f"{_DRAW}object", f"{_DRAW}object-ole")
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
_LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Slide:
    """A slide of a presentation.

    Attributes:
        content: A presentation of this slide alone, without its title and notes.
        objects: How many embedded charts, sheets and others it has.
    """

    title: str
    is_hidden: bool
    notes: str
    objects: int
    content: bytes


def with_comments(content: io.BytesIO) -> bytes:
    """A text whose comments stand in it as ``[Comment by Ann: ...]``, without what was deleted from it."""
    with zipfile.ZipFile(content) as archive:
        root = _parsed(archive, "content.xml")
        for deleted in list(root.iter(f"{_TEXT}tracked-changes")):
            _removed(deleted)
        for comment in list(root.iter(f"{_OFFICE}annotation")):
            author = comment.findtext(f"{_DUBLIN_CORE}creator") or "?"
            span = comment.makeelement(f"{_TEXT}span", {}, None)
            span.text, span.tail = f" [Comment by {author}: {_paragraphs(comment)}]", comment.tail
            comment.getparent().replace(comment, span)
        return _rewritten(archive, root)


def around(content: io.BytesIO, kind: str) -> list[str]:
    """The different headers or footers of all pages, each on one line."""
    with zipfile.ZipFile(content) as archive:
        if "styles.xml" not in archive.namelist():
            return []
        root = _parsed(archive, "styles.xml")
    kinds = [f"{_STYLE}{kind}{pages}" for pages in ("", "-left", "-first")]
    texts = dict.fromkeys(_paragraphs(one) for name in kinds for one in root.iter(name))
    return [text for text in texts if text]


def properties(content: io.BytesIO) -> dict[str, str]:
    """Title and author of a document."""
    with zipfile.ZipFile(content) as archive:
        if "meta.xml" not in archive.namelist():
            return {"title": "", "author": ""}
        root = _parsed(archive, "meta.xml")
    author = root.findtext(f".//{_META}initial-creator") or root.findtext(f".//{_DUBLIN_CORE}creator")
    return {"title": root.findtext(f".//{_DUBLIN_CORE}title") or "", "author": author or ""}


def slides(content: io.BytesIO) -> Iterator[Slide]:
    """The slides of a presentation, in order."""
    with zipfile.ZipFile(content) as archive:
        root = _parsed(archive, "content.xml")
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


def _taken(page: Any, kind: str) -> str:
    """The text of a page's frames of that kind, which are taken off it."""
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


def _removed(part: Any) -> None:
    """Take an element out, and leave the text behind it."""
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
    """The file with other content, and of its pictures those that are in it."""
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
