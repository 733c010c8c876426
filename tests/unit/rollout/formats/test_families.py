"""Turns as each family of models writes them: text, thoughts, and calls with the types of the tools' schemas."""

import json
from typing import Any

import pytest

from aworld_train.rollout.formats import FORMATS, read_turn
from aworld_train.rollout.model import ParsedTurn
from aworld_train.thinking import MARKS, Marks, opened_by

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "share": {"type": "number"},
                    "deep": {"type": "boolean"},
                    "items": {"type": "array", "items": {"type": "integer"}},
                    "more": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                    "either": {"type": ["integer", "string"]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"text": "42", "count": 3, "share": 0.5, "deep": True, "items": [1, 2], "more": {"a": None}}
JSON = json.dumps(ARGUMENTS)
NAMED = f'{{"name": "find", "arguments": {JSON}}}'
NOW = '{"name": "now", "arguments": {}}'


def tagged(opening: str, closing: str, values: dict[str, Any] = ARGUMENTS) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return "".join(f"{opening.format(key)}{text}{closing}" for key, text in texts.items())


DSML = tagged(
    '<｜DSML｜parameter name="{}" string="false">', "</｜DSML｜parameter>", {"count": 3, "deep": True}
)
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
KIMI = "<|tool_call_begin|>functions.{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
LITERALS = "text='42', count=3, share=0.5, deep=True, items=[1, 2], more={'a': None}"
GEMMA = '{text:<|"|>42<|"|>,count:3,share:0.5,deep:true,items:[1,2],more:{a:null}}'
FIND = "<function=find><parameter={}>{}</parameter></function>"
SHORT = {"text": "42", "count": 3, "deep": True}
# Two calls each, find with all arguments (SHORT where the family cannot show more) and now with none.
BOTH = {
    "hermes": f"<tool_call>\n{NAMED}\n</tool_call>\n<tool_call>\n{NOW}\n</tool_call>",
    "granite": f"<|tool_call|>[{NAMED}, {NOW}]",
    "phi4": f"<|tool_call|>[{NAMED}, {NOW}]<|/tool_call|>",
    "phi4_mini": f"functools[{NAMED}, {NOW}]",
    "granite_function_call": f"<function_call> {NAMED}\n<function_call> {NOW}",
    "tool_calls": f"<tool_calls>\n{NAMED}\n{NOW}\n</tool_calls>",
    "nemotron": f"<TOOLCALL>[{NAMED}, {NOW}]</TOOLCALL>",
    "internlm": f"<|action_start|><|plugin|>\n{NAMED}<|action_end|><|action_start|><|plugin|>\n{NOW}<|action_end|>",
    "command": f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "find", "parameters": {JSON}}}, '
    '{"tool_call_id": "1", "tool_name": "now", "parameters": {}}]<|END_ACTION|>',
    "gigachat": f"<|function_call|>{NAMED}<|function_call|>{NOW}",
    "apertus": f'<|tools_prefix|>[{{"find": {JSON}}}, {{"now": {{}}}}]<|tools_suffix|>',
    "llama3_json": f'{{"name": "find", "parameters": {JSON}}}; {{"name": "now", "parameters": {{}}}}',
    "qwen3_coder": "<tool_call>\n<function=find>\n"
    + tagged("<parameter={}>\n", "\n</parameter>\n")
    + "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "glm": "<tool_call>find\n"
    + tagged("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n")
    + "</tool_call>\n<tool_call>now\n</tool_call>",
    "seed": "<seed:tool_call>\n<function=find>\n"
    + tagged("<parameter={}>", "</parameter>\n")
    + "</function>\n<function=now>\n</function>\n</seed:tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="find">\n'
    + tagged('<parameter name="{}">', "</parameter>\n")
    + '</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    "deepseek_v4": '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="find">\n<｜DSML｜parameter name="text" string="true">42'
    f'</｜DSML｜parameter>\n{DSML}</｜DSML｜invoke>\n<｜DSML｜invoke name="now"></｜DSML｜invoke></｜DSML｜tool_calls>',
    "minicpm": '<function name="find">'
    + tagged('<param name="{}">', "</param>")
    + '</function>\n<function name="now"></function>',
    "mistral": f'[TOOL_CALLS] [{{"name": "find", "arguments": {JSON}, "id": "a1b2c3d4e"}}, {NOW}]',
    "deepseek_v3": f"<｜tool▁calls▁begin｜>{V3.format('find', JSON)}\n{V3.format('now', '{}')}<｜tool▁calls▁end｜>",
    "deepseek_v31": f"<｜tool▁calls▁begin｜>{V31.format('find', JSON)}{V31.format('now', '{}')}<｜tool▁calls▁end｜>",
    "kimi": f"<|tool_calls_section_begin|>{KIMI.format('find:0', JSON)}{KIMI.format('now:1', '{}')}"
    "<|tool_calls_section_end|>",
    "solar": f"<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>find<|tool_call:args|>{JSON}<|tool_call:end|>"
    "<|tool_call:begin|>a2<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|>",
    "functionary": f"<function=find>{JSON}</function><function=now>{{}}</function>",
    "lfm2": f"<|tool_call_start|>[find({LITERALS}), now()]<|tool_call_end|>",
    "pythonic": f"[find({LITERALS}), now()]",
    "gemma4": f"<|tool_call>call:find{GEMMA}<tool_call|><|tool_call>call:now{{}}<tool_call|>",
    "functiongemma": "<start_function_call>call:find{text:<escape>42<escape>,count:<escape>3<escape>,"
    "deep:<escape>True<escape>}<end_function_call><start_function_call>call:now{}<end_function_call>",
    "gpt-oss": f" to=functions.find<|channel|>commentary <|constrain|>json<|message|>{JSON}<|call|><|start|>assistant"
    " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
}
SHOWS_LESS = {"deepseek_v4": SHORT, "functiongemma": SHORT}
IDS = {
    "mistral": ["a1b2c3d4e", ""],
    "kimi": ["functions.find:0", "functions.now:1"],
    "solar": ["a1", "a2"],
    "command": ["0", "1"],
}


