"""A template's text around messages, found once, is what the template writes, whatever it does with them."""

from copy import deepcopy
from functools import cache, partial
from operator import eq, ge, gt, itemgetter, le, lt, methodcaller, ne
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.template import _MARKER, _STAND_IN, CannotContinue, ChatTemplate
from aworld_train.rollout.template_cache import _BORDERS, _Opaque, _probe_texts, shape
from tests import templates
from tests.properties import examples
from tests.vision import image

TOOLS = [{"type": "function", "function": {"name": "calc", "description": "", "parameters": {}}}]
AS_IT_IS = "message.content"
COPYING = [
    AS_IT_IS,
    "message.content ~ message.content",
    "message['content'] + ''",
    "'%s' | format(message.content)",
    "message.content if message.content else 'nothing'",
    "message.content if message.content is string else 'no text'",
    "message.tool_call_id ~ ': ' ~ message.content",
    "message.name ~ ': ' ~ message.content",
    "shown(message.content)",
]
LOOKING = [
    "message.content | trim",
    "(message.content ~ '') | trim",
    "('' ~ message.content) | upper",
    "message.content | tojson",
    "message.content | e",
    "message.content | title",
    "message.content | replace('<', '(')",
    "(message.content ~ '') | replace('<', '(')",
    "message.content | length",
    "'long' if (message.content ~ '') | length > 1000 else message.content",
    "message.content[:5]",
    "message.content.split('</think>')[-1]",
    "(message.content ~ '').split('</think>')[-1]",
    "shown(message.content).split('</think>')[-1]",
    "'failed' if 'Error' in message.content else message.content",
    "'failed' if 'Error' in (message.content ~ '') else message.content",
    "'failed' if (message.content ~ '').startswith('Error') else message.content",
    "'failed' if (message.content ~ '').endswith('Error') else message.content",
    "'none' if (message.content ~ '') == 'null' else message.content",
    "'none' if message.content in ['null', 'none'] else message.content",
    "'none' if message.content in {'null': 1} else message.content",
    "'digit' if (message.content ~ '')[0] in '0123456789' else message.content",
    "'less' if message.content < 'm' else message.content",
    "message.content | list | join(' ')",
    "message.content * 2",
    "message.content if message.tool_call_id | length == 9 else 'bad'",
    "'none' if message.content == 'no' ~ 'ne' else message.content",
]
RARELY_LOOKING = [
    # By what no string of the template says: one small letter, two characters that are none, an object on a page.
    "'letter' if (message.content ~ '') | length == 1 and (message.content ~ '') is lower else message.content",
    "'empty' if (message.content ~ '') | length == 2 and (message.content ~ '') is not lower else message.content",
    "'object' if (message.content ~ '') | e | length == 34 else message.content",
]
TEXTS = st.one_of(
    st.text(min_size=1, max_size=30),
    st.lists(
        st.sampled_from(
            [
                "Error",
                "null",
                "none",
                "</think>",
                "<",
                "7",
                " ",
                "\n",
                "x",
                "é",
                '{"a": 1}',
                "<|im_end|>",
                "\\n",
            ]
        ),
        min_size=1,
        max_size=4,
    ).map("".join),
    st.just("Error" * 400),
)
MACRO = "{%- macro shown(text) -%}{{- text -}}{%- endmacro -%}"


@cache
def template(expression: str) -> ChatTemplate:
    copied_tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    before = "'\\n<tool_response>\\n' + message.content + '\\n</tool_response>'"
    assert before in copied_tokenizer.chat_template
    copied_tokenizer.chat_template = MACRO + copied_tokenizer.chat_template.replace(
        before, f"'\\n<tool_response>\\n' ~ ({expression}) ~ '\\n</tool_response>'"
    )
    return ChatTemplate(copied_tokenizer, [copied_tokenizer.eos_token_id])


def results(contents: list[str]) -> list[Message]:
    return [Message("tool", one, call_id=f"abcdef{i:03}", name="calc") for i, one in enumerate(contents)]


def turn_before(messages: list[Message]) -> Message:
    """An assistant's turn that these messages can follow."""
    calls = [ToolCall(message.name, "{}", message.call_id) for message in messages if message.role == "tool"]
    return Message("assistant", "" if calls else "text", tuple(calls))


def framed(chat_template: ChatTemplate, messages: list[Message], tools: Any) -> str:
    """The text that is used for messages."""
    return chat_template._framed(turn_before(messages), messages, tools)


def rendered(chat_template: ChatTemplate, messages: list[Message], tools: Any) -> str:
    """The text that the template writes for messages."""
    return chat_template._after([_STAND_IN], turn_before(messages), messages, tools).text


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("expression", [*COPYING, *LOOKING])
@examples(60)
@given(contents=st.lists(TEXTS, min_size=1, max_size=3))
def test_it_is_what_the_template_writes(expression: str, tools: Any, contents: list[str]) -> None:
    assume(not any(_MARKER in one for one in contents))  # which the template's text is cut at
    messages = results(contents)
    assert framed(template(expression), messages, tools) == rendered(template(expression), messages, tools)


