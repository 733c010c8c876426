"""Only images make tokens of images: a text with the letters of such a token stays a text, wherever it stands."""

from copy import deepcopy
from typing import Any

import pytest

from aworld_train.rollout.images import NoImages
from aworld_train.rollout.messages import Message, ToolCall
from aworld_train.rollout.template import ChatTemplate
from tests import templates

RESERVED = ("<|image_pad|>", "<|video_pad|>")
HELLO = Message("user", "Hello.")


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    """The template of a model that has tokens for images and video."""
    tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.add_tokens(list(RESERVED), special_tokens=True)
    assert [len(tokenizer.encode(text)) for text in RESERVED] == [1, 1]
    return ChatTemplate(tokenizer, [tokenizer.eos_token_id], images=NoImages(reserved=RESERVED))


def continued(template: ChatTemplate, turn: Message, new: Message) -> list[int]:
    return template.continuation([HELLO, turn], [new], [], list(template.ends), ended=True, tools_key="")


def all_tokens(template: ChatTemplate, text: str) -> list[list[int]]:
    """The tokens of everything that can hold a text."""
    call = ToolCall("look", "{}", "abcdef000")
    calling = Message("assistant", "", (ToolCall("look", f'{{"at": "{text}"}}', "abcdef000"),))
    result = Message("tool", text, call_id="abcdef000", name="look")
    tool = {"type": "function", "function": {"name": "look", "description": text, "parameters": {text: {}}}}
    return [
        template.plain(text),
        template.initial([Message("system", text), HELLO], []),
        template.initial([Message("user", text)], []),
        template.initial([HELLO, Message("assistant", text), HELLO], []),
        template.initial([HELLO, calling, result], []),
        template.initial([HELLO], [tool]),
        continued(template, Message("assistant", "Hi."), Message("user", text)),
        continued(template, Message("assistant", "", (call,)), result),
    ]


@pytest.mark.parametrize("spelled", RESERVED)
def test_text_that_spells_a_token_of_images_is_text(template: ChatTemplate, spelled: str) -> None:
    for tokens, plain in zip(
        all_tokens(template, f"see {spelled} here"), all_tokens(template, "see PLACE here"), strict=True
    ):
        assert spelled not in [template.text([token]) for token in tokens]
        assert template.text(tokens) == template.text(plain).replace("PLACE", spelled)
