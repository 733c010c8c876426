"""A processor of the Qwen-VL family on a real tokenizer, and pictures.

transformers asks for torchvision only to process video; the processor's other parts are real.
"""

import base64
import io
from functools import cache
from typing import Any

from aworld_train.episode.images import Image
from tests.published_templates import backend

VISION_TEMPLATES = ("qwen2_5_vl", "qwen3_vl", "qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8")
"""Templates of this family that trl ships."""


@cache
def processor() -> Any:
    """The processor, with the methods of the model that VeRL binds to it."""
    from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLModel, Qwen2VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    class NoVideo:
        model_input_names: tuple[str, ...] = ()

    class ImagesOnly(Qwen2VLProcessor):
        def check_argument_for_proper_class(self, name: str, value: Any) -> None:
            if name != "video_processor":
                super().check_argument_for_proper_class(name, value)

    tokenizer: PreTrainedTokenizerFast = backend()
    made: Any = ImagesOnly(Qwen2VLImageProcessorPil(), tokenizer, NoVideo())
    tokens = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(text) for name, text in _TOKENS.items()}
    made.config = Qwen2VLConfig(**tokens)
    for method in ("get_rope_index", "get_vision_position_ids"):
        if hasattr(Qwen2VLModel, method):
            setattr(made, method, getattr(Qwen2VLModel, method).__get__(made))
    return made


_TOKENS = {
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
}


def png(width: int = 100, height: int = 60, color: str = "red") -> bytes:
    """The file of a picture in one colour."""
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def data_url(file: bytes) -> str:
    """A file as a data URL."""
    return "data:image/png;base64," + base64.b64encode(file).decode()


def image(position: int, width: int = 100, height: int = 60, color: str = "red") -> Image:
    """A picture in one colour, in a message."""
    return Image.read(png(width, height, color), position)
