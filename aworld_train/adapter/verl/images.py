"""The tokens of images in a model's prompts, by the processor that VeRL's trainer and vLLM use.

VeRL's vLLM server puts one token in place of an image's run of them, before vLLM expands it again, for processors of
Qwen-VL alone (``qwen2_5_vl_dedup_image_tokens``); those of others would be expanded twice.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from aworld_train.episode.images import Image
from aworld_train.rollout.images import TEXT_ONLY, ImageTokens, NoImages

_FAMILY = "Qwen2VLImageProcessor"
_MAX_COUNTS = 4096


class ProcessorImages:
    """Implements ``ImageTokens`` with a Hugging Face processor of the Qwen-VL family."""

    def __init__(self, processor: Any, options: Mapping[str, Any]):
        self._processor = processor
        self.options = options
        self.placeholder = str(processor.image_token)
        self.reserved = _reserved(processor)
        self._counts: dict[str, int] = {}

    def tokens(self, image: Image) -> list[int]:
        count = self._counts.get(image.digest)
        if count is None:
            if len(self._counts) >= _MAX_COUNTS:
                self._counts.clear()
            count = self._counts[image.digest] = self._count(image)
        return [int(self._processor.image_token_id)] * count

    def _count(self, image: Image) -> int:
        inputs = self._processor(text=[self.placeholder], images=[image.picture], **self.options)
        (tokens,) = inputs["input_ids"]
        count: int = sum(token == self._processor.image_token_id for token in tokens)
        if count != len(tokens) or not count:
            raise ValueError(f"{type(self._processor).__name__} writes other tokens for it than the image's")
        return count


@lru_cache(maxsize=4)
def image_tokens(processor: Any, engine: str | None, options: str = "{}") -> ImageTokens | NoImages:
    """The tokens of images for a model with this processor, or why it takes no images.

    ``engine`` is None for a served model; ``options`` are further arguments of the processor, as JSON.
    """
    if processor is None:
        return NoImages()
    reserved = _reserved(processor)
    if engine is None:
        return NoImages(f"{TEXT_ONLY} where it is served: token ids hold no image", reserved)
    if engine != "vllm":
        return NoImages(
            f"rollout.engine={engine} samples from text only; rollout.engine=vllm takes images", reserved
        )
    kind = type(getattr(processor, "image_processor", None)).__name__
    if _FAMILY not in kind:
        return NoImages(
            f"VeRL passes images to vLLM for processors of the Qwen-VL family, not for {kind}", reserved
        )
    return ProcessorImages(processor, json.loads(options))


def _reserved(processor: Any) -> Sequence[str]:
    texts = (getattr(processor, name, None) for name in ("image_token", "video_token", "audio_token"))
    return tuple(dict.fromkeys(str(text) for text in texts if text))
