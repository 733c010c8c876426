"""documents-pptx-server: PowerPoint files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.document_pictures import Pictures
from gaia_tools.documents import FilePath, Format, Password, Start, document, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.tables import table
from gaia_tools.zips import office

server = FastMCP("documents-pptx-server", log_level="WARNING")
_FORMATS = {".pptx .pptm .ppsx .potx": "PowerPoint"}
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
    """Read a PowerPoint file as Markdown, slide by slide: titles, text, tables, charts' data, pictures, notes."""
    path = readable(file_path, _MAX_BYTES)
    ready("pptx")
    content, facts = await isolated(_read, path, password, extract_images, extract_notes, include_structure)
    about = some(facts["slides"], "slide")
    if facts["hidden_slides"]:
        about += f", of which {len(facts['hidden_slides'])} hidden"
    return document(path, content, facts, output_format, start, about=about)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as PowerPoint files."""
    return formats(_FORMATS)


def _read(
    path: Path, password: str, images: bool, notes: bool, structure: bool
) -> tuple[str, dict[str, Any]]:
    from pptx.exc import PythonPptxError
    from pptx.package import Package

    content = office(path, "pptx", password)
    try:
        # pptx.Presentation takes no slide shows (.ppsx) and no templates (.potx), which are the same inside.
        deck = Package.open(content).main_document_part.presentation
        slides = list(deck.slides)
    except (KeyError, ValueError, AttributeError, PythonPptxError) as error:
        raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    pictures = Pictures(path) if images else None
    parts, outline, hidden = [], [], []
    for number, slide in enumerate(slides, 1):
        title = slide.shapes.title
        name = " ".join(title.text_frame.text.split()) if title is not None else ""
        is_hidden = slide._element.get("show") == "0"
        heading = f"## Slide {number}" + (f": {name}" if name else "") + (" (hidden)" if is_hidden else "")
        shapes = [shape for shape in _flat(slide.shapes) if title is None or shape.shape_id != title.shape_id]
        shown = [heading, *(_shape(shape, pictures) for shape in shapes)]
        if notes and slide.has_notes_slide and (said := slide.notes_slide.notes_text_frame):
            shown.append(f"Notes: {said.text.strip()}" if said.text.strip() else "")
        parts.append("\n\n".join(part for part in shown if part))
        kinds = [_kind(shape) for shape in shapes]
        counted = [some(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
        outline.append(f"- {heading[3:]}: {', '.join(counted) or 'nothing else'}")
        if is_hidden:
            hidden.append(number)
    facts: dict[str, Any] = {
        "title": deck.core_properties.title,
        "author": deck.core_properties.author,
        "slides": len(slides),
        "hidden_slides": hidden,
    }
    if structure:
        facts["structure"] = outline
        parts.insert(0, "\n".join(["Structure:", *outline]))
    if pictures:
        facts["image_files"] = pictures.paths
    return "\n\n".join(parts), facts


def _flat(shapes: Any) -> Iterator[Any]:
    """All shapes in their order, those in groups too."""
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
        return _chart(shape.chart)
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


def _chart(chart: Any) -> str:
    title = chart.chart_title.text_frame.text if chart.has_title and chart.chart_title.has_text_frame else ""
    parts = [f"Chart ({chart.chart_type.name.lower().replace('_', ' ')}){': ' + title if title else ''}"]
    for plot in chart.plots:
        series = list(plot.series)
        categories = [" / ".join(labels) for labels in plot.categories.flattened_labels]
        length = max((len(tuple(one.values)) for one in series), default=0)
        labels = categories + [str(n + 1) for n in range(len(categories), length)]
        values = [tuple(one.values) for one in series]
        rows = [["", *(one.name for one in series)]]
        rows += [[label, *(v[i] if i < len(v) else None for v in values)] for i, label in enumerate(labels)]
        parts.append(table(rows))
    return "\n\n".join(parts)


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
    """The text of a SmartArt graphic, which is in a part of its own."""
    texts: list[str] = []
    for data in shape._element.iter(f"{{{_DIAGRAM}}}relIds"):
        from lxml import etree

        relation = data.get("{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm")
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        root = etree.fromstring(shape.part.related_part(relation).blob, parser)
        texts += [text.text.strip() for text in root.iter(_TEXT) if text.text and text.text.strip()]
    return "\n".join(f"- {text}" for text in texts)
