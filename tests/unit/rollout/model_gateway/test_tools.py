"""Which tools a request offers, and which of them it wants the model to call."""

import re
from typing import Any

import pytest

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import anthropic, chat, responses, tools
from aworld_train.rollout.model_gateway.dialect import Surroundings
from aworld_train.rollout.model_gateway.tools import ToolChoice
from aworld_train.rollout.response_constraints import RequestRules

STRICT, RELAXED = RequestRules(strict=True), RequestRules()
FUNCTIONS: Any = [{"type": "function", "function": {"name": name}} for name in ("add", "say")]
ADD: Any = {"type": "function", "function": {"name": "add"}}
SAY: Any = {"type": "function", "name": "say"}  # as in responses


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        (None, ToolChoice(True, False, ())),
        ("auto", ToolChoice()),
        ("none", ToolChoice(may_call=False)),
        ("required", ToolChoice(True, True)),
        (ADD, ToolChoice(True, True, ("add",))),
        (SAY, ToolChoice(True, True, ("say",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ADD, SAY]}},
            ToolChoice(True, True, ("add", "say")),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [SAY]}, ToolChoice(True, False, ("say",))),
    ],
)
def test_a_choice_is_a_wish_unless_requests_are_strict(value: Any, choice: ToolChoice) -> None:
    assert tools.choice(value, FUNCTIONS, RELAXED) == choice
    if value in (None, "auto", "none"):
        assert tools.choice(value, FUNCTIONS, STRICT) == tools.choice(value, (), STRICT) == choice
    else:
        with pytest.raises(RequestRefused, match="a forced call would change") as caught:
            tools.choice(value, FUNCTIONS, STRICT)
        assert caught.value.parameter == "tool_choice"


@pytest.mark.parametrize(
    ("value", "functions", "message", "parameter"),
    [
        ("required", (), "tool_choice: there are no tools among `tools`", "tool_choice"),
        (ADD, (), "tool_choice: there is no tool 'add' among `tools`", "tool_choice"),
        (
            {"type": "function", "name": "x" * 101},
            FUNCTIONS,
            f"tool_choice: there is no tool {'x' * 100!r} among `tools`",
            "tool_choice",
        ),
        (
            {"type": "allowed_tools", "tools": [ADD, {"name": "no"}]},
            FUNCTIONS,
            "tool_choice: there is no tool 'no' among `tools`",
            "tool_choice",
        ),
        (
            {"type": "allowed_tools", "tools": [ADD, {"name": ""}]},
            FUNCTIONS,
            "tool_choice.tools[1].name must be a string that is not empty, and is a string",
            "tool_choice.tools[1].name",
        ),
        (
            1,
            FUNCTIONS,
            "tool_choice must be 'auto', 'none', 'required' or an object, and is 1",
            "tool_choice",
        ),
        ({"type": "custom"}, FUNCTIONS, f"tool_choice: {tools._OTHER_KIND}", "tool_choice"),
    ],
)
def test_a_choice_of_what_is_not_offered_is_refused(
    value: Any, functions: Any, message: str, parameter: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        tools.choice(value, functions, RELAXED)
    assert (str(caught.value), caught.value.parameter) == (message, parameter)


def test_one_call_at_most_is_a_wish_where_tools_are_offered() -> None:
    cases = [(requested, functions) for requested in (False, True) for functions in ((), FUNCTIONS)]
    assert [tools.one_call(*case[:1], "p", case[1], RELAXED) for case in cases] == [False, False, False, True]
    assert [tools.one_call(*case[:1], "p", case[1], STRICT) for case in cases[:3]] == [False] * 3
    with pytest.raises(RequestRefused, match=r"^p: the model is not kept") as caught:
        tools.one_call(True, "p", FUNCTIONS, STRICT)
    assert caught.value.parameter == "p"


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        (
            {"name": "a", "description": "", "strict": True},
            {"name": "a", "parameters": {"type": "object", "properties": {}}},
        ),
        (
            {"name": "a", "description": "b", "schema": {"anyOf": [{"description": ""}, 1]}},
            {"name": "a", "description": "b", "parameters": {"anyOf": [{}, 1]}},
        ),
    ],
)
def test_a_function_has_a_name_parameters_and_the_description_that_it_has(tool: Any, function: Any) -> None:
    assert tools.function(tool, "tools[0]", "schema") == {"type": "function", "function": function}


@pytest.mark.parametrize(
    ("tool", "parameter"), [({}, "name"), ({"name": "a", "description": 1}, "description"),
                            ({"name": "a", "parameters": []}, "parameters")]
)  # fmt: skip
def test_a_function_is_refused_by_what_is_wrong_in_it(tool: Any, parameter: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        tools.function(tool, "tools[0]")
    assert caught.value.parameter == f"tools[0].{parameter}"


def test_equal_tools_are_read_once() -> None:
    def read(tool: Any, where: str) -> Any:
        return {where: tool}

    def offered(body: Any, last: tools.OfferedTools | None) -> tools.OfferedTools:
        return tools.offered(body, last, read, (), RELAXED)

    first = offered({"tools": [1, 2]}, None)
    assert first.functions == ({"tools[0]": 1}, {"tools[1]": 2})
    assert offered({"tools": first.sent}, first) is first
    assert offered({"tools": [1, 2]}, first) is first
    assert offered({"tools": [True, 2]}, first).functions[0] == {"tools[0]": True}
    assert offered({}, first).functions == ()


@pytest.mark.parametrize(
    ("dialect", "own", "others"),
    [
        (chat, {"type": "function", "function": {"name": "add"}}, ["custom", "x"]),
        (
            responses,
            {"type": "function", "name": "add"},
            ["web_search", "custom", "local_shell", "tool_search", "mcp", "namespace"],
        ),
        (anthropic, {"name": "add"}, ["web_search_20250305", "bash_20250124"]),
    ],
)
def test_tools_that_are_no_functions_are_left_out_which_the_log_says_once(
    dialect: Any, own: Any, others: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    tools._note_left_out.cache_clear()
    sent = [*({"type": other, "name": other} for other in others), own]
    body = {"messages": [{"role": "user", "content": "q"}], "input": "q", "tools": sent}
    for _ in range(2):
        parsed = dialect.read(body, None, Surroundings(RELAXED))
    assert [function["function"]["name"] for function in parsed.request.tools] == ["add"]
    logged_kinds = [re.findall("'(.*)'", record.getMessage()) for record in caplog.records]
    assert logged_kinds == [[other] for other in others if other != "namespace"]
    with pytest.raises(RequestRefused, match=r"^tools: none of them is a function \('.*'\), which alone are"):
        dialect.read({**body, "tools": sent[:-1]}, None, Surroundings(RELAXED))
    with pytest.raises(RequestRefused, match=r"only functions are possible; with `agent.requests: relaxed`"):
        dialect.read(body, None, Surroundings(STRICT))
