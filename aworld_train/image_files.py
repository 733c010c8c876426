"""Files of images: their media types, and their form in JSON and in texts of datasets."""

import base64
import re

_IMAGE_TYPES = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
IMAGE_MARK = re.compile(r"(\[image \d+\])")
"""Where an image is in a task's text."""


def image_type(data: bytes) -> str:
    return next((name for begin, name in _IMAGE_TYPES if data.startswith(begin)), "image/webp")


def data_uri(data: bytes) -> str:
    """An image's file as a ``data:`` URI (RFC 2397)."""
    return f"data:{image_type(data)};base64,{base64.b64encode(data).decode()}"
