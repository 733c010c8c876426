"""Images in messages, and as marks in the prompts of a dataset."""

import base64
import binascii
import hashlib
import io
import re
import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from aworld_train.image_files import IMAGE_MARK

MAX_IMAGE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 20_000_000
MAX_IMAGES = 64  # in one message
MAX_ASPECT_RATIO = 200  # of Qwen-VL's processors
DATA_URI = re.compile(r"data:image/[\w.+-]+;base64,", re.ASCII)
"""The beginning of a ``data:`` URI with an image, before its file in Base64."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


class NoImage(ValueError):
    """The file is not an image, or is too large; the text says which."""


class Image(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """An image before a character of the message's text, its ``position``; ``digest`` is the SHA-256 of its file.

    The store keeps each file once, as a blob: in the messages that it keeps, ``file`` is empty.
    """

    position: int
    digest: str
    file: bytes = b""

    @classmethod
    def read(cls, file: bytes, position: int) -> "Image":
        """The image in a file, of an animation the first picture; raises ``NoImage``."""
        if len(file) > MAX_IMAGE_BYTES:
            raise NoImage(f"it has {len(file):,} bytes, and the most is {MAX_IMAGE_BYTES:,}")
        image = cls(position, hashlib.sha256(file).hexdigest(), file)
        image.picture  # noqa: B018 - an unreadable file is refused here
        return image

    @classmethod
    def read_base64(cls, text: str, position: int) -> "Image":
        try:
            file = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise NoImage("it is not written in Base64") from None
        return cls.read(file, position)

    @classmethod
    def read_uri(cls, uri: str, position: int) -> "Image":
        begin = DATA_URI.match(uri)
        if begin is None:
            raise NoImage("it is not a data: URI in Base64")
        return cls.read_base64(uri[begin.end() :], position)

    @property
    def mark(self) -> str:
        """The text that stands for the image in a dataset's prompt."""
        return f"[image {int(self.digest[:13], 16)}]"

    @cached_property
    def picture(self) -> Any:
        import PIL.Image

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
                opened = PIL.Image.open(io.BytesIO(self.file), formats=_FORMATS)
            width, height = opened.size
            if width * height > MAX_IMAGE_PIXELS:
                raise NoImage(f"it has {width} x {height} pixels, and the most is {MAX_IMAGE_PIXELS:,}")
            if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
                raise NoImage(f"it has {width} x {height} pixels, more than {MAX_ASPECT_RATIO} to 1")
            return opened.convert("RGB")
        except NoImage:
            raise
        except Exception as error:  # decoders raise anything on files from outside
            formats = ", ".join(_FORMATS)
            raise NoImage(f"it cannot be read as {formats}: {type(error).__name__}: {error}"[:300]) from error


def marked_images(text: str, uris: Iterable[str]) -> tuple[str, tuple[Image, ...]]:
    """A text of a dataset without the marks of these images, and the images in the places of the marks."""
    by_mark = {image.mark: image for image in (Image.read_uri(uri, 0) for uri in uris)}
    plain, images = "", list[Image]()
    for piece in IMAGE_MARK.split(text):
        if piece in by_mark:
            images.append(replace(by_mark[piece], position=len(plain)))
        else:
            plain += piece
    return plain, tuple(images)
