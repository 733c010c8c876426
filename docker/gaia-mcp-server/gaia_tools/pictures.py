"""Pictures from anywhere, opened with Pillow by readers of ordinary formats; every function here is for `isolated`.

A picture's size is checked before its pixels are read. HEIC is first written as PNG by heif-convert, SVG by resvg.
"""

import base64
import io
import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import svg

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 120_000_000
MEGABYTES = 3072
_logger = logging.getLogger(__name__)
_MAX_TEXT = 2000
_MAX_TAGS = 120
# Readers of Pillow that need no other program (as EPS does) and are in use.
FORMATS = (
    "PNG",
    "JPEG",
    "GIF",
    "WEBP",
    "AVIF",
    "BMP",
    "DIB",
    "TIFF",
    "ICO",
    "ICNS",
    "PPM",
    "TGA",
    "JPEG2000",
    "PCX",
    "PSD",
    "QOI",
    "DDS",
)
_HEIC = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_HEIC_SECONDS = 60
_JPEG_QUALITY = 88


def opened(path: Path) -> "Image":
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # checked here, with a clear message
    with path.open("rb") as file:
        head = file.read(2048)
    if svg.is_svg(head):
        drawing = Image.open(io.BytesIO(svg.as_png(path)), formats=["PNG"])
        drawing.format = "SVG"
        return drawing
    source: Any = path
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC:
        source = _from_heic(path)
    try:
        Image.init()
        image = Image.open(source, formats=[name for name in FORMATS if name in Image.OPEN])
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        raise ToolError(f"{path.name} cannot be read as a picture: {_kind(head)}") from error
    if source is not path:
        image.format = "HEIF"
    _check_size(image, path)
    return image


def pixels(image: "Image", path: Path) -> "Image":
    """The picture with its pixels, upright as its EXIF says, as grey, colour, or colour with transparency."""
    from PIL import ImageOps

    try:
        image.load()
        # HEIF has a place of its own for how it is turned, which heif-convert has followed (ISO/IEC 23008-12, irot).
        upright = image if image.format == "HEIF" else ImageOps.exif_transpose(image)
        if upright.mode in ("L", "RGB", "RGBA"):
            return upright
        if upright.mode in ("I;16", "I;16B", "I;16L", "I", "F"):
            return _grey(upright)
        has_transparency = "A" in upright.getbands() or "transparency" in upright.info
        return upright.convert("RGBA" if has_transparency else "L" if upright.mode == "1" else "RGB")
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        raise ToolError(f"{path.name} is damaged or cut off: {error}.") from error


def on_white(image: "Image") -> "Image":
    from PIL import Image

    if image.mode != "RGBA":
        return image
    ground = Image.new("RGB", image.size, "white")
    ground.paste(image, mask=image.getchannel("A"))
    return ground


def as_data_url(path: Path, longest: int) -> tuple[str, tuple[int, int]]:
    image = opened(path)
    size = image.size
    image.draft("RGB", (longest, longest))
    shown = on_white(pixels(image, path))
    shown.thumbnail((longest, longest))
    written = io.BytesIO()
    # PNG where that is small, which it is for drawings and screens: JPEG blurs their text.
    shown.save(written, "PNG")
    kind = "png"
    if written.tell() > 1 << 20:
        written = io.BytesIO()
        shown.convert("RGB").save(written, "JPEG", quality=_JPEG_QUALITY)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}", size


def described(path: Path) -> dict[str, Any]:
    from PIL import Image

    with path.open("rb") as file:
        if svg.is_svg(file.read(2048)):
            return svg.described(path)
    image = opened(path)
    frames = getattr(image, "n_frames", 1)
    exif, place = _exif(image)
    texts = {str(name): value for name, value in image.info.items() if isinstance(value, str)}
    comment = image.info.get("comment")
    if isinstance(comment, bytes):
        texts["comment"] = comment.decode(errors="replace")
    return {
        "format": image.format,
        "mime": "image/heif" if image.format == "HEIF" else Image.MIME.get(image.format or ""),
        "width": image.width,
        "height": image.height,
        "mode": image.mode,
        "dpi": [round(float(one), 2) for one in image.info["dpi"]] if "dpi" in image.info else None,
        "frames": frames,
        "animated": frames > 1 and image.format in ("GIF", "PNG", "WEBP", "AVIF"),
        "duration_ms": image.info.get("duration"),
        "has_transparency": image.has_transparency_data,
        "colour_profile": "icc_profile" in image.info,
        "exif": exif,
        "gps": place,
        "texts": {name: value[:_MAX_TEXT] for name, value in list(texts.items())[:_MAX_TAGS]},
    }


