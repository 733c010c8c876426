"""Documents of older and open formats (.doc, .rtf, .odt, .ppt, .odp) as HTML, of anydoc's one model of them.

anydoc sends nothing off this machine without ``ocr``, which nothing here asks for.
"""

from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any, get_args

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import tables
from gaia_tools.document_pictures import Pictures

if TYPE_CHECKING:
    from anydoc import Block, Document, Inline, List, Table

_STYLES = {"bold": "strong", "italic": "em", "strike": "s", "code": "code"}
_ROMAN = [(1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")]
_ROMAN += [(10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")]


def model(content: bytes, kind: str, name: str) -> "Document":
    import anydoc

    assert kind in get_args(anydoc.Format)
    try:
        return anydoc.to_document(content, kind)  # type: ignore[arg-type]
    except anydoc.EncryptedError as error:
        raise ToolError(
            f"{name} is protected with a password in a way that is not read here: {error}."
        ) from error
    except anydoc.ResourceLimitError as error:
        raise ToolError(f"{name} is not opened: {error}.") from error
    except anydoc.ConvertError as error:
        raise ToolError(f"{name} is damaged: a part of it is missing or wrong: {error}.") from error


class Renderer:
    """The blocks of a document as HTML; ``images`` is the text for each picture, in order."""

    def __init__(
        self, document: "Document", pictures: Pictures | None = None, *, repeats_letters: bool = False
    ):
        self._repeats_letters = repeats_letters
        self._assets = document.assets
        self._notes = document.notes
        self._numbers = {note.id: number for number, note in enumerate(document.notes, 1)}
        self._pictures = pictures
        self.images: list[str] = []

    def html(self, blocks: Iterable["Block"]) -> str:
        return "\n".join(map(self._block, blocks))

    def notes(self) -> str:
        return "\n".join(
            f"<div><p>[{number}] {self.html(note.blocks).removeprefix('<p>').removesuffix('</p>')}</p></div>"
            for number, note in enumerate(self._notes, 1)
        )

    def _block(self, block: "Block") -> str:
        writers: dict[str, Callable[[], str]] = {
            "heading": lambda: f"<h{block.level}>{self._inlines(block.content)}</h{block.level}>",
            "paragraph": lambda: f"<p>{self._inlines(block.content)}</p>",
            "list": lambda: self._list(block.list),
            "table": lambda: self._table(block.table),
            "block_quote": lambda: f"<blockquote>{self.html(block.blocks or [])}</blockquote>",
            "code_block": lambda: f"<pre>{escape(block.text or '')}</pre>",
            "rule": lambda: "<hr/>",
            "math": lambda: f"<p>${escape(block.text or '')}$</p>",
        }
        return writers[block.kind]()

    def _inlines(self, inlines: "list[Inline] | None") -> str:
        html = "".join(map(self._inline, inlines or []))
        for tag in _STYLES.values():
            html = html.replace(f"</{tag}><{tag}>", "")
        return html

    def _inline(self, inline: "Inline") -> str:
        match inline.kind:
            case "text":
                text = escape(inline.text or "")
                for style, tag in _STYLES.items():
                    if text.strip() and getattr(inline.style, style, False):
                        text = f"<{tag}>{text}</{tag}>"
                return text
            case "link":
                target = escape(inline.target.value if inline.target else "")
                return f'<a href="{target}">{self._inlines(inline.content)}</a>'
            case "image":
                return escape(self._image(inline))
            case "note_ref":
                return f"[{self._numbers.get(inline.note_id or '', '?')}]"
            case "line_break":
                return "<br/>"
            case "math":
                return f"${escape(inline.text or '')}$"
            case "checkbox":
                return "☑" if inline.checked else "☐"
        return ""

    def _image(self, inline: "Inline") -> str:
        name = " ".join((inline.alt or "picture").split())
        number = inline.source.asset_id if inline.source else None
        path = None
        if self._pictures and number is not None and number < len(self._assets):
            asset = self._assets[number]
            path = self._pictures.keep(asset.data, asset.media_type)
        self.images.append(f"![{name}]({path})" if path else f"[Picture: {name}]")
        return self.images[-1]

    def _list(self, found: "List | None") -> str:
        if found is None:
            return ""
        is_plain = found.marker in ("bullet", "decimal") and not any(one.marker_label for one in found.items)
        items = []
        for number, item in enumerate(found.items, found.start):
            # Without a paragraph around what stands beside its number, no empty line follows it.
            inner = self.html(item.blocks).removeprefix("<p>").replace("</p>", "", 1)
            text = written_number(number, found.marker, repeats_letters=self._repeats_letters)
            before = "" if is_plain else f"{escape(item.marker_label or f'{text}.')} "
            items.append(f"<li>{before}{inner}</li>")
        if found.marker == "decimal" and is_plain:
            return f'<ol start="{found.start}">{"".join(items)}</ol>'
        return f"<ul>{''.join(items)}</ul>"

    def _table(self, found: "Table | None") -> str:
        if found is None:
            return ""
        cells = [[slot.cell for slot in row if slot.cell is not None] for row in found.grid]
        if found.kind == "layout":
            return "".join(f"<div>{self.html(cell.blocks)}</div>" for row in cells for cell in row)
        rows = (
            "".join(
                f'<td colspan="{cell.col_span}" rowspan="{cell.row_span}">{self.html(cell.blocks)}</td>'
                for cell in row
            )
            for row in cells
        )
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def plain(inlines: "list[Inline] | None") -> str:
    return " ".join("".join(one.text or plain(one.content) for one in inlines or []).split())


def properties(content: bytes) -> dict[str, Any]:
    import io

    import olefile

    with olefile.OleFileIO(io.BytesIO(content)) as compound:
        found = compound.get_metadata()
        codec = {65001: "utf-8"}.get(found.codepage, f"cp{found.codepage or 1252}")
        return {
            "title": _text(found.title, codec),
            "author": _text(found.author, codec),
            "slides": found.slides,
        }


def _text(value: bytes | None, codec: str) -> str:
    try:
        return (value or b"").decode(codec, "replace").strip("\0 ")
    except LookupError:
        return (value or b"").decode("cp1252", "replace").strip("\0 ")


def written_number(number: int, marker: str, *, repeats_letters: bool = False) -> str:
    """``c`` for 3 and ``lower-alpha``. After z come aa, ab, or in Word, which ``repeats_letters``, aa, bb."""
    if marker.endswith("roman"):
        text = ""
        for value, letters in _ROMAN:
            count, number = divmod(number, value)
            text += letters * count
    elif marker.endswith("alpha") and number > 0:
        rounds, letter = divmod(number - 1, 26)
        text = (
            chr(ord("a") + letter) * (rounds + 1) if repeats_letters else tables.letters(number - 1).lower()
        )
    else:
        text = str(number)
    return text.upper() if marker.startswith("upper") else text
