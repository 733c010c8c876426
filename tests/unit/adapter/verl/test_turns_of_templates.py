"""Round trips through chat templates: a message, rendered, tokenised and parsed, is the same message again.

The templates are those in trl's source package, which collects the ones that models are published with.
"""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aworld_train.adapter.verl.language_model import VerlModel
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.choose import choose_for
from tests.source_packages import source_folder

SOURCE = ("trl", "1.16.0", "999bd4a85b08870b7bfa387e1efa5177d2a4b88fe82b2526a057ac5d3cc600cd")
QUESTION = "Which one?"
_MARKS = re.compile(r"<[|｜/]?[\w:/▁｜|]+[|｜]?>|\[/?[A-Z_]+\]")


def tool(name: str, **types: Any) -> dict[str, Any]:
    properties = {key: {"type": kind, "description": key} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": []}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


TOOLS = [
    tool("now"),
    tool(
        "write", text="string", count="integer", share="number", deep="boolean", items="array", more="object"
    ),
]


def message(
    content: str = "", reasoning: str = "", *arguments: dict[str, Any], name: str = "write"
) -> Message:
    calls = [ToolCall(name, json.dumps(values), f"{index}b2c3d4e5") for index, values in enumerate(arguments)]
    return Message("assistant", content, tuple(calls), reasoning=reasoning)


MESSAGES = {
    "text": message("It is <answer>42</answer>."),
    "thought": message("It is 42.", "Six times seven."),
    "call": message("", "", {"text": "hello"}),
    "types": message("", "", {"text": "42", "count": 3, "share": 0.5, "deep": True}),
    "nested": message("", "", {"items": [1, 2], "more": {"a": {"b": [1, "two", None]}, "c": "d"}}),
    "parallel": message("", "", {"text": "one"}, {"text": "two", "count": 2}),
    "none": message("", "", {}, name="now"),
    "text and call": message("I write it.", "", {"text": "hello"}),
    "odd": message("", "", {"text": "line one\nline \"two\"\t 日本 \\ {x} [y] 'z' a, b: c"}),
    "JSON as text": message("", "", {"text": '{"a": 1}'}),
    "marks": message("", "", {"text": "a </tool_call> b <think> c </think> d </parameter> e [TOOL_CALLS] f"}),
    "thought and call": message("", 'I call it with {"name": "x"}.', {"text": "hello"}),
}
# What a template shows otherwise than its model writes it.
NOT_SHOWN = {
    "gptoss": {"parallel", "text and call"},  # one call; text as a thought
    "llama3_1": {"parallel"},  # refused
    "llama3_2": {"parallel"},  # refused
    "lfm2_2_5": {"odd"},  # strings are not escaped
    "lfm2_2_5_v2": {"odd"},
    "deepseekv3": set(MESSAGES) - {"text", "thought"},  # takes arguments as text only
}


@pytest.fixture(scope="module")
def templates() -> Path:
    try:
        return source_folder(*SOURCE) / "trl" / "chat_templates"
    except Exception as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"trl's source package cannot be fetched: {error}")


@cache
def byte_tokenizer(marks: tuple[str, ...]) -> Any:
    """A tokenizer of single bytes and of these marks as special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return tokenizer


def test_a_message_is_the_same_after_template_tokens_and_parser(templates: Path) -> None:
    differences = []
    read = 0
    for file in sorted(templates.glob("*.jinja")):
        if file.stem.endswith("_training") or not (tokenizer := tokenizer_with(file.read_text("utf-8"))):
            continue
        read += 1
        for name, sent in MESSAGES.items():
            if name not in NOT_SHOWN.get(file.stem, ()):
                difference = round_trip(tokenizer, sent)
                differences += [f"{file.stem}, {name}: {difference}"] if difference else []
    assert not differences
    assert read == 27


def tokenizer_with(source: str) -> Any:
    """A tokenizer with the template; None if the template shows no calls, or in a format that is not known."""
    from transformers import PreTrainedTokenizerFast

    marks = tuple(sorted(set(_MARKS.findall(source)) | {"<s>", "</s>"}))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(marks), bos_token="<s>", eos_token="</s>", chat_template=source
    )
    try:
        choice = choose_for("auto", tokenizer)
    except Exception:
        return None
    return tokenizer if choice.reason == "by the chat template" else None


def round_trip(tokenizer: Any, sent: Message) -> str | None:
    """What is different after the round trip; None if nothing is."""
    prompt, turn = rendered(tokenizer, sent)
    tokens = [tokenizer.encode(text, add_special_tokens=False) for text in (turn, prompt)]
    model = VerlModel(None, tokenizer, "auto", {})
    received = model._parse(tokens[0], TOOLS, tokens[1])
    calls = [(call.name, json.loads(call.arguments)) for call in received.calls]
    if received.malformed or received.unfinished:
        return f"broken: {turn!r}"
    if calls != [(call.name, json.loads(call.arguments)) for call in sent.tool_calls]:
        return f"calls {calls}: {turn!r}"
    # Some templates show no text beside calls, or no thought.
    if received.content != (sent.content if sent.content in turn else ""):
        return f"content {received.content!r}: {turn!r}"
    if received.reasoning != (sent.reasoning if sent.reasoning in turn else ""):
        return f"reasoning {received.reasoning!r}: {turn!r}"
    return None


def rendered(tokenizer: Any, sent: Message) -> tuple[str, str]:
    """The prompt and the turn after it, as the template shows them."""
    question = Message("user", QUESTION).for_template()
    prompt, whole = (
        str(tokenizer.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=begin, tokenize=False))
        for messages, begin in (([question], True), ([question, sent.for_template()], False))
    )
    shared = os.path.commonprefix([prompt, whole])  # noqa: RUF071
    if shared != prompt:  # the template opens another thought in the prompt than it shows afterwards
        shared = shared[: max(map(shared.rfind, "\n>]")) + 1]
    return shared, whole[len(shared) :]
