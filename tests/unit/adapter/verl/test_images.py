"""What a processor writes for an image, and which models and engines take images."""

from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.verl import images
from aworld_train.adapter.verl.images import ProcessorImages, image_tokens
from aworld_train.rollout.images import NoImages

RESERVED = ("<image>", "<video>", "<audio>")


class Qwen2VLImageProcessorFast:
    """By its name of the family that VeRL passes images on for."""


class Processor:
    """Writes the same tokens for every image, and keeps what it is asked."""

    image_token, image_token_id, video_token, audio_token = "<image>", 7, "<video>", "<audio>"
    image_processor: Any = Qwen2VLImageProcessorFast()

    def __init__(self, *tokens: int):
        self.tokens, self.calls = list(tokens), list[dict[str, Any]]()

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(arguments)
        return {"input_ids": [self.tokens]}


class OtherProcessor:
    image_token, video_token, audio_token = "<media>", "<media>", ""
    image_processor = object()


def picture(name: str) -> Any:
    return SimpleNamespace(digest=name, picture=f"the picture {name}")


def test_an_image_s_tokens_are_the_processor_s_with_the_recipe_s_options() -> None:
    processor = Processor(7, 7, 7)
    taken = image_tokens(processor, "vllm", '{"max_pixels": 50176}')
    assert isinstance(taken, ProcessorImages)
    assert taken.tokens(picture("a")) == [7, 7, 7]
    assert processor.calls == [{"text": ["<image>"], "images": ["the picture a"], "max_pixels": 50176}]
    assert taken.options == {"max_pixels": 50176}
    assert (taken.placeholder, taken.reserved) == ("<image>", RESERVED)


@pytest.mark.parametrize(
    ("processor", "engine", "reason", "reserved"),
    [
        (None, "vllm", "the model takes text only", ()),
        (Processor(), None, "the model takes text only where it is served", RESERVED),
        (
            Processor(),
            "transformers",
            "rollout.engine=transformers samples from text only",
            RESERVED,
        ),
        (OtherProcessor(), "vllm", "Qwen-VL family, not for object", ("<media>",)),
    ],
)
def test_a_model_or_engine_without_images_says_why_and_what_text_may_not_spell(
    processor: Any, engine: str | None, reason: str, reserved: tuple[str, ...]
) -> None:
    refused = image_tokens(processor, engine)
    assert isinstance(refused, NoImages)
    assert reason in refused.reason
    assert refused.reserved == reserved


def test_an_image_is_counted_once_and_few_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_MAX_COUNTS", 2)
    processor = Processor(7, 7)
    taken = ProcessorImages(processor, {})
    assert [taken.tokens(picture(name)) for name in "ababc"] == [[7, 7]] * 5
    assert len(processor.calls) == 3
    assert list(taken._counts) == ["c"]


@pytest.mark.parametrize("tokens", [(7, 8), ()])
def test_a_processor_that_writes_more_or_nothing_for_an_image_is_refused(tokens: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Processor writes other tokens for it than the image's"):
        ProcessorImages(Processor(*tokens), {}).tokens(picture("a"))
