r"""Extraction: the last complete answer outside thinking, by each schema, and nothing that tools or prompts say.

Each row of the table says where its expectation comes from: the project's rules for a schema, TeX, RFC 8259, RE2's
syntax, or what language models are seen to write.
"""

import json
import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.errors import RewardError
from aworld_train.reward.extraction import MAX_SEARCHED, check_schema_name, extract
from tests.adversarial import SLOW_PATTERNS, UNITS

COMPLETE = "rule: the last complete answer counts, one that is cut off takes nothing away"
ALOUD = "rule: thinking is not said aloud; the prompt may have opened it, and it may never close"
LITERAL = "rule: tags are those of HTML, in letters of any case"
TEX = "TeX: groups are delimited by braces, escaped ones are text"
TEX_BARE = "TeX: a command without braces takes what follows"
MENTION = "models: they repeat the instruction, which is no answer"
ESCAPED = "models: they escape backslashes as if inside JSON"
RFC = "RFC 8259: what is a JSON value"
PATH = "rule: the last value in which the path exists"
SHOWN = "rule: values as scorers of text read them, numbers as written"
PROSE = "models: JSON stands in fences and in prose, with brackets and quotes around it"
BROKEN = "rule: what is complete inside of a broken value counts"
RE2 = "RE2 syntax: the group 'answer', else the first, else all"
LINE = "rule: the last line with something in it"

Row = tuple[str, str, str | None, str]

ANSWER: list[Row] = [
    ("answer", "<answer>24</answer>", "24", COMPLETE),
    ("answer", "So <answer> 24\n</answer> it is.", "24", COMPLETE),
    ("answer", "<answer>1</answer> no, <answer>2</answer>", "2", COMPLETE),
    ("answer", "<answer>1</answer> and <answer>2", "1", COMPLETE),
    ("answer", "<answer>1</answer> </answer>", "1", COMPLETE),
    ("answer", "<answer>1 <answer>2</answer>", "2", COMPLETE),
    ("answer", "<answer></answer>", "", COMPLETE),
    ("answer", "<answer>two\nlines</answer>", "two\nlines", COMPLETE),
    ("answer", "<answer>a < b > c</answer>", "a < b > c", COMPLETE),
    ("answer", "24", None, COMPLETE),
    ("answer", "", None, COMPLETE),
    ("answer", "<answer>24", None, COMPLETE),
    ("answer", "24</answer>", None, COMPLETE),
    ("answer", "</answer>24<answer>", None, COMPLETE),
    ("answer", "<think><answer>1</answer></think>", None, ALOUD),
    ("answer", "<think><answer>1</answer></think><answer>2</answer>", "2", ALOUD),
    ("answer", "<answer>2</answer><think><answer>1</answer></think>", "2", ALOUD),
    ("answer", "<answer>2</answer><think><answer>1</answer>", "2", ALOUD),
    ("answer", "<think>never closed <answer>1</answer>", None, ALOUD),
    ("answer", "begun in the prompt <answer>1</answer></think>", None, ALOUD),
    ("answer", "begun in the prompt <answer>1</answer></think><answer>2</answer>", "2", ALOUD),
    ("answer", "<answer>1<think>hm</think></answer>", None, ALOUD),
    ("answer", "<think>a<think>b</think><answer>1</answer>", "1", ALOUD),
    ("answer", "<ans<think></think>wer>1</answer>", None, ALOUD),
    ("answer", "<ANSWER>1</ANSWER>", "1", LITERAL),
    ("answer", "<Answer>1</answer>", "1", LITERAL),
    ("answer", "<answer >1</answer\n>", "1", LITERAL),
    ("answer", "<answers>1</answers>", None, LITERAL),
    ("answer", "< answer>1</ answer>", None, LITERAL),
    ("answer", "&lt;answer&gt;1&lt;/answer&gt;", None, LITERAL),
]

