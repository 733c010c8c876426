"""Files of images: their media types, and their form in JSON and in texts of datasets."""

import base64
import re

_IMAGE_TYPES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
IMAGE_MARK = re.compile(r"(\[image \d+\])")
"""Where an image is in a task's text."""


def shown_image_type(data: bytes) -> str | None:
    """The media type of an image that browsers show without running anything; None for all else, SVG included."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for begin, name in _IMAGE_TYPES if data.startswith(begin)), None)


def image_type(data: bytes) -> str:
    return shown_image_type(data) or "image/webp"


def data_uri(data: bytes) -> str:
    """An image's file as a ``data:`` URI (RFC 2397)."""
    return f"data:{image_type(data)};base64,{base64.b64encode(data).decode()}"
