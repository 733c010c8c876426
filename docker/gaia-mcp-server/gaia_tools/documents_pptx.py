"""documents-pptx-server: PowerPoint files, old and new, and OpenDocument presentations.

python-pptx reads .pptx. anydoc reads .odp by slides and .ppt as a whole, without charts and hidden slides of .ppt.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import olefile
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import charts, office_model, office_xml, open_document
from gaia_tools.document_pictures import Pictures
from gaia_tools.documents import FOR_HTML, FilePath, Format, Password, Start, document, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.page_markdown import markdown, tree
from gaia_tools.tables import table
from gaia_tools.zips import decrypted, office

server = FastMCP("documents-pptx-server", log_level="WARNING")
_FORMATS = {
    ".pptx .pptm .ppsx .potx": "PowerPoint",
    ".ppt .pps": "PowerPoint of before 2007; charts, and which slides are hidden, are not shown",
    ".odp": "OpenDocument presentation, as of LibreOffice; charts are not shown",
}
# What anydoc reads of the number of a slide in its notes.
_SLIDE_NUMBERS = ("*", "<number>", "‹#›")
_UNMARKED = "[Superscripts of .ppt are not marked: 1020 may be 10 to the 20.]"
_SLIDE_RECORD = 0x03EE  # RT_Slide of [MS-PPT]
_MAX_BYTES = 200 << 20
_DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"


@server.tool()
async def extract_pptx_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    extract_images: Annotated[
        bool, Field(description="Write its pictures into the workspace and name them where they stand.")
    ] = False,
    extract_notes: Annotated[bool, Field(description="Show the notes of the speaker.")] = True,
    include_structure: Annotated[
        bool, Field(description="Also list the slides with what is on each.")
    ] = False,
    start: Start = 0,
    password: Password = "",
) -> CallToolResult:
    """Read a .pptx, .ppt or .odp file as Markdown, by slides: titles, text, tables, charts' data, pictures, notes."""
    path = readable(file_path, _MAX_BYTES)
    ready("pptx", *FOR_HTML)
    content, facts = await isolated(_read, path, password, extract_images, extract_notes, include_structure)
    about = some(facts["slides"], "slide")
    if facts["hidden_slides"]:
        about += f", of which {len(facts['hidden_slides'])} hidden"
    return document(path, content, facts, output_format, start, about=about)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as PowerPoint files."""
    return formats(_FORMATS)


@dataclass(frozen=True)
class _Show:
    slides: list[str]
    outline: list[str]
    facts: dict[str, Any]
    hidden: list[int] = field(default_factory=list)


def _read(
    path: Path, password: str, images: bool, notes: bool, structure: bool
) -> tuple[str, dict[str, Any]]:
    pictures = Pictures(path) if images else None
    kind = expect(path, "pptx", "ppt", "odp", "encrypted")
    if kind == "odp":
        show = _odp(path, pictures, notes)
    elif kind == "ppt":
        show = _ppt(path, password, pictures, notes)
    else:
        show = _pptx(path, password, pictures, notes)
    facts = {"format": "pptx" if kind == "encrypted" else kind} | show.facts | {"hidden_slides": show.hidden}
    parts = list(show.slides)
    if structure:
        facts["structure"] = show.outline
        parts.insert(0, "\n".join(["Structure:", *show.outline]))
    if pictures:
        facts["image_files"] = pictures.paths
    return "\n\n".join(parts), facts


def _pptx(path: Path, password: str, pictures: Pictures | None, notes: bool) -> _Show:
    from pptx.exc import PythonPptxError
    from pptx.package import Package

    content = office(path, "pptx", password)
    try:
        content = office_xml.readable_slides(content)
        # pptx.Presentation takes no slide shows (.ppsx) and no templates (.potx), which are the same inside.
        deck = Package.open(content).main_document_part.presentation
        slides = list(deck.slides)
    except (KeyError, ValueError, AttributeError, PythonPptxError) as error:
        raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    parts, outline, hidden = [], [], []
    for number, slide in enumerate(slides, 1):
        title = slide.shapes.title
        name = " ".join(title.text_frame.text.split()) if title is not None else ""
        is_hidden = slide._element.get("show") == "0"
        heading = _heading(number, name, is_hidden)
        shapes = [shape for shape in _flat(slide.shapes) if title is None or shape.shape_id != title.shape_id]
        shown = [heading, *(_shape(shape, pictures) for shape in shapes)]
        if notes and slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame):
            shown.append(f"Notes: {frame.text.strip()}" if frame.text.strip() else "")
        parts.append("\n\n".join(part for part in shown if part))
        kinds = [_kind(shape) for shape in shapes]
        outline.append(_line(heading, kinds))
        if is_hidden:
            hidden.append(number)
    if files := office_xml.embedded(content):
        parts.append(f"[Files in it that are not shown: {', '.join(files)}.]")
    properties = deck.core_properties
    facts = {"title": properties.title, "author": properties.author, "slides": len(slides)}
    return _Show(parts, outline, facts, hidden)


def _odp(path: Path, pictures: Pictures | None, notes: bool) -> _Show:
    package = office(path, "odp")
    parts, outline, hidden = [], [], []
    try:
        facts: dict[str, Any] = dict(open_document.properties(package))
        for number, slide in enumerate(open_document.slides(package), 1):
            document = office_model.model(slide.content, "odp", path.name)
            heading = _heading(number, slide.title, slide.is_hidden)
            shown = [heading, _markdown(document, list(document.blocks), pictures)]
            if slide.objects:
                shown.append(f"[{some(slide.objects, 'embedded chart or sheet')} cannot be shown here.]")
            if notes and slide.notes:
                shown.append(f"Notes: {slide.notes}")
            parts.append("\n\n".join(part for part in shown if part))
            outline.append(_line(heading, [block.kind for block in document.blocks]))
            if slide.is_hidden:
                hidden.append(number)
    except (KeyError, ValueError, SyntaxError, AttributeError, StopIteration) as error:
        raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    return _Show(parts, outline, facts | {"slides": len(parts)}, hidden)


def _ppt(path: Path, password: str, pictures: Pictures | None, notes: bool) -> _Show:
    content = path.read_bytes()
    if password:
        content = decrypted(io.BytesIO(content), path.name, password).getvalue()
    document = office_model.model(content, "ppt", path.name)
    slides: list[tuple[str, list[Any]]] = []
    for block in document.blocks:
        if block.kind == "heading" and block.level == 2:
            slides.append((office_model.plain(block.content), []))
        elif slides:
            slides[-1][1].append(block)
        else:
            slides.append(("", [block]))
    parts, outline = [], []
    properties = office_model.properties(content)
    count = properties["slides"] or _slide_records(content)
    for number, (title, blocks) in enumerate(slides, 1):
        heading = _heading(number, title) if count == len(slides) else f"## {title}" * bool(title)
        spoken = [block for block in blocks if block.kind == "block_quote"]
        blocks = [block for block in blocks if block.kind != "block_quote"]
        shown = [heading, _markdown(document, blocks, pictures)]
        lines = [office_model.plain(line.content) for block in spoken for line in block.blocks or []]
        text = " / ".join(line for line in lines if line and line not in _SLIDE_NUMBERS)
        if notes and text:
            shown.append(f"Notes: {text}")
        parts.append("\n\n".join(part for part in shown if part))
        outline.append(_line(heading, [block.kind for block in blocks]))
    if count != len(slides):
        parts.append(f"[It has {some(count, 'slide')}: those without a title follow the one before them.]")
    parts.append(_UNMARKED)
    facts = {"title": properties["title"], "author": properties["author"], "slides": count}
    return _Show(parts, outline, facts)


def _slide_records(content: bytes) -> int:
    with olefile.OleFileIO(io.BytesIO(content)) as compound:
        stream = compound.openstream("PowerPoint Document").read()
    place = count = 0
    while place + 8 <= len(stream):
        count += int.from_bytes(stream[place + 2 : place + 4], "little") == _SLIDE_RECORD
        place += 8 + int.from_bytes(stream[place + 4 : place + 8], "little")
    return count


def _markdown(document: Any, blocks: list[Any], pictures: Pictures | None) -> str:
    renderer = office_model.Renderer(document, pictures)
    soup = tree(renderer.html(blocks))
    for found in soup.find_all("table"):
        for cell in found.tr.find_all("td", recursive=False) if found.tr else []:
            cell.name = "th"
    return markdown(soup)


def _heading(number: int, title: str, is_hidden: bool = False) -> str:
    return f"## Slide {number}" + (f": {title}" if title else "") + (" (hidden)" if is_hidden else "")


def _line(heading: str, kinds: list[str]) -> str:
    counted = [some(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
    return f"- {heading[3:]}: {', '.join(counted) or 'nothing else'}"


def _flat(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat(shape.shapes)
        else:
            yield shape


def _kind(shape: Any) -> str:
    if getattr(shape, "has_table", False):
        return "table"
    if getattr(shape, "has_chart", False):
        return "chart"
    if hasattr(shape, "image"):
        return "picture"
    return "text" if shape.has_text_frame else "drawing"


def _shape(shape: Any, pictures: Pictures | None) -> str:
    kind = _kind(shape)
    if kind == "table":
        return _table(shape.table)
    if kind == "chart":
        return charts.table_of(shape.chart)
    if kind == "picture":
        return _picture(shape, pictures)
    if kind == "text":
        return "\n".join(
            f"{'  ' * paragraph.level}{'- ' if paragraph.level else ''}{text}"
            for paragraph in shape.text_frame.paragraphs
            if (text := paragraph.text.replace("\v", "\n").strip())
        )
    return _diagram(shape)


def _table(found: Any) -> str:
    texts: dict[tuple[int, int], str] = {}
    for r, row in enumerate(found.rows):
        for c, cell in enumerate(row.cells):
            texts.setdefault((r, c), cell.text)
            if cell.is_merge_origin:
                reached = ((r + i, c + j) for i in range(cell.span_height) for j in range(cell.span_width))
                texts.update(dict.fromkeys(reached, cell.text))
    return table([[texts[r, c] for c in range(len(found.columns))] for r in range(len(found.rows))])


def _picture(shape: Any, pictures: Pictures | None) -> str:
    name = shape._element._nvXxPr.cNvPr.get("descr") or shape.name
    name = " ".join(name.split())
    try:
        image = shape.image
        path = pictures.keep(image.blob, image.content_type) if pictures else None
    except (ValueError, KeyError, AttributeError):
        return f"[Picture: {name}, which is not in the file]"
    return f"![{name}]({path})" if path else f"[Picture: {name}]"


def _diagram(shape: Any) -> str:
    texts: list[str] = []
    for data in shape._element.iter(f"{{{_DIAGRAM}}}relIds"):
        from lxml import etree

        relation = data.get("{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm")
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        root = etree.fromstring(shape.part.related_part(relation).blob, parser)
        texts += [text.text.strip() for text in root.iter(_TEXT) if text.text and text.text.strip()]
    return "\n".join(f"- {text}" for text in texts)