BOXED: list[Row] = [
    ("boxed", r"\boxed{24}", "24", COMPLETE),
    ("boxed", r"$\boxed{24}$.", "24", COMPLETE),
    ("boxed", r"\fbox{24}", "24", TEX),
    ("boxed", r"\boxed{1} no, \boxed{2}", "2", COMPLETE),
    ("boxed", r"\boxed{1} no, \fbox{2}", "2", COMPLETE),
    ("boxed", r"\boxed{1} and \boxed{2", "1", COMPLETE),
    ("boxed", r"\boxed{1 and \boxed{2}", "2", COMPLETE),
    ("boxed", r"\boxed{1", None, COMPLETE),
    ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", TEX),
    ("boxed", r"\boxed{\frac{1}{\sqrt{2}}} }", r"\frac{1}{\sqrt{2}}", TEX),
    ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}", TEX),
    ("boxed", r"\boxed{1 \}", None, TEX),
    ("boxed", r"\boxed{a \\} b}", r"a \\", TEX),
    ("boxed", r"\boxed{x = \boxed{5}}", "5", "MATH: the box that begins last"),
    ("boxed", r"\boxed {5}", "5", TEX),
    ("boxed", "\\boxed{\n5\n}", "5", TEX),
    ("boxed", r"\{ \boxed{5} \}", "5", TEX),
    ("boxed", r"{ unclosed \boxed{5}", "5", TEX),
    ("boxed", r"\boxed{ { 5 }", None, TEX),
    ("boxed", r"\boxed 5", "5", TEX_BARE),
    ("boxed", r"$\boxed 12$", "12", TEX_BARE),
    ("boxed", r"It is \boxed -3.5.", "-3.5", TEX_BARE),
    ("boxed", r"It is \boxed B.", "B", TEX_BARE),
    ("boxed", r"\boxed{7}, written with the \boxed command", "7", MENTION),
    ("boxed", r"\boxed{7}, put into \boxed{}", "7", MENTION),
    ("boxed", r"put it into \boxed{}", None, MENTION),
    ("boxed", r"\\boxed{\\frac{1}{2}}", r"\\frac{1}{2}", ESCAPED),
    ("boxed", r"\boxedtext{5}", None, TEX),
    ("boxed", r"boxed{5}", None, TEX),
    ("boxed", r"\BOXED{5}", None, TEX),
    ("boxed", r"<think>\boxed{1}</think> \boxed{2} <think>\boxed{3}", "2", ALOUD),
    ("boxed", r"\boxed{1<think>}</think>", None, ALOUD),
]

JSON: list[Row] = [
    ("json:answer", '{"answer": "Paris"}', "Paris", PATH),
    ("json:answer", '{"answer": 1} {"answer": 2}', "2", PATH),
    ("json:answer", '{"answer": 1} {"other": 2}', "1", PATH),
    ("json:answer", '{"answer": 1} {"answer": null}', "1", "rule: null is no answer"),
    ("json:answer.value", '{"answer": {"value": 5, "unit": "km"}}', "5", PATH),
    ("json:answer.value", '{"answer": "value"}', None, PATH),
    ("json:results[0].x", '{"results": [{"x": "a"}, {"x": "b"}]}', "a", PATH),
    ("json:results[-1].x", '{"results": [{"x": "a"}, {"x": "b"}]}', "b", PATH),
    ("json:results[2]", '{"results": [1, 2]}', None, PATH),
    ("json:[1]", "[1, 2] and {}", "2", PATH),
    ("json:[1]", '{"1": 5}', None, PATH),
    ('json:["my key"].a-b', '{"my key": {"a-b": 1}}', "1", PATH),
    ("json:answer", '[{"answer": 1}]', None, PATH),
    ("json:answer", "", None, PATH),
    ("json:answer", "{'answer': 1}", None, RFC),
    ("json:answer", '{"answer": 1,}', None, RFC),
    ("json:answer", '{"answer": NaN}', None, RFC),
    ("json:answer", '{"answer": 01}', None, RFC),
    ("json:answer", '{"answer": "\\u00e9\\n"}', "é", RFC),
    ("json:answer", '{"answer": "\\u00zz"}', None, RFC),
    ("json:answer", '{"answer": "a", "answer": "b"}', "b", RFC),
    ("json:answer", '{"answer": 1.50e+03}', "1.50e+03", SHOWN),
    ("json:answer", '{"answer": true}', "true", SHOWN),
    ("json:answer", '{"answer": ["a", 1.0, false]}', "a, 1.0, false", SHOWN),
    ("json:answer", '{"answer": {"é": [1.50, null]}}', '{"é": [1.50, null]}', SHOWN),
    ("json:answer", '{"answer": " "}', "", SHOWN),
    ("json:answer", 'As asked:\n```json\n{\n  "answer": 5\n}\n```\nDone.', "5", PROSE),
    ("json:answer", 'The set {a, b} [see "x"] gives {"answer": 5}.', "5", PROSE),
    ("json:answer", 'print("{") gives {"answer": 5}', "5", PROSE),
    ("json:answer", '{"answer": "a } b { c"} or }', "a } b { c", PROSE),
    ("json:answer", '[1, 2, {"answer": 5} and so on', "5", BROKEN),
    ("json:answer", '{"answer": 1} {"answer": 2', "1", BROKEN),
    ("json:answer", '{"first: {"answer": 5}', "5", BROKEN),
    ("json:answer", '{"answer": 1]', None, BROKEN),
    ("json:answer", '<think>{"answer": 1}</think>{"answer": 2}', "2", ALOUD),
    ("json:answer", '{"answer":<think> 1}</think> 2}', None, ALOUD),
    (
        "json:answer",
        "[" * 200_000 + '{"answer": 5}' + "]" * 200_000,
        "5",
        "rule: brackets may be nested 100 deep",
    ),
]

