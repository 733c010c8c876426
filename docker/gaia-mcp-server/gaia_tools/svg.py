"""Drawings in SVG, made into pictures by resvg; the functions here are for `isolated`.

resvg would open files of this machine that a drawing names, so all addresses but those within it are taken out first.
"""

import gzip
import importlib.util
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.fastmcp.exceptions import ToolError

if TYPE_CHECKING:
    from lxml.etree import _Element

_MAX_BYTES = 20 << 20
_MAX_ELEMENTS = 200_000
_GZIP = b"\x1f\x8b"
_LONGEST = 2000  # pixels of the longer side of what is made, whatever size a drawing gives itself
_SVG = "{http://www.w3.org/2000/svg}"
_REMOVED = {f"{_SVG}script", f"{_SVG}foreignObject"}
_INSIDE = re.compile(r"\s*(#|data:image/(png|jpe?g|gif|webp);)", re.IGNORECASE)
_CSS_IMPORT = re.compile(r"@import[^;]*;?", re.IGNORECASE)
_CSS_ADDRESS = re.compile(r"url\(\s*['\"]?(?!\s*['\"]?#)[^)]*\)", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([0-9.]+)\s*(px)?\s*$")


def is_svg(head: bytes) -> bool:
    if head.startswith(_GZIP):
        try:
            head = gzip.GzipFile(fileobj=io.BytesIO(head)).read1(2048)
        except (OSError, EOFError):
            return False
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<?xml", b"<svg", b"<!--", b"<!doctype svg")) and b"<svg" in start


def as_png(path: Path) -> bytes:
    """A drawing as a picture whose longer side has 2000 pixels."""
    import resvg_py
    from lxml import etree

    root = _parsed(path)
    size = _size(root)
    longer = {"width": _LONGEST} if size[0] >= size[1] else {"height": _LONGEST}
    try:
        return bytes(
            resvg_py.svg_to_bytes(
                svg_string=etree.tostring(root, encoding="unicode"),
                background="white",
                font_dirs=_font_folders(),
                font_family="DejaVu Sans",
                sans_serif_family="DejaVu Sans",
                serif_family="DejaVu Serif",
                monospace_family="DejaVu Sans Mono",
                **longer,
            )
        )
    except ValueError as error:
        raise ToolError(f"{path.name} is SVG and cannot be drawn: {str(error)[:300]}.") from error


def described(path: Path) -> dict[str, Any]:
    root = _parsed(path)
    width, height = _size(root)
    texts = {
        name: " ".join("".join(map(str, found.itertext())).split())[:2000]
        for name in ("title", "desc")
        if (found := root.find(f"{_SVG}{name}")) is not None
    }
    words = [" ".join("".join(map(str, one.itertext())).split()) for one in root.iter(f"{_SVG}text")]
    if any(words):
        texts["text"] = "; ".join(filter(None, words))[:4000]
    return {
        "format": "SVG",
        "mime": "image/svg+xml",
        "width": round(width),
        "height": round(height),
        "view_box": root.get("viewBox"),
        "elements": sum(1 for _ in root.iter()),
        "texts": texts,
    }


def _parsed(path: Path) -> "_Element":
    from lxml import etree

    content = path.read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MAX_BYTES + 1)
        except (OSError, EOFError) as error:
            raise ToolError(f"{path.name} is damaged or cut off: {error}.") from error
    if len(content) > _MAX_BYTES:
        raise ToolError(f"{path.name} has more than {_MAX_BYTES >> 20} MB; such drawings are not read.")
    parser = etree.XMLParser(resolve_entities="internal", load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise ToolError(f"{path.name} is SVG, and damaged: {str(error)[:300]}.") from error
    if root.tag != f"{_SVG}svg":
        raise ToolError(f"{path.name} is XML, but no drawing in SVG: read it as a text file.")
    for number, element in enumerate(list(root.iter())):
        if number > _MAX_ELEMENTS:
            raise ToolError(
                f"{path.name} has more than {_MAX_ELEMENTS} elements; such drawings are not read."
            )
        _clean(element)
    return root


def _clean(element: "_Element") -> None:
    if not isinstance(element.tag, str) or element.tag in _REMOVED:
        if (parent := element.getparent()) is not None:
            parent.remove(element)
        return
    for name, value in element.attrib.items():
        if str(name).endswith("href") and not _INSIDE.match(str(value)):
            del element.attrib[name]
        elif "url(" in str(value).lower():
            element.set(name, _CSS_ADDRESS.sub("none", str(value)))
    if element.tag == f"{_SVG}style" and element.text:
        element.text = _CSS_ADDRESS.sub("none", _CSS_IMPORT.sub("", element.text))


def _font_folders() -> list[str]:
    """Those with fonts that are there whatever the machine has: text in a family that is missing is drawn with them."""
    spec = importlib.util.find_spec("matplotlib")
    return [str(Path(spec.origin).with_name("mpl-data") / "fonts" / "ttf")] if spec and spec.origin else []


def _size(root: "_Element") -> tuple[float, float]:
    numbers = [_NUMBER.match(root.get(name) or "") for name in ("width", "height")]
    if numbers[0] and numbers[1]:
        return float(numbers[0][1]), float(numbers[1][1])
    box = re.split(r"[\s,]+", (root.get("viewBox") or "").strip())
    try:
        return float(box[2]), float(box[3])
    except (IndexError, ValueError):
        return 300.0, 150.0
