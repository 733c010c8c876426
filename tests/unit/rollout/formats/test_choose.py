"""The format is chosen by what the chat template writes, and one that does not fit is refused with the reason."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.errors import ModelError
from aworld_train.rollout.formats import FORMATS, unknown_name
from aworld_train.rollout.formats.choose import Choice, choose, choose_for
from aworld_train.thinking import MARKS
from tests.unit.rollout.formats.test_families import BOTH


def template(call: str) -> Callable[..., str]:
    """A template that writes ``call`` with a call's name and arguments in it."""

    def render(messages: Any, tools: Any, begin_turn: bool) -> str:
        text = ""
        for message in messages:
            text += f"<|im_start|>{message['role']}\n{message['content']}"
            for made in message.get("tool_calls", ()):
                function = made["function"]
                text += call.format(name=function["name"], **function["arguments"])
            text += "<|im_end|>\n"
        return text + ("<|im_start|>assistant\n" if begin_turn else "")

    return render


def refuses(messages: Any, tools: Any, begin_turn: bool) -> str:
    raise ValueError("no tools")


HERMES = '<tool_call>\n{{"name": "{name}", "arguments": {{"word": "{word}", "count": 3, "deep": true}}}}\n</tool_call>'
CODER = (
    "<tool_call>\n<function={name}>\n<parameter=word>\n{word}\n</parameter>\n<parameter=count>\n{count}\n</parameter>\n"
    "<parameter=deep>\n{deep}\n</parameter>\n</function>\n</tool_call>"
)
BROKEN = "[{name}(word={word}, count={count}, deep={deep})]"


def chosen(name: str, call: str, marks: str = "") -> Choice:
    return choose(name, template(call), lambda: marks)


@pytest.mark.parametrize(("call", "name"), [(HERMES, "hermes"), (CODER, "qwen3_coder"), (BROKEN, "pythonic")])
def test_the_format_that_reads_a_rendered_call_is_chosen(call: str, name: str) -> None:
    assert chosen("auto", call) == Choice(FORMATS[name], "by the chat template")
    assert chosen(name, call).call_format.name == name


def test_a_format_that_does_not_fit_is_refused_with_the_one_that_does() -> None:
    with pytest.raises(
        ModelError, match=r"hermes does not fit the model.*<function=lookup>.*qwen3_coder reads"
    ):
        chosen("hermes", CODER)


@pytest.mark.parametrize("name", ["granite", "llama3_json"])
def test_a_format_that_leaves_marks_in_the_text_does_not_fit(name: str) -> None:
    with pytest.raises(ModelError, match=f"{name} does not fit the model.* which hermes reads"):
        chosen(name, HERMES)


def test_a_notation_that_no_format_reads_is_refused() -> None:
    with pytest.raises(ModelError, match=r"none of the known formats reads.*CALL lookup"):
        chosen("auto", "CALL {name} WITH {word}")
    assert chosen("mistral", "CALL {name} WITH {word}").call_format.name == "mistral"


@pytest.mark.parametrize(("length", "shown"), [(120, "'{}'"), (121, "'{}...'")])
def test_a_refusal_shows_the_beginning_of_a_call(length: int, shown: str) -> None:
    written = "<|im_end|>\n"
    call = "b7c8d9".ljust(length - len(written), ".")
    with pytest.raises(ModelError) as caught:
        chosen("auto", call.replace("b7c8d9", "{word}"))
    expected = f"{call}<|im_end|>\\n"
    assert f"which writes {shown.format(expected if length == 120 else expected[:-2])}. Known" in str(
        caught.value
    )


def test_a_template_may_take_arguments_as_text_alone_and_begin_a_finished_turn_otherwise() -> None:
    def render(messages: Any, tools: Any, begin_turn: bool) -> str:
        assert [tool["function"]["name"] for tool in tools] == ["lookup"]
        text = f"{messages[0]['content']}\n<think>"
        if begin_turn:
            return text + "\n"
        (call,) = messages[1]["tool_calls"]
        written = f'{{"name": "lookup", "arguments": {call["function"]["arguments"].strip()}}}'
        return text + f"</think>\n<tool_call>{written}</tool_call>"

    assert choose("auto", render, lambda: "").call_format.name == "hermes"
    with pytest.raises(ModelError, match=r"writes a call as '</think>\\n<tool_call>\{\"name\": \"lookup\", "):
        choose("glm", render, lambda: "")


def test_a_tokenizers_template_is_rendered_with_the_recipes_options_and_its_marks_are_its_tokens() -> None:
    rendered = []

    def apply(messages: Any, **options: Any) -> str:
        rendered.append(options)
        return template(HERMES)(messages, options["tools"], options["add_generation_prompt"])

    tokens = {1: "<x>", 2: "<seed:tool_call>"}
    tokenizer = SimpleNamespace(apply_chat_template=apply, chat_template="", added_tokens_decoder=tokens)
    assert choose_for("auto", tokenizer, {"thinking": False}).call_format.name == "hermes"
    assert [one.pop("add_generation_prompt") for one in rendered] == [True, False]
    assert rendered[0] == rendered[1] == {"tools": rendered[0]["tools"], "tokenize": False, "thinking": False}
    tokenizer.apply_chat_template = refuses
    assert choose_for("auto", tokenizer).call_format.name == "seed"


@pytest.mark.parametrize("render", [refuses, template("")])
def test_where_no_call_is_shown_marks_decide(render: Any) -> None:
    for name, mark in (("seed", "<seed:tool_call>"), ("kimi", "<|tool_calls_section_begin|>")):
        choice = choose("auto", render, lambda mark=mark: f"text {mark} text")
        assert choice.call_format.name == name
        assert mark in choice.reason
    assert choose("auto", render, lambda: "[x(1)]").call_format.name == "hermes"
    assert choose("glm", render, lambda: "").call_format.name == "glm"


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        ModelError, match=r"unknown tool-call format 'qwen3_coda'. Did you mean 'qwen3_coder'"
    ):
        chosen("qwen3_coda", HERMES)
    assert unknown_name("auto") is None
    assert all(unknown_name(name) is None for name in BOTH)


def test_the_reference_lists_every_format_with_its_models() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "formats.md").read_text("utf-8")
    for entry in FORMATS.values():
        assert f"| `{entry.name}` | {entry.families} |" in page
    for marks in MARKS:
        assert f"`{marks.opens}` … `{marks.closes}`" in " ".join(page.split())
