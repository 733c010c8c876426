"""Only templates and images make special tokens, wherever a text has their letters, and a turn has one end."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout import template as template_module
from aworld_train.rollout.images import TEXT_ONLY, NoImages
from aworld_train.rollout.template import (
    CannotContinue,
    ChatTemplate,
    TemplateFailure,
    _overlap,
    with_recorded_ids,
)
from aworld_train.rollout.tokens import special_tokens
from tests import templates
from tests.properties import examples
from tests.vision import image

RESERVED = ("<|image_pad|>", "<|video_pad|>")
HELLO = Message("user", "Hello.")
QUESTION = Message("user", "?")
CALL = Message("assistant", "", (ToolCall("calc", "{}", "c"),))
RESULT = Message("tool", "4", name="calc", call_id="c")
ANSWERED = [QUESTION, Message("assistant", "4")]
TWO_CALLS = Message("assistant", "", (ToolCall("calc", "{}", "c"), ToolCall("look", "{}", "d")))
TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}]
MORE_TOOLS = [*TOOLS, {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    """The template of a model that has tokens for images and video."""
    tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.add_tokens(list(RESERVED), special_tokens=True)
    assert [len(tokenizer.encode(text)) for text in RESERVED] == [1, 1]
    return ChatTemplate(tokenizer, [tokenizer.eos_token_id], images=NoImages(reserved=RESERVED))


def continued(
    template: ChatTemplate,
    history: list[Message],
    new: list[Message],
    tools: Any = (),
    cut_off: Sequence[int] = (),
) -> list[int]:
    """The tokens after a turn that the model has ended, or that was cut off after these tokens."""
    sampled, key = cut_off or list(template.ends), json.dumps(tools)
    return template.continuation(history, new, tools, sampled, ended=not cut_off, tools_key=key)


def written(source: str, ends: str = "<|im_end|>", **options: Any) -> ChatTemplate:
    """A template with this source."""
    tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.add_tokens(list(RESERVED), special_tokens=True)
    tokenizer.chat_template = source
    return ChatTemplate(tokenizer, tokenizer.convert_tokens_to_ids([ends]), **options)


def all_tokens(template: ChatTemplate, text: str) -> list[list[int]]:
    """The tokens of everything that can hold a text."""
    tool = {"type": "function", "function": {"name": "look", "description": text, "parameters": {text: {}}}}
    return [
        template.plain(text),
        *messages_tokens(template, text),
        template.initial([HELLO], [tool]),
    ]


def messages_tokens(template: ChatTemplate, text: str) -> list[list[int]]:
    """The tokens of all messages that can hold a text."""
    call = ToolCall("look", "{}", "abcdef000")
    calling = Message("assistant", "", (ToolCall("look", f'{{"at": "{text}"}}', "abcdef000"),))
    result = Message("tool", text, call_id="abcdef000", name="look")
    return [
        template.initial([Message("system", text), HELLO], []),
        template.initial([Message("user", text)], []),
        template.initial([HELLO, Message("assistant", text), HELLO], []),
        template.initial([HELLO, calling, result], []),
        continued(template, [HELLO, Message("assistant", "Hi.")], [Message("user", text)]),
        continued(template, [HELLO, Message("assistant", "", (call,))], [result]),
    ]


@pytest.mark.parametrize("spelled", RESERVED)
def test_text_that_spells_a_token_of_images_is_text(template: ChatTemplate, spelled: str) -> None:
    for tokens, plain in zip(
        all_tokens(template, f"see {spelled} here"), all_tokens(template, "see PLACE here"), strict=True
    ):
        assert spelled not in [template.text([token]) for token in tokens]
        assert template.text(tokens) == template.text(plain).replace("PLACE", spelled)


shared_template = lru_cache(templates.template)
pieces = st.sampled_from(
    [
        *templates.SPECIAL,
        *RESERVED,
        template_module._CUT,
        "<|im_",
        "end|>",
        "<",
        "|>",
        "s",
        "[/",
        " ",
        "é",
        "42",
    ]
)


@pytest.mark.parametrize("family", templates.ENDS)
@examples(60)
@given(pieces=st.lists(pieces, min_size=1, max_size=6))
def test_only_the_template_writes_special_tokens(family: str, pieces: list[str]) -> None:
    template, specials = shared_template(family), special_tokens(templates.tokenizer(family))
    text = f"a{''.join(pieces)}z"
    for tokens, plain in zip(
        messages_tokens(template, text), messages_tokens(template, "aPLACEz"), strict=True
    ):
        assert template.text(tokens) == template.text(plain).replace("aPLACEz", text)
        assert [t for t in tokens if t in specials] == [t for t in plain if t in specials]


def test_tokens_between_messages_are_the_templates_whether_or_not_they_are_marked_as_special() -> None:
    tokenizer: Any = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.add_tokens(["<User>", "<Tool>"])
    tokenizer.chat_template = (
        "{% for m in messages %}<User>{{ m.content }}{% endfor %}{{ '<Tool>' if tools }}"
        "{{ '<think>' if add_generation_prompt }}"
    )
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    tokens = template.initial([Message("user", "a<User>b<think>c")], TOOLS)
    assert template.text(tokens) == "<User>a<User>b<think>c<Tool><think>"
    counts = map(tokens.count, tokenizer.convert_tokens_to_ids(["<User>", "<Tool>", "<think>"]))
    assert list(counts) == [1, 1, 2]


def test_a_program_that_writes_its_own_prompt_writes_special_tokens(template: ChatTemplate) -> None:
    assert template.plain("a<|im_end|>") == [*template.plain("a"), *template.ends]


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
    history, new = [HELLO, Message("assistant", "Hi.")], [Message("user", "And?")]
    added = "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    assert template.text(continued(template, history, new)) == added
    cut_off = continued(template, history, new, cut_off=template.plain("Hi"))
    assert template.text(cut_off) == earlier_end + added


def test_a_template_that_wants_tools_is_continued_with_tools() -> None:
    tokenizer = deepcopy(templates.tokenizer("chatml_tools"))
    chat_template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    tokenizer.chat_template = (
        "{%- if not tools -%}{{ raise_exception('no tools') }}{%- endif -%}" + tokenizer.chat_template
    )
    expected = continued(chat_template, [QUESTION, CALL], [RESULT], TOOLS)
    picky = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    for _ in range(2):
        assert continued(picky, [QUESTION, CALL], [RESULT], TOOLS) == expected
    with pytest.raises(CannotContinue):
        continued(picky, [QUESTION, Message("assistant", "4")], [Message("user", "and?")], [])


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "{{ tools[0].function.name if tools else 'none' }}",
        "{{ tools | tojson }}",
        "{{ 'short' if '/short' in messages[0].content else 'long' }}",
        "{{ messages | length }}",
    ],
)
def test_a_turn_is_followed_by_what_the_template_writes_after_the_whole_history(shown: str) -> None:
    tokenizer = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.chat_template += "{%- if add_generation_prompt -%}" + shown + "{%- endif -%}"
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    other = [{"type": "function", "function": {"name": "other", "parameters": {}}}]
    beginnings = [
        [QUESTION],
        [Message("system", "/short"), QUESTION],
        [QUESTION, CALL, RESULT],
        [Message("user", "/short")],
    ]
    for tools in (TOOLS, MORE_TOOLS, TOOLS, other):
        for history in beginnings:
            text = tokenizer.decode(continued(template, [*history, CALL], [RESULT], tools))
            messages = [message.for_template() for message in (*history, CALL, RESULT)]
            whole = tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=True, tokenize=False
            )
            assert text
            assert whole.endswith(text)
            assert whole.removesuffix(text).endswith("</tool_call><|im_end|>")


def test_the_end_of_a_turn_is_written_once_where_text_stands_before_it() -> None:
    tokenizer = deepcopy(templates.tokenizer("chatml_tools"))
    after_text = "'<|im_start|>' + message.role + '\\n' + message.content + '"
    assert after_text in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(after_text, after_text + " (done)")
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    turn, reply = Message("assistant", "4"), Message("user", "and?")
    rest = "\n<|im_start|>user\nand? (done)<|im_end|>\n<|im_start|>assistant\n"
    ended = continued(template, [QUESTION, turn], [reply], [])
    assert tokenizer.decode(ended) == rest
    for written in ("4", "4 (done)"):
        sampled = tokenizer.encode(written)
        tokens = continued(template, [QUESTION, turn], [reply], [], sampled)
        assert tokenizer.decode(sampled + tokens) == "4 (done)<|im_end|>" + rest


def test_a_system_message_that_a_template_moves_to_the_front_begins_a_new_row() -> None:
    tokenizer = deepcopy(templates.tokenizer("chatml_tools"))
    tokenizer.chat_template = (
        "{%- for m in messages if m.role == 'system' -%}{{ m.content }}{%- endfor -%}"
        "{%- for m in messages if m.role != 'system' -%}<|im_start|>{{ m.content }}<|im_end|>{%- endfor -%}"
    )
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    history = [QUESTION, Message("assistant", "4")]
    assert continued(template, history, [Message("user", "and?")], [])
    with pytest.raises(CannotContinue, match="before the last turn"):
        continued(template, history, [Message("system", "Be brief."), Message("user", "and?")], [])


def test_arguments_are_text_for_a_template_that_only_reads_text() -> None:
    tokenizer = deepcopy(templates.tokenizer("chatml_tools"))
    converted = "(arguments if arguments is string else arguments | tojson)"
    assert converted in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(converted, "arguments")
    template = ChatTemplate(tokenizer, [tokenizer.eos_token_id])
    assert '"arguments": {}}' in tokenizer.decode(template.initial([QUESTION, CALL, RESULT], TOOLS))
    spaced = Message("assistant", "", (ToolCall("calc", '{"a":1}', "c"),))
    ordinary = templates.template("chatml_tools").initial([QUESTION, spaced, RESULT], TOOLS)
    assert '"arguments": {"a": 1}}' in tokenizer.decode(ordinary)
    assert continued(template, [QUESTION, CALL], [RESULT], TOOLS)


TOOL_TEXT = "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
EACH = "{%- for m in messages -%}"
ENDED = "<|im_end|>{%- endfor -%}{{ '>' if add_generation_prompt }}"
CALLS = "{%- for c in m.tool_calls or [] -%}[{{ c.function.name }}]{%- endfor -%}"


@pytest.mark.parametrize(
    ("source", "history", "new", "added"),
    [
        # A turn ends with the token that begins the next one.
        (
            EACH + "{{ '<|im_end|>' if m.role == 'user' else '<s>' }} {{ m.content }}{% endfor %}<s>",
            [],
            [],
            " ?<s>",
        ),
        # Calls are shown without their arguments, and end twice.
        (
            EACH + "{{ m.content }}<|im_end|>" + CALLS + ENDED,
            [QUESTION, CALL],
            [RESULT],
            "4<|im_end|><|im_end|>>",
        ),
        # Parallel calls are refused, and yet every result is written.
        (
            EACH
            + "{{ raise_exception('one') if (m.tool_calls or []) | length > 1 }}{{ m.content }}"
            + CALLS
            + ENDED,
            [QUESTION, TWO_CALLS],
            [RESULT, RESULT],
            "4<|im_end|>4<|im_end|>>",
        ),
        # Nothing ends a call.
        (
            EACH + "{{ m.content }}{{ m.tool_calls[0].function.arguments if m.tool_calls }}{% endfor %}>",
            [QUESTION, CALL],
            [RESULT],
            "4>",
        ),
        # A long history is refused.
        (
            "{{ raise_exception('long') if messages | length > 3 }}" + EACH + "{{ m.content }}" + ENDED,
            [*ANSWERED, *ANSWERED],
            [QUESTION],
            "?<|im_end|>>",
        ),
        # The tools are refused.
        ("{{ raise_exception('none') if tools }}" + EACH + "{{ m.content }}" + ENDED, [], [], "?<|im_end|>>"),
    ],
)
def test_a_turn_is_followed_by_what_a_template_writes_in_its_own_way(
    source: str, history: list[Message], new: list[Message], added: str
) -> None:
    template = written(source)
    tokens = continued(template, history or ANSWERED, new or [QUESTION])
    assert template.text(tokens) == added


@pytest.mark.parametrize(
    ("source", "history", "new", "reason"),
    [
        (EACH + "{{ m.content if m.role == 'assistant' }}{% endfor %}", ANSWERED, [QUESTION], "adds nothing"),
        (EACH + "{{ m.content }}{{ m.content }}" + ENDED, ANSWERED, [QUESTION], "once, as it is"),
        (EACH + "{{ m.content | upper }}" + ENDED, ANSWERED, [QUESTION], "once, as it is"),
        (
            EACH
            + "{{ m.content if m.role != 'assistant' }}{{ m.tool_calls[0].function.arguments if m.tool_calls }}"
            "{{ (' (open)' if loop.last else ' (done)') if m.tool_calls }}{% endfor %}",
            [QUESTION, CALL],
            [RESULT],
            "writes a tool call differently once its result is there",
        ),
        (
            "{%- set ids = [] -%}"
            + EACH
            + "{{ raise_exception('one') if (m.tool_calls or []) | length > 1 }}"
            "{% for c in m.tool_calls %}{{ ids.append(c.id) or c.function.arguments }}{% endfor %}"
            "{{ m.content if m.role != 'tool' or m.tool_call_id in ids }}" + ENDED,
            [QUESTION, TWO_CALLS],
            [RESULT, Message("tool", "5", name="look", call_id="d")],
            "refuses the messages: TemplateError: one",
        ),
        ("{{ messages[0].nothing.at_all }}", ANSWERED, [QUESTION], "refuses the messages: UndefinedError: "),
        (EACH + "{{ m.content }}" + ENDED, ANSWERED, [], "no message follows the turn"),
    ],
)
def test_a_turn_that_a_template_cannot_continue_has_a_reason(
    source: str, history: list[Message], new: list[Message], reason: str
) -> None:
    with pytest.raises(CannotContinue, match=reason):
        continued(written(source), history, new)


def test_roles_that_are_always_rendered_anew_are_not_continued(template: ChatTemplate) -> None:
    copied = written(template._tokenizer.chat_template)
    copied.anew = {"tool": "results are moved"}
    with pytest.raises(CannotContinue, match="results are moved"):
        continued(copied, [QUESTION, CALL], [RESULT, QUESTION])
    assert continued(copied, [QUESTION, CALL], [QUESTION, RESULT])


def test_the_options_of_a_recipe_are_the_templates() -> None:
    template = written("{{ mood }}{{ messages[0].content }}", options={"mood": "calm "})
    assert template.text(template.initial([QUESTION], [])) == "calm ?"
    assert template.options == {"mood": "calm "}
    assert written("").options == {}


def test_a_template_that_fails_says_how() -> None:
    with pytest.raises(TemplateFailure) as failure:
        written("{{ raise_exception('no system') }}").initial([QUESTION], [])
    assert failure.value.reason == "TemplateError: no system"
    assert str(failure.value) == "the model's chat template refuses the messages: TemplateError: no system"


@dataclass(frozen=True)
class Patches:
    """A processor that takes pictures of 100 pixels in width."""

    placeholder: str = RESERVED[0]
    reserved: Sequence[str] = RESERVED
    options: Any = None

    def tokens(self, image: Image) -> list[int]:
        if image.picture.width > 100:
            raise ValueError("it is too wide")
        return [1000, 1000]


SHOWN = (
    "{% for p in ([m] if m.content is string else m.content) %}"
    "{{ p.content or p.text or '<|image_pad|>' }}{% endfor %}"
)


def test_images_are_tokens_where_the_template_has_a_place_for_each() -> None:
    template = written(EACH + SHOWN + ENDED, images=Patches())
    assert template.no_images == ""
    seen = Message("user", "ab", images=(image(1), image(2)))
    tokens = template.initial([seen], [])
    plain = template.plain
    assert tokens == [*plain("a"), 1000, 1000, *plain("b"), 1000, 1000, *plain("<|im_end|>>")]
    added = continued(template, ANSWERED, [seen])
    assert added == tokens
    assert template.rendered_tokens == len(tokens) + len(added)
    spelled = Message("user", f"{RESERVED[0]}ab", images=(image(len(RESERVED[0]) + 1),))
    assert template.initial([spelled], []).count(1000) == 2


@pytest.mark.parametrize(
    ("source", "width", "reason"),
    [
        (EACH + SHOWN + ENDED, 101, "the model's processor refuses an image: it is too wide"),
        (EACH + SHOWN.replace("'<|image_pad|>'", "''") + ENDED, 100, "it writes 0 places for 1 images"),
    ],
)
def test_an_image_that_has_no_tokens_is_refused_and_no_turn_is_continued_with_it(
    source: str, width: int, reason: str
) -> None:
    template = written(source, images=Patches())
    seen = Message("user", "a", images=(image(1, width),))
    with pytest.raises(TemplateFailure) as failure:
        template.initial([seen], [])
    assert failure.value.reason == reason
    with pytest.raises(CannotContinue, match=reason):
        continued(template, ANSWERED, [seen])
    assert template.rendered_tokens == 0
    assert written(source).no_images == TEXT_ONLY


def test_a_conversation_that_grows_is_not_rendered_again_and_one_of_a_known_kind_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = templates.template("chatml_tools")
    renders: list[Any] = []
    render = template._render

    def counting(*arguments: Any, **options: Any) -> str:
        renders.append(1)
        return render(*arguments, **options)

    monkeypatch.setattr(template, "_render", counting)
    counts = []
    for question in (QUESTION, QUESTION, HELLO, HELLO):
        for history in ([question, CALL], [question, CALL, RESULT, CALL]):
            renders.clear()
            continued(template, history, [RESULT], TOOLS)
            counts.append(len(renders))
    assert counts[2:] == [0, 0, 1, 0, 0, 0]


def test_little_is_kept_of_many_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "_MAX_WAYS", 3)
    monkeypatch.setattr(template_module, "_MAX_FRAMES", 1)
    template = templates.template("chatml_tools")
    kept = []
    for number in range(7):
        name = f"tool{number}"
        call = Message("assistant", "", (ToolCall(name, "{}", "c"),))
        result = replace(RESULT, name=name)
        for _ in range(3):
            text = template.text(continued(template, [Message("user", name), call], [result], TOOLS))
            assert text == TOOL_TEXT
        kept.append((len(template._ways), len(template._usual_ways), len(template._frames)))
    assert kept == [(1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 1, 1)]


def test_a_result_gets_the_recorded_identifier_of_its_call() -> None:
    sent, recorded = (
        Message("assistant", "", tuple(ToolCall("calc", "{}", call_id) for call_id in ids))
        for ids in (("sent0", "same", "sent2"), ("own0", "same", "own2"))
    )
    new = [replace(RESULT, call_id=call_id) for call_id in ("sent2", "same", "other", "sent0")]
    changed = with_recorded_ids(new, sent, recorded)
    assert changed == [replace(RESULT, call_id=call_id) for call_id in ("own2", "same", "other", "own0")]
    assert with_recorded_ids(new, sent, sent) is new


@pytest.mark.parametrize(
    ("sampled", "tokens", "size"),
    [
        ([1, 2, 3], [3, 4], 1),
        ([1, 2, 3], [2, 3, 4], 2),
        ([2, 3], [1, 2, 3], 0),
        ([1, 1], [1, 1, 1], 2),
        ([1, 2], [2, 1, 2], 1),
        ([], [1], 0),
        ([7] * 20, [7] * 20, 16),
    ],
)
def test_the_end_that_a_turn_has_already_is_found(sampled: list[int], tokens: list[int], size: int) -> None:
    assert _overlap(sampled, tokens) == size
