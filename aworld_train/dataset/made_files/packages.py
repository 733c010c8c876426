"""Documents that are ZIP files (Office Open XML, OpenDocument, EPUB), with no more parts than readers need.

The texts of tables have no character that XML reserves.
"""

import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from aworld_train.dataset.made_files.tables import Table, Value

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_KIND = "application/vnd.openxmlformats-officedocument"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
_OPEN = "urn:oasis:names:tc:opendocument:xmlns"
_ODS = "application/vnd.oasis.opendocument.spreadsheet"
_PAGE_ROWS = 6
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP file, whose bytes depend on the parts alone: without times, and not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return buffer.getvalue()


def docx(table: Table) -> bytes:
    def paragraph(text: Value) -> str:
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    grid = _rows(table, "<w:tr>{}</w:tr>", lambda value: f"<w:tc>{paragraph(value)}</w:tc>")
    body = f"{paragraph(table.title)}<w:tbl>{grid}</w:tbl>{paragraph('End of the list.')}"
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return _office(
        "word/document.xml", "wordprocessingml.document.main", {"word/document.xml": _XML + document}
    )


def xlsx(table: Table) -> bytes:
    def cell(value: Value) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    sheet = f'<worksheet xmlns="{_SHEET}"><sheetData>{_rows(table, "<row>{}</row>", cell)}</sheetData></worksheet>'
    sheets = f'<sheets><sheet name="{table.title}" sheetId="1" r:id="r1"/></sheets>'
    parts = {
        "xl/workbook.xml": f'{_XML}<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}">{sheets}</workbook>',
        "xl/_rels/workbook.xml.rels": _relations({"r1": ("worksheet", "worksheets/sheet1.xml")}),
        "xl/worksheets/sheet1.xml": _XML + sheet,
    }
    return _office("xl/workbook.xml", "spreadsheetml.sheet.main", parts, "spreadsheetml.worksheet")


def pptx(table: Table) -> bytes:
    parts = {"ppt/presentation.xml": ""}
    for start in range(0, len(table.rows), _PAGE_ROWS):
        shown = replace(table, rows=table.rows[start : start + _PAGE_ROWS])
        parts[f"ppt/slides/slide{len(parts)}.xml"] = _XML + _slide(shown)
    slides = {f"r{number}": ("slide", f"slides/slide{number}.xml") for number in range(1, len(parts))}
    ids = "".join(f'<p:sldId id="{255 + int(name[1:])}" r:id="{name}"/>' for name in slides)
    parts["ppt/presentation.xml"] = (
        f'{_XML}<p:presentation xmlns:p="{_SLIDE}" xmlns:r="{_OFFICE}"><p:sldIdLst>{ids}</p:sldIdLst>'
        '<p:sldSz cx="9144000" cy="6858000"/><p:notesSz cx="6858000" cy="9144000"/></p:presentation>'
    )
    parts["ppt/_rels/presentation.xml.rels"] = _relations(slides)
    return _office("ppt/presentation.xml", "presentationml.presentation.main", parts, "presentationml.slide")


def _slide(table: Table) -> str:
    def text(value: Value, name: str) -> str:
        return f"<{name}><a:bodyPr/><a:p><a:r><a:t>{value}</a:t></a:r></a:p></{name}>"

    def named(number: int, kind: str, properties: str = "") -> str:
        return (
            f'<p:nv{kind}Pr><p:cNvPr id="{number}" name="shape {number}"/>'
            f"<p:cNv{kind}Pr/><p:nvPr>{properties}</p:nvPr></p:nv{kind}Pr>"
        )

    rows = _rows(
        table, '<a:tr h="370840">{}</a:tr>', lambda v: f"<a:tc>{text(v, 'a:txBody')}<a:tcPr/></a:tc>"
    )
    grid = "".join('<a:gridCol w="2032000"/>' for _ in table.header)
    place = '<p:xfrm><a:off x="457200" y="1600200"/><a:ext cx="8128000" cy="4525963"/></p:xfrm>'
    return (
        f'<p:sld xmlns:p="{_SLIDE}" xmlns:a="{_DRAWING}"><p:cSld><p:spTree>{named(1, "GrpSp")}<p:grpSpPr/>'
        f'<p:sp>{named(2, "Sp", """<p:ph type="title"/>""")}<p:spPr/>{text(table.title, "p:txBody")}</p:sp>'
        f"<p:graphicFrame>{named(3, 'GraphicFrame')}{place}"
        f'<a:graphic><a:graphicData uri="{_DRAWING.removesuffix("main")}table"><a:tbl><a:tblGrid>{grid}</a:tblGrid>'
        f"{rows}</a:tbl></a:graphicData></a:graphic></p:graphicFrame></p:spTree></p:cSld></p:sld>"
    )


def ods(table: Table) -> bytes:
    def cell(value: Value) -> str:
        kind = 'string"' if isinstance(value, str) else f'float" office:value="{value}"'
        return f'<table:table-cell office:value-type="{kind}><text:p>{value}</text:p></table:table-cell>'

    rows = _rows(table, "<table:table-row>{}</table:table-row>", cell)
    spaces = "".join(f' xmlns:{name}="{_OPEN}:{name}:1.0"' for name in ("office", "table", "text"))
    return packed(
        {
            "mimetype": _ODS,
            "content.xml": f'{_XML}<office:document-content{spaces} office:version="1.3"><office:body>'
            f'<office:spreadsheet><table:table table:name="{table.title}">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
            "META-INF/manifest.xml": f'{_XML}<manifest:manifest xmlns:manifest="{_OPEN}:manifest:1.0">'
            f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{_ODS}"/>'
            '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
            "</manifest:manifest>",
        }
    )


def epub(table: Table) -> bytes:
    sentences = table.sentences
    starts = range(0, len(sentences), _PAGE_ROWS)
    items = "".join(
        f'<item id="c{start}" href="c{start}.xhtml" media-type="application/xhtml+xml"/>' for start in starts
    )
    spine = "".join(f'<itemref idref="c{start}"/>' for start in starts)
    chapters = {
        f"c{start}.xhtml": f'{_XML}<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Part</title></head><body>'
        f"<h1>{table.title}, from {start + 1} on</h1>"
        f"{''.join(f'<p>{text}</p>' for text in sentences[start : start + _PAGE_ROWS])}</body></html>"
        for start in starts
    }
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'{_XML}<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" '
            'version="1.0"><rootfiles><rootfile full-path="book.opf" '
            'media-type="application/oebps-package+xml"/></rootfiles></container>',
            "book.opf": f'{_XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">list</dc:identifier>'
            f"<dc:title>{table.title}</dc:title><dc:language>en</dc:language></metadata>"
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **chapters,
        }
    )


def _rows(table: Table, row: str, cell: Callable[[Value], str]) -> str:
    rows: Iterable[Iterable[Value]] = (table.header, *table.rows)
    return "".join(row.format("".join(map(cell, values))) for values in rows)


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    relations = "".join(
        f'<Relationship Id="{name}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for name, (kind, target) in targets.items()
    )
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>'


def _office(main: str, kind: str, parts: Mapping[str, str], part_kind: str = "") -> bytes:
    """A package whose main part is ``main``; the parts in folders below it are of ``part_kind``."""
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{_KIND}.{kind if name == main else part_kind}+xml"/>'
        for name in parts
        if not name.endswith(".rels")
    )
    return packed(
        {
            "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Default Extension="xml" ContentType="application/xml"/>{types}</Types>',
            "_rels/.rels": _relations({"r1": ("officeDocument", main)}),
            **parts,
        }
    )
