"""What is long stands in a result's text alone; what is short, in the structured content as well."""

import json
from pathlib import Path
from typing import Any

import pytest
from gaia_tools import documents_csv, documents_html, documents_txt, documents_zip, python_code, terminal
from gaia_tools.results import MAX_CHARACTERS, MAX_FACT_CHARS, MAX_LIST_CHARS, answer
from mcp.server.fastmcp import FastMCP

from tests.conftest import call, text

LINES = "".join(f"line {number} of many\n" for number in range(3000))
ROWS = "name,size\n" + "".join(f"thing {number},{number}\n" for number in range(3000))


@pytest.fixture(autouse=True)
def files(workspace: Path) -> None:
    (workspace / "a.txt").write_text(LINES)
    (workspace / "a.csv").write_text(ROWS)
    (workspace / "a.html").write_text(f"<title>Lines</title><pre>{LINES}</pre>")


@pytest.mark.parametrize(
    ("server", "tool", "arguments", "facts"),
    [
        (documents_txt.server, "extract_text_content", {"file_path": "a.txt"}, {"lines": 3000}),
        (documents_csv.server, "extract_csv_content", {"file_path": "a.csv"}, {"rows": 3001, "columns": 2}),
        (documents_html.server, "extract_html_content", {"file_path": "a.html"}, {"title": "Lines"}),
        (terminal.server, "execute_command", {"command": "cat a.txt"}, {"exit_code": 0}),
        (
            python_code.server,
            "run_python_code",
            {"code": "print(open('a.txt').read())"},
            {"exit_code": 0, "files": []},
        ),
    ],
)
async def test_a_long_text_is_said_once_beside_its_facts(
    server: FastMCP, tool: str, arguments: dict[str, Any], facts: dict[str, Any]
) -> None:
    result = await call(server, tool, **arguments)
    assert len(text(result)) > 15_000
    assert result.structuredContent is not None
    assert facts.items() <= result.structuredContent.items()
    assert len(json.dumps(result.structuredContent)) < 1_000


async def test_json_is_all_there_is_and_said_once() -> None:
    result = await call(documents_csv.server, "extract_csv_content", file_path="a.csv", output_format="json")
    found = json.loads(text(result))
    assert (found["rows"], found["content"][1]) == (3001, ["thing 0", "0"])
    assert result.structuredContent is None


async def test_a_long_list_of_names_is_said_once(workspace: Path) -> None:
    for number in range(200):
        (workspace / f"file-{number}").touch()
    await call(terminal.server, "execute_command", command="tar czf a.tgz file-*")
    result = await call(documents_zip.server, "list_archive", file_path="a.tgz")
    assert "file-199" in text(result)
    assert result.structuredContent is not None
    assert result.structuredContent["files"] == 200 and "entries" not in result.structuredContent


@pytest.mark.parametrize(
    ("value", "is_fact"),
    [
        ("x" * MAX_FACT_CHARS, True),
        ("x" * (MAX_FACT_CHARS + 1), False),
        ([{"note": "x" * (MAX_FACT_CHARS + 1)}], False),
        ({"tags": ("x" * MAX_FACT_CHARS, 1, None)}, True),
        (["x" * 90] * (MAX_LIST_CHARS // 90), False),
        (10**MAX_FACT_CHARS, True),
        (None, True),
    ],
)
def test_what_is_short_in_all_its_parts_is_a_fact(value: Any, is_fact: bool) -> None:
    result = answer("y" * MAX_CHARACTERS, {"value": value, "other": 1})
    assert result.structuredContent == ({"value": value, "other": 1} if is_fact else {"other": 1})