def calls_of(turn: ParsedTurn) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


def expected(name: str) -> list[tuple[str, Any]]:
    return [("find", SHOWS_LESS.get(name, ARGUMENTS)), ("now", {})]


def test_every_format_is_in_the_table() -> None:
    assert set(BOTH) == set(FORMATS)


@pytest.mark.parametrize("name", BOTH)
def test_calls_are_read_with_their_types_and_identifiers(name: str) -> None:
    turn = read_turn(BOTH[name], FORMATS[name], TOOLS)
    assert calls_of(turn) == expected(name)
    assert [call.call_id for call in turn.calls] == IDS.get(name, ["", ""])
    assert (turn.content, turn.reasoning, turn.malformed, turn.unfinished) == ("", "", False, False)


@pytest.mark.parametrize("name", [name for name in BOTH if name != "gpt-oss"])
def test_text_and_a_thought_may_stand_before_calls(name: str) -> None:
    thought = f"I could {BOTH[name]}, but not yet."
    turn = read_turn(f"<think>\n{thought}\n</think>\n\nI look.\n{BOTH[name]}", FORMATS[name], TOOLS)
    assert calls_of(turn) == expected(name)
    assert (turn.content, turn.reasoning, turn.malformed) == ("I look.", thought, False)


@pytest.mark.parametrize("name", [name for name in BOTH if name != "gpt-oss"])
def test_a_call_in_a_thought_without_an_end_is_none(name: str) -> None:
    for text, opened in ((f"<think>{BOTH[name]}", None), (BOTH[name], opened_by("assistant\n<think>\n"))):
        turn = read_turn(text, FORMATS[name], TOOLS, opened)
        assert (turn.calls, turn.content, turn.reasoning) == ([], "", BOTH[name])
        assert turn.unfinished and not turn.malformed