REGEX: list[Row] = [
    (r"regex:\d+", "12 then 345.", "345", RE2),
    (r"regex:Answer: (.*)", "Answer: 4\nAnswer: 5 km\n", "5 km", RE2),
    (r"regex:(?i)answer is (?P<unit>\$)?(?P<answer>\d+)", "The ANSWER is $5", "5", RE2),
    (r"regex:(?:x|(y))", "y x", "y", RE2),
    (r"regex:(?s)BEGIN(.*?)END", "BEGIN a END BEGIN\nb END", "b", RE2),
    (r"regex:^A", "B A", None, RE2),
    (r"regex:\d+$", "12 é 34", "34", RE2),
    (r"regex:é(.)", "\ud800éx", "x", RE2),
    (r"regex:Answer: (.*)", "Answer: 4 <think>Answer: 5", "4", ALOUD),
    (r"regex:(a+)+$", "a" * 100 + "b", None, RE2),
    (r"regex:(?s).*", "all of it", "all of it", RE2),
    (r"regex:Answer: *(.*)", "Answer: 4\nAnswer: ", "4", RE2),
    (r"regex:x*", "yy", None, RE2),
]

LAST_LINE: list[Row] = [
    ("last_line", "one\ntwo", "two", LINE),
    ("last_line", "one\n  two  \n\n \n", "two", LINE),
    ("last_line", "one\r\ntwo\r\n", "two", LINE),
    ("last_line", "one\rtwo", "two", LINE),
    *(("last_line", f"one{mark}two", f"one{mark}two", LINE) for mark in "\x0b\x0c\x1c\x85\u2028\u2029"),
    ("last_line", "", None, LINE),
    ("last_line", " \n", None, LINE),
    ("last_line", "one\n<think>two</think>\n", "one", ALOUD),
    ("last_line", "<think>one</think>two", "two", ALOUD),
    ("last_line", "<think>one\ntwo", None, ALOUD),
]

TABLE = ANSWER + BOXED + JSON + REGEX + LAST_LINE


@pytest.mark.parametrize(("schema", "text", "answer", "source"), TABLE, ids=range(len(TABLE)))
def test_the_answer_is_the_last_complete_one_said_aloud(
    schema: str, text: str, answer: str | None, source: str
) -> None:
    assert extract(text, schema) == answer, source


def test_the_table_is_large_and_has_no_row_twice() -> None:
    rows = [(schema, text) for schema, text, _, _ in TABLE]
    assert len(rows) == len(set(rows)) >= 60


SCHEMAS = ["answer", "boxed", "json:a", "json:[0].b", r"regex:x(\d*)", "regex:.*", "last_line"]
plain = st.text(alphabet=st.characters(exclude_characters="<>", codec="utf-8"))
PIECES = [
    "<answer>",
    "</answer>",
    "<think>",
    "</think>",
    "\\boxed{",
    "\\fbox",
    "{",
    "}",
    "[",
    "]",
    '"a"',
    ":",
    ",",
    '"',
]
pieces = st.lists(st.sampled_from([*PIECES, "\\", "1", "x2", " ", "\n", "<"]), max_size=40).map("".join)


@given(pieces | st.text(), st.sampled_from(SCHEMAS))
def test_extraction_never_fails_and_leaves_no_space_around_answers(text: str, schema: str) -> None:
    answer = extract(text, schema)
    assert answer is None or answer == answer.strip()


@given(plain, plain, plain)
def test_an_answer_is_found_whatever_stands_around_it(before: str, answer: str, after: str) -> None:
    assert extract(f"{before}<answer>{answer}</answer>{after}", "answer") == answer.strip()


