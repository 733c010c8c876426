"""What a model makes of the images in its prompts.

A model sees an image as a run of equal tokens, as many as it has patches, for which the engine and the trainer put the
features of the next image. So there must be exactly as many of them: text that spells the token is ordinary tokens.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aworld_train.episode.images import Image

TEXT_ONLY = "the model takes text only"


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