@pytest.mark.parametrize("name", BOTH)
def test_a_turn_that_is_cut_anywhere_has_no_call_that_was_not_written(name: str) -> None:
    whole = expected(name)
    for end in range(len(BOTH[name])):
        turn = read_turn(BOTH[name][:end], FORMATS[name], TOOLS)
        assert calls_of(turn) == whole[: len(turn.calls)]
        assert "<answer>" not in turn.content


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "find"}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
        ("hermes", "<tool_call>not JSON</tool_call>"),
        ("hermes", f"<tool_call>{NAMED}"),
        ("qwen3_coder", "<tool_call><function=find><parameter=text>42</function></tool_call>"),
        ("qwen3_coder", f"<tool_call>{NAMED}</tool_call>"),
        ("glm", "<tool_call>find<arg_key>text</arg_key></tool_call>"),
        ("mistral", "[TOOL_CALLS]find{}"),
        ("kimi", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
        ("llama3_json", '{"name": "find", "parameters": {"text": '),
        ("pythonic", "[find(text=42 43)]"),
        ("gemma4", '<|tool_call>call:find{text:<|"|>42}<tool_call|>'),
        ("gpt-oss", " to=functions.find<|channel|>commentary json<|message|>{<|call|>"),
    ],
)
def test_a_call_that_cannot_be_read_is_malformed_and_ends_the_answer(name: str, text: str) -> None:
    turn = read_turn(f"{text}<answer>42</answer>", FORMATS[name], TOOLS)
    assert turn.malformed
    assert (turn.calls, turn.content) == ([], "")


