"""Images in messages, and as marks in the prompts of a dataset.

A model sees an image as a run of equal tokens, as many as it has patches, for which the engine and the trainer put the
features of the next image. So there must be exactly as many of them: text that spells the token is ordinary tokens.
"""

import base64
import binascii
import hashlib
import io
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from aworld_train.image_files import IMAGE_MARK

TEXT_ONLY = "the model takes text only"
MAX_IMAGE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 20_000_000
MAX_IMAGES = 64  # in one message
MAX_ASPECT_RATIO = 200  # of Qwen-VL's processors
DATA_URI = re.compile(r"data:image/[\w.+-]+;base64,", re.ASCII)
"""The beginning of a ``data:`` URI with an image, before its file in Base64."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


class NoImage(ValueError):
    """The file is not an image, or is too large; the text says which."""


@dataclass(frozen=True)
class Image:
    """An image before a character of the message's text, its ``position``; ``digest`` is the SHA-256 of its file."""

    position: int
    digest: str
    file: bytes = field(repr=False, compare=False)

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


class ImageTokens(Hashable, Protocol):
    """The tokens of images in a model's prompts.

    ``placeholder`` is one token, which the chat template writes for an image; ``reserved`` are the texts of all tokens
    that stand for images and video. The engine needs the processor's ``options`` too.
    """

    placeholder: str
    reserved: Sequence[str]
    options: Mapping[str, Any]

    def tokens(self, image: Image) -> list[int]:
        """The tokens of an image in place of its placeholder; ``ValueError`` if the processor refuses it."""


@dataclass(frozen=True)
class NoImages:
    """A model that takes no images, and why; ``reserved`` as in ``ImageTokens``."""

    reason: str = TEXT_ONLY
    reserved: Sequence[str] = ()


NO_IMAGES = NoImages()
