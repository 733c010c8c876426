"""Only images make tokens of images, wherever a text has their letters, and a turn has one end."""

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


def continued(template: ChatTemplate, turn: Message, new: Message, ended: bool = True) -> list[int]:
    sampled = list(template.ends) if ended else template.plain("Hi")
    return template.continuation([HELLO, turn], [new], [], sampled, ended, tools_key="")


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


@pytest.mark.parametrize("last_end", ["<|eot_id|>", "[/INST]"])  # the first begins as the other end does
@pytest.mark.parametrize("earlier_end", ["<|im_end|>", ""])
def test_a_turn_has_one_end_where_the_template_ends_only_the_last_turn_with_the_models(
    last_end: str, earlier_end: str
) -> None:
    tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    written = "message.content + '<|im_end|>\\n'"
    assert written in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(
        written,
        "message.content + ('<|im_end|>\\n' if message.role != 'assistant' else "
        f"'{last_end}' if loop.last else '{earlier_end}\\n')",
    )
    template = ChatTemplate(tokenizer, tokenizer.convert_tokens_to_ids([last_end]))
    turn, new = Message("assistant", "Hi."), Message("user", "And?")
    added = "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    assert template.text(continued(template, turn, new)) == added
    assert template.text(continued(template, turn, new, ended=False)) == earlier_end + added