@pytest.mark.parametrize(
    ("name", "text", "calls", "rest"),
    [
        ("hermes", f"<tool_call>[{NOW}] {NOW}</tool_call>a", [{}, {}], "a"),
        ("hermes", '<tool_call>{"tool_name": "now", "parameters": 1}</tool_call>', [1], ""),
        ("granite", f"<|tool_call|>{NOW} a", [{}], "a"),
        ("granite_function_call", f"<function_call>{NOW} {NOW}", [{}], NOW),
        ("phi4_mini", f"a functools[{NOW}]", [{}], "a"),
        ("llama3_json", f"<|python_tag|> {NOW} ; {NOW};", [{}, {}], ""),
        ("llama3_json", f"[{NOW}]\n{NOW} a", [{}, {}], "a"),
        ("llama3_json", f"a {NOW}", [{}], "a"),
        ("mistral", "[TOOL_CALLS]now[CALL_ID]a1[ARGS]{}now[ARGS] {} [TOOL_CALLS] now[ARGS]{} a", [{}] * 3, "a"),
        ("mistral", f"[TOOL_CALLS][{NOW}] a", [{}], "a"),
        ("functionary", "a<function=now>{}</function> b", [{}], "a\nb"),
        ("kimi", f"<|tool_calls_section_begin|> {KIMI.format('now', '{}')} <|tool_calls_section_end|>a", [{}], "a"),
        ("qwen3_coder", f"<tool_call>{FIND}</tool_call>".format("a", "\n\n1 \n\n"), [{"a": 1}], ""),
        ("qwen3_coder", f"<tool_call>{FIND}</tool_call>".format("text", "\n\n1\n\n"), [{"text": "\n1\n"}], ""),
        ("seed", f"<seed:tool_call>{FIND}</seed:tool_call>".format("text", "\n1"), [{"text": "\n1"}], ""),
        (
            "minicpm",
            '<function name="find"><param name="text"><![CDATA[</param>]]></param>'
            '<param name="a"><![CDATA[1</param></function> a',
            [{"text": "</param>", "a": "<![CDATA[1"}],
            "a",
        ),
        (
            "deepseek_v4",
            '<｜DSML｜function_calls><｜DSML｜invoke name="find">'
            '<｜DSML｜parameter name="count" string="true">3</｜DSML｜parameter>'
            '<｜DSML｜parameter name="text" string="false">3</｜DSML｜parameter>'
            "</｜DSML｜invoke></｜DSML｜function_calls>",
            [{"count": "3", "text": 3}],
            "",
        ),
        ("pythonic", "a [ now(x='1', ), other() ] b", [], "a [ now(x='1', ), other() ] b"),
        ("pythonic", "[find(count='1', text='1'), other(x='1')] b", [{"count": 1, "text": "1"}, {"x": "1"}], "b"),
        ("pythonic", "<|python_start|>[now()] <|python_end|>a", [{}], "a"),
        ("lfm2", "<|tool_call_start|> [ now ( ) , now() ] <|tool_call_end|>a", [{}, {}], "a"),
        ("gpt-oss", "<|channel|>analysis to=functions.now<|message|>{}<|end|>a", [], "a"),
        ("gpt-oss", "to=functions.now<|message|>{} <|call|>to=other.now<|message|>1 a", [{}, 1], "a"),
        ("glm", "<tool_call>now</tool_call>a b", [{}], "a b"),
        ("gpt-oss", "<|channel|>final<|message|>a<|start|>assistant<|message|>b<|call|>c", [], "a\nb\nc"),
        ("gpt-oss", "<|message|>a<|end|><|channel|>commentary<|message|>b<|return|>c", [], "a\nb\nc"),
    ],
)  # fmt: skip
def test_calls_and_the_text_around_them_are_divided(
    name: str, text: str, calls: list[Any], rest: str
) -> None:
    turn = read_turn(text, FORMATS[name], TOOLS)
    assert not turn.malformed
    assert [arguments for _, arguments in calls_of(turn)] == calls
    assert turn.content == rest


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>[]</tool_call>"),
        ("hermes", f"<tool_call>[] {NOW}</tool_call>"),
        ("hermes", f"<tool_call>[{NOW}, 1]</tool_call>"),
        ("hermes", f"<tool_call>[{NOW}, {{}}]</tool_call>"),
        ("hermes", f"<tool_call>{NOW} a</tool_call>"),
        ("apertus", '<|tools_prefix|>[{"find": {}, "now": {}}]<|tools_suffix|>'),
        ("llama3_json", "<|python_tag|>{}"),
        ("llama3_json", f"{NOW};{{}}"),
        ("mistral", f'[TOOL_CALLS][{NOW}, {{"name": "now"}}]'),
        ("mistral", f"[TOOL_CALLS][{NOW}, 1]"),
        ("mistral", "[TOOL_CALLS][]"),
        ("mistral", "[TOOL_CALLS]now[ARGS]"),
        ("functionary", "<function=now>{}"),
        ("kimi", f"<|tool_calls_section_begin|>{KIMI.format('now', '{}')}"),
        ("seed", "<seed:tool_call><function=now></function>"),
        ("seed", "<seed:tool_call><function=now><parameter=a>1</parameter>"),
        ("seed", "<seed:tool_call></seed:tool_call>"),
        ("glm", "<tool_call>now<arg_key>a</arg_key><arg_value>1</arg_value>"),
        ("pythonic", "[now(x=y)]"),
        ("pythonic", "<|python_start|>now()<|python_end|>"),
        ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now()]"),
        ("lfm2", "<|tool_call_start|>[now(), 1]<|tool_call_end|>"),
        ("gemma4", "<|tool_call>now{}<tool_call|>"),
        ("gemma4", "<|tool_call>call:now{}"),
        ("gpt-oss", "to=functions.<|message|>{}<|call|>"),
    ],
)
def test_a_call_with_a_part_that_is_missing_is_malformed(name: str, text: str) -> None:
    assert read_turn(text, FORMATS[name], TOOLS).malformed


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm", "minimax", "mistral", "gemma4", "lfm2"])
def test_marks_inside_an_argument_are_the_argument(name: str) -> None:
    value = "a </tool_call> <think>b</think> </parameter> </arg_value> [TOOL_CALLS] <answer>1</answer>"
    text = BOTH[name].replace('"42"', json.dumps(value)).replace(">42<", f">{value}<")
    text = text.replace(">\n42\n<", f">\n{value}\n<").replace("'42'", repr(value))
    assert value in text
    turn = read_turn(text, FORMATS[name], TOOLS)
    assert calls_of(turn) == [("find", {**ARGUMENTS, "text": value}), ("now", {})]
    assert turn.content == ""


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        ("count", "three", "three"),
        ("count", "3", 3),
        ("share", "1e3", 1000.0),
        ("deep", "False", False),
        ("deep", "maybe", "maybe"),
        ("items", "[1, 2", "[1, 2"),
        ("items", "(1, 2)", "(1, 2)"),
        ("more", "None", None),
        ("more", "{'a': True}", {"a": True}),
        ("text", "null", "null"),
        ("text", " two words ", " two words "),
        ("either", "3", 3),
        ("either", "three", "three"),
        ("unknown", "[1]", [1]),
        ("unknown", "word", "word"),
    ],
)
def test_a_value_has_the_type_of_its_schema_or_stays_text(argument: str, text: str, value: Any) -> None:
    call = f"<tool_call>\n<function=find>\n<parameter={argument}>\n{text}\n</parameter>\n</function>\n</tool_call>"
    [(_, arguments)] = calls_of(read_turn(call, FORMATS["qwen3_coder"], TOOLS))
    assert arguments == {argument: value}
    assert type(arguments[argument]) is type(value)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (JSON, ARGUMENTS),
        (f" {JSON}\n", ARGUMENTS),
        (f"{JSON} and more", f"{JSON} and more"),
        ("[1]", "[1]"),
        ("word", "word"),
    ],
)
def test_arguments_written_as_the_text_of_an_object_are_that_object(text: str, arguments: Any) -> None:
    call = json.dumps({"name": "find", "arguments": text})
    turn = read_turn(f"<tool_call>\n{call}\n</tool_call>", FORMATS["hermes"], TOOLS)
    assert calls_of(turn) == [("find", arguments)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_json", '{"name": "Ada", "born": 1815}'),
        ("llama3_json", 'Her record: {"name": "Ada", "arguments": {}}'),
        ("pythonic", "[1, 2]"),
        ("pythonic", "The term [f(x)] stays."),
        ("pythonic", "[unknown(1)]"),
    ],
)
def test_what_only_looks_like_a_call_without_marks_is_text(name: str, text: str) -> None:
    turn = read_turn(text, FORMATS[name], TOOLS)
    assert (turn.content, turn.calls, turn.malformed) == (text, [], False)


