"""What holds for every document server: its tools are described, and no damage to a file hangs or ends it."""

import importlib
import random
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from mcp.server.fastmcp import FastMCP
from reportlab.pdfgen.canvas import Canvas

from tests.conftest import call, text

SERVERS = {
    "csv": "extract_csv_content",
    "docx": "extract_docx_content",
    "pptx": "extract_pptx_content",
    "pdf": "convert_document_to_markdown",
    "txt": "extract_text_content",
    "html": "extract_html_content",
    "epub": "extract_epub_content",
    "zip": "list_archive",
}


def server(kind: str) -> FastMCP:
    found = importlib.import_module(f"gaia_tools.documents_{kind}").server
    assert isinstance(found, FastMCP)
    return found


@pytest.mark.parametrize("kind", SERVERS)
async def test_every_tool_and_parameter_is_described(kind: str) -> None:
    tools = {tool.name: tool for tool in await server(kind).list_tools()}
    assert {SERVERS[kind], "list_supported_formats"} <= tools.keys()
    for tool in tools.values():
        assert tool.description
        for name, parameter in tool.inputSchema["properties"].items():
            assert parameter.get("description"), f"{tool.name}: {name}"


@pytest.mark.parametrize("kind", SERVERS)
async def test_formats_are_listed(kind: str) -> None:
    assert f".{kind}" in text(await call(server(kind), "list_supported_formats"))


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_is_not_there_or_outside_is_refused(kind: str, workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc/passwd")
    (workspace / "there.txt").write_text("x")
    for name, said in {
        "none": "There is no file none. There is: ",
        "/etc/passwd": "outside",
        "../x": "outside",
        "out": "outside",
        ".": "no file",
        "\0": "cannot be a file's name",
    }.items():
        result = await call(server(kind), SERVERS[kind], file_path=name)
        assert result.isError
        assert said in text(result)


def made(kind: str, path: Path) -> None:
    if kind == "docx":
        word = docx.Document()
        word.add_heading("Heading")
        word.add_table(2, 2).cell(0, 0).text = "cell"
        word.save(path)
    elif kind == "csv":
        book = openpyxl.Workbook()
        for number in range(50):
            book.active.append([number, f"value {number}"])
        book.save(path)
    elif kind == "pptx":
        deck = pptx.Presentation()
        deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "Title"
        deck.save(path)
    else:
        canvas = Canvas(str(path))
        canvas.drawString(100, 100, "Some text on a page.")
        canvas.save()


@pytest.mark.parametrize("kind", ["csv", "docx", "pptx", "pdf"])
@pytest.mark.parametrize("seed", range(4))
async def test_damage_anywhere_ends_in_a_result_or_an_error(kind: str, seed: int, workspace: Path) -> None:
    chance = random.Random(seed)
    made(kind, workspace / "a")
    held = bytearray((workspace / "a").read_bytes())
    for _ in range(2 + 10 * seed):
        held[chance.randrange(len(held))] = chance.randrange(256)
    (workspace / "a").write_bytes(held[: chance.choice([len(held), len(held) * 3 // 4])])
    result = await call(server(kind), SERVERS[kind], file_path="a")
    assert text(result)
