"""Which tools an agent sees, and what of their descriptions."""

from typing import Any

import pytest

from aworld_train.errors import UsageError
from aworld_train.rollout.tool_selection import ALL_TOOLS, ToolSelection, first_sentence

NAMES = ["read_csv", "read_pdf", "run_python", "search"]


def shown(**selection: Any) -> list[str]:
    chosen = ToolSelection(**selection)
    assert [tool["name"] for tool in chosen.apply({"name": name} for name in NAMES)] == [
        name for name in NAMES if chosen.shows(name)
    ]
    return [name for name in NAMES if chosen.shows(name)]


def test_patterns_choose_and_exclusion_wins() -> None:
    assert shown() == NAMES
    assert shown(include=("read_*", "search")) == ["read_csv", "read_pdf", "search"]
    assert shown(exclude=("r*",)) == ["search"]
    assert shown(include=("read_*",), exclude=("*pdf",)) == ["read_csv"]
    assert shown(include=("READ_*",)) == []


def test_a_name_that_matches_nothing_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"agent.tools.exclude names 'serch', .* Did you mean 'search'\?"):
        ToolSelection(include=("read_*",), exclude=("serch",)).check(NAMES)
    with pytest.raises(UsageError, match=r"agent.tools.include names 'zzz\*', .* They are read_csv, "):
        ToolSelection(include=("zzz*",)).check(NAMES)
    ToolSelection(include=("read_*", "search"), exclude=("*pdf",)).check(NAMES)


def test_a_selection_of_no_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves the agent none"):
        ToolSelection(exclude=("*",)).check(NAMES)
    ToolSelection(short_descriptions=True).check([])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Reads a file. Then it ends.", "Reads a file."),
        ("Reads a file, e.g. notes.txt, of 1.5 MB! Or more", "Reads a file, e.g. notes.txt, of 1.5 MB!"),
        ("Reads a file\n\nArgs:\n  path: where", "Reads a file"),
        ("Reads\n  a file.\nReturns: text", "Reads a file."),
        ("  One line", "One line"),
        ("", ""),
    ],
)
def test_a_short_description_is_the_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first


@pytest.mark.parametrize("form", ["mcp", "function"])
def test_descriptions_are_shortened_at_every_depth_and_nothing_else(form: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "The text. It may be long.", "default": "A. B"},
            "filters": {"type": "array", "items": {"description": "A filter. Or not.", "enum": ["X. Y"]}},
        },
        "examples": [{"description": "One. Two."}],
    }
    name = "inputSchema" if form == "mcp" else "parameters"
    tool: dict[str, Any] = {"name": "t", "description": "Does it. Well.", name: schema}
    wrapped = tool if form == "mcp" else {"type": "function", "function": tool}
    (short,) = ToolSelection(short_descriptions=True).apply([wrapped])
    found = short if form == "mcp" else short["function"]
    assert found["description"] == "Does it."
    properties = found[name]["properties"]
    assert properties["description"] == {"type": "string", "description": "The text.", "default": "A. B"}
    assert properties["filters"]["items"] == {"description": "A filter.", "enum": ["X. Y"]}
    assert found[name]["examples"] == schema["examples"]
    assert tool["description"] == "Does it. Well."  # what others see is unchanged


def test_without_a_selection_tools_are_as_they_are() -> None:
    tool = {"name": "t", "description": "One. Two."}
    assert ALL_TOOLS.changes_nothing
    assert ALL_TOOLS.apply([tool]) == [tool]