@pytest.mark.parametrize("name", ["llama3_json", "pythonic", "phi4_mini"])
def test_without_tools_there_are_no_calls_without_marks(name: str) -> None:
    turn = read_turn(BOTH[name], FORMATS[name], ())
    assert (turn.content, turn.calls) == (BOTH[name], [])


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: str(marks.opens))
def test_thoughts_of_all_families_are_read(marks: Marks) -> None:
    text = f"{marks.opens}\none\n{marks.closes}\nfirst\n{marks.opens}two{marks.closes}second"
    turn = read_turn(text, FORMATS["hermes"], TOOLS)
    assert (turn.content, turn.reasoning, turn.unfinished) == ("first\nsecond", "one\ntwo", False)
    unfinished = read_turn(f"first{marks.opens}two", FORMATS["hermes"], TOOLS)
    assert (unfinished.content, unfinished.reasoning, unfinished.unfinished) == ("first", "two", True)
    prompted = read_turn(
        f"one{marks.closes}first", FORMATS["hermes"], TOOLS, opened_by(f"turn {marks.opens}\n")
    )
    assert (prompted.content, prompted.reasoning) == ("first", "one")
    assert opened_by(f"{marks.opens}x{marks.closes}\n") is None


def test_the_channels_of_gpt_oss_are_thought_text_and_calls() -> None:
    text = (
        "<|channel|>analysis<|message|>I could <answer>1</answer>.<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        f"<|channel|>commentary to=functions.find <|constrain|>json<|message|>{JSON}<|call|>"
    )
    turn = read_turn(text, FORMATS["gpt-oss"], TOOLS)
    assert (turn.reasoning, turn.content) == ("I could <answer>1</answer>.", "I look.")
    assert calls_of(turn) == [("find", ARGUMENTS)]
    final = read_turn("<|channel|>final<|message|>42<|return|>", FORMATS["gpt-oss"], TOOLS)
    assert (final.content, final.unfinished) == ("42", False)
    cut = read_turn("<|channel|>analysis<|message|><answer>1</answer>", FORMATS["gpt-oss"], TOOLS)
    assert (cut.content, cut.reasoning, cut.unfinished) == ("", "<answer>1</answer>", True)
    assert read_turn("just words", FORMATS["gpt-oss"], TOOLS).content == "just words"
    assert read_turn("<|channel|>ana", FORMATS["gpt-oss"], TOOLS).content == ""