@pytest.mark.parametrize("family", sorted(templates.ENDS))
@examples(60)
@given(contents=st.lists(TEXTS, min_size=1, max_size=3), question=st.one_of(st.just(""), TEXTS))
def test_it_is_what_a_familys_template_writes(family: str, contents: list[str], question: str) -> None:
    assume(not any(_MARKER in one for one in (*contents, question)))
    messages = [*results(contents), *([Message("user", question)] if question else [])]
    chat_template = shared(family)
    try:
        text = framed(chat_template, messages, TOOLS)
    except CannotContinue:
        with pytest.raises(CannotContinue):
            rendered(chat_template, messages, TOOLS)
    else:
        assert text == rendered(chat_template, messages, TOOLS)


@cache
def shared(family: str) -> ChatTemplate:
    return templates.template(family)


@pytest.mark.parametrize(
    ("expression", "is_framed"),
    [*((one, True) for one in COPYING), *((one, False) for one in (*LOOKING, *RARELY_LOOKING))],
)
def test_a_template_that_only_copies_is_not_rendered_again(
    expression: str, is_framed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_template = template(expression)
    framed(chat_template, results(["first"]), TOOLS)
    framed(chat_template, results(["second"]), TOOLS)
    renders: list[Any] = []
    render = chat_template._render

    def counting(*arguments: Any, **options: Any) -> str:
        renders.append(1)
        return render(*arguments, **options)

    monkeypatch.setattr(chat_template, "_render", counting)
    framed(chat_template, results(["third"]), TOOLS)
    assert bool(renders) is not is_framed


def test_a_text_that_has_nothing_is_rendered() -> None:
    chat_template = template("message.content if message.content else 'nothing'")
    for contents in (["4"], ["5"], [""], ["6", ""]):
        text = framed(chat_template, results(contents), TOOLS)
        assert text == rendered(chat_template, results(contents), TOOLS)
    assert "nothing" in framed(chat_template, results([""]), TOOLS)


def test_an_identifier_that_a_template_may_escape_is_rendered() -> None:
    chat_template = template("message.tool_call_id | tojson ~ message.content")
    for call_id in ("abcdef000", 'a"b', "é", "abcdef001"):
        messages = [Message("tool", "4", call_id=call_id, name="calc")]
        assert framed(chat_template, messages, TOOLS) == rendered(chat_template, messages, TOOLS)


@pytest.mark.parametrize(
    ("look", "is_inspected"),
    [
        *((look, True) for look in (len, hash, repr, list, _Opaque.strip, itemgetter(0))),
        *((partial(compare, "a"), True) for compare in (eq, ne, lt, le, gt, ge)),
        *((look, False) for look in (str, format, bool, type, methodcaller("__add__", "a"))),
    ],
)
def test_a_text_notes_every_look_at_it_but_copies(look: Any, is_inspected: bool) -> None:
    text = _Opaque("x")
    assert bool(_Opaque("")) and not text.inspected
    look(text)
    assert text.inspected is is_inspected


@pytest.mark.parametrize(
    "other",
    [
        *(Message(role, "a") for role in ("system", "assistant")),
        *(Message("user", text, images=images) for text, images in (("", ()), ("a", (image(0),)))),
        Message("user", "a", (ToolCall("calc", "{}"),)),
        *(Message("tool", "a", call_id=call_id) for call_id in ('a"b', "é", "a b")),
    ],
)
def test_messages_have_a_shape_by_their_roles_names_and_identifiers_unless_one_is_special(
    other: Message,
) -> None:
    plain = [
        Message("tool", "4", call_id="a_b.c:d-1", name="calc"),
        Message("tool", "4"),
        Message("user", "a"),
    ]
    assert shape(plain) == (("tool", "calc", True), ("tool", "", False), ("user", "", False))
    assert shape([*plain, other]) is None


@pytest.mark.parametrize("source", ["{{ 'ab' ~ \"c\\n\" ~ '' }}", {"a": "{{ 'ab' }}", "b": "{{ 'c\\n' }}"}])
def test_a_frame_is_tried_with_what_equals_begins_and_ends_with_each_string_of_a_template(
    source: Any,
) -> None:
    texts = list(_probe_texts(source))
    assert len(texts[0]) == 100_000 and "" not in texts
    pieces = ["ab", "c\n", *_BORDERS]
    assert texts[1::3] == pieces
    for i, piece in enumerate(pieces):
        assert texts[3 * i + 2 : 3 * i + 4] == [f"{piece}x{pieces[i - 1]}", f"x{piece}x"]