@given(pieces, plain)
def test_an_answer_after_the_end_of_thinking_wins_over_all_before(before: str, answer: str) -> None:
    assert extract(f"{before}</think><answer>{answer}</answer>", "answer") == answer.strip()


@given(
    pieces,
    st.sampled_from(["answer", "boxed", "json:a"]),
    st.sampled_from(["<answer>", "\\boxed{ 1", '{"a": 2']),
)
def test_a_truncated_answer_replaces_no_complete_one(text: str, schema: str, opened: str) -> None:
    assert extract(f"{text}\n{opened}", schema) == extract(text, schema)
    assert extract(f"{text}<think>{text}", schema) == extract(f"{text}<think>", schema)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=8,
)


# An opening bracket may make one value of the prose and all that follows.
@given(json_values, st.text(alphabet="abc }],:.\n", max_size=20), st.booleans())
def test_a_json_value_is_found_in_any_prose_without_quotes_and_opening_brackets(
    value: Any, prose: str, ascii_only: bool
) -> None:
    text = f"{prose}\n{json.dumps({'found': 'yes', 'value': value}, ensure_ascii=ascii_only)}\n{prose}"
    assert extract(text, "json:found") == "yes"


@given(st.lists(st.sampled_from(["{", "}", "\\{", "\\}", "x"]), max_size=12).map("".join))
def test_a_box_holds_exactly_what_its_braces_do(content: str) -> None:
    depth, closes = 0, True
    for brace in content.replace("\\{", "").replace("\\}", ""):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        closes = closes and depth >= 0
    if closes and depth == 0 and content:
        assert extract(f"\\boxed{{{content}}}", "boxed") == content
    elif closes:
        assert extract(f"\\boxed{{{content}}}", "boxed") is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schema", [*SCHEMAS, *SLOW_PATTERNS])
def test_a_long_text_is_read_in_linear_time_whatever_it_repeats(schema: str) -> None:
    for unit in UNITS:
        text = unit * (200_000 // len(unit))
        start = time.process_time()
        extract(text, schema)
        # A tenth of this is usual; a pass over the rest of the text at each character would take minutes.
        assert time.process_time() - start < 5, unit


def test_a_pattern_is_looked_for_where_final_answers_stand() -> None:
    assert extract("x1" + " " * MAX_SEARCHED, r"regex:x(\d)") is None
    assert extract("x1" + " " * (MAX_SEARCHED - 2), r"regex:x(\d)") == "1"


@pytest.mark.parametrize(
    "schema", ["answer", "boxed", "last_line", "json:a.b[0]", 'json:[-1]["a.b"]', "regex:(?i)x"]
)
def test_schemas_that_can_be_read_pass_the_check(schema: str) -> None:
    check_schema_name(schema)


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        ("anwser", "Did you mean 'answer'?"),
        ("Boxed", "Did you mean 'boxed'?"),
        ("lastline", "Did you mean 'last_line'?"),
        ("jsn:a", "Did you mean 'json:PATH'?"),
        ("regexp:x", "Did you mean 'regex:PATTERN'?"),
        ("xyz", "There are answer, boxed, last_line, json:PATH, regex:PATTERN."),
        ("", "Unknown answer schema ''"),
        ("json", "write json:PATH"),
        ("json:", "write json:PATH"),
        ("regex:", "write regex:PATTERN"),
        ("answer:", "takes no argument"),
        ("boxed:x", "takes no argument"),
        ("json:a..b", "from '..b' on"),
        ("json:.a", "from '.a' on"),
        ("json:a[x]", "from '[x]' on"),
        ("json:a.", "from '.' on"),
        ("json:[0", "from '[0' on"),
        ("json:[0]a", "from 'a' on"),
        ("regex:(", "missing )"),
        ("regex:(?=a)", "no looking ahead"),
        (r"regex:(a)\1", "no backreferences"),
        ("regex:\ud800", "cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_what_to_write(schema: str, advice: str) -> None:
    with pytest.raises(RewardError) as caught:
        check_schema_name(schema)
    assert advice in str(caught.value)
    with pytest.raises(RewardError):
        extract("", schema)


def test_nothing_printable_at_all_is_an_answer_to_no_schema() -> None:
    for schema in ("answer", "boxed", "json:a", "last_line"):
        assert extract(string.whitespace, schema) is None