def _check_size(image: "Image", path: Path) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ToolError(
            f"{path.name} has {image.width} x {image.height} pixels; "
            f"more than {MAX_PIXELS // 1_000_000} million are not read."
        )


def _kind(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"%pdf"):
        return "it is a PDF document: use convert_document_to_markdown."
    if start.startswith((b"%!ps", b"\xc5\xd0\xd3\xc6")):
        return "it is PostScript, which is not read."
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is a web page."
    if head[4:8] == b"ftyp":
        return "it is a video: use extract_keyframes or analyze_video."
    return "it is damaged, or of a kind that is not read."


def _from_heic(path: Path) -> io.BytesIO:
    with tempfile.TemporaryDirectory(prefix="heic-") as folder:
        target = Path(folder, "picture.png")
        try:
            ended = subprocess.run(
                ["heif-convert", str(path), str(target)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_HEIC_SECONDS,
                env={
                    "PATH": os.environ.get("PATH", os.defpath)
                },  # not the keys, which others could read there
                check=False,
            )
        except FileNotFoundError as error:
            _logger.error("The program heif-convert is not installed.")
            raise ToolError(
                f"{path.name} is HEIC, which cannot be read in this environment; other kinds of pictures can."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"{path.name} took longer than {_HEIC_SECONDS} seconds to be read.") from error
        written = sorted(Path(folder).glob("picture*.png"))  # one for each picture, if it has more than one
        if not written:
            errors = ended.stderr.decode(errors="replace").strip()[-300:]
            raise ToolError(f"{path.name} is HEIC and cannot be read: {errors or 'it is damaged'}.")
        return io.BytesIO(written[0].read_bytes())


def _grey(image: "Image") -> "Image":
    low, high = image.getextrema()
    scale = 255 / (high - low) if high > low else 0.0  # type: ignore[operator]
    return image.convert("F").point(lambda value: value * scale - low * scale).convert("L")  # type: ignore[operator]


def _exif(image: "Image") -> tuple[dict[str, str], dict[str, Any] | None]:
    from PIL.ExifTags import GPSTAGS, IFD, TAGS

    try:
        found = image.getexif()
        parts = {**found, **found.get_ifd(IFD.Exif)}
        place = {GPSTAGS.get(tag, str(tag)): value for tag, value in found.get_ifd(IFD.GPSInfo).items()}
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, EOFError):
        return {"note": "its EXIF is damaged"}, None
    named = {TAGS.get(tag, str(tag)): _plain(value) for tag, value in list(parts.items())[:_MAX_TAGS]}
    return {
        name: value for name, value in named.items() if name not in ("ExifOffset", "GPSInfo", "MakerNote")
    }, _place(place)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.removeprefix(b"ASCII\0\0\0").decode(errors="replace").strip("\0 ")
        return text[:_MAX_TEXT] if text.isprintable() else f"{len(value)} bytes"
    return str(value).strip("\0 ")[:_MAX_TEXT]


def _place(tags: dict[str, Any]) -> dict[str, Any] | None:
    """Degrees, north and east positive (EXIF 2.32, 4.6.6: degrees, minutes, seconds, and a letter)."""
    if not tags:
        return None
    place: dict[str, Any] = {name: _plain(value) for name, value in tags.items()}
    for name, negative in (("Latitude", "S"), ("Longitude", "W")):
        try:
            degrees, minutes, seconds = (float(part) for part in tags[f"GPS{name}"])
            value = degrees + minutes / 60 + seconds / 3600
            sign = -1 if str(tags.get(f"GPS{name}Ref", "")).upper().startswith(negative) else 1
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            continue
        place[name.lower()] = round(sign * value, 7)
    return place
