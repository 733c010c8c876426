"""Numbers that Word makes when it shows a document are in the text, for headings and for lists."""

from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from gaia_tools.documents_docx import server
from gaia_tools.office_model import written_number

from tests.conftest import content

READ = "extract_docx_content"
Lines = list[tuple[str, int | None]]


def _level(depth: int, kind: str, text: str, more: str = "") -> str:
    inner = f'<w:start w:val="1"/><w:numFmt w:val="{kind}"/>{more}<w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{depth}">{inner}</w:lvl>'


def _write(path: Path, levels: str, lines: Lines, overrides: str = "", heading: bool = False) -> None:
    """A document whose lines are in a list, each at a depth; those without one are of no list.

    Lines that begin with an exclamation mark are of a second list of the same kind.
    """
    document = docx.Document()
    numbering = document.part.numbering_part.element
    first_list = numbering.findall(f"{{{numbering.nsmap['w']}}}num")[0]
    first_list.addprevious(
        parse_xml(f'<w:abstractNum {nsdecls("w")} w:abstractNumId="99">{levels}</w:abstractNum>')
    )
    for number, inner in ((98, ""), (99, overrides)):
        xml = f'<w:num {nsdecls("w")} w:numId="{number}"><w:abstractNumId w:val="99"/>{inner}</w:num>'
        numbering.append(parse_xml(xml))
    for text, depth in lines:
        style = f"Heading {depth + 1}" if heading and depth is not None else None
        properties = document.add_paragraph(text.lstrip("!"), style=style)._p.get_or_add_pPr()
        if depth is not None:
            properties.get_or_add_numPr().get_or_add_ilvl().val = depth
            properties.numPr.get_or_add_numId().val = 99 if text.startswith("!") else 98
    document.save(str(path))


async def _shown(workspace: Path) -> str:
    return str((await content(server, READ, file_path="a.docx"))["content"])


@pytest.mark.parametrize(
    "levels, lines, expected",
    [
        ([("lowerLetter", "%1)")], [("x", 0), ("y", 0)], "- a) x\n- b) y"),
        ([("upperRoman", "%1.")], [("x", 0), ("between", None), ("y", 0)], "- I. x\n\nbetween\n\n- II. y"),
        ([("decimal", "%1.")], [("x", 0), ("y", 0)], "1. x\n2. y"),
        ([("decimal", "%1.")], [("x", 0), ("", 0), ("y", 0)], "- 1. x\n- 3. y"),
        ([("decimal", "%1.")], [("x", 0), ("between", None), ("y", 0)], "- 1. x\n\nbetween\n\n- 2. y"),
        ([("decimal", "§ %1")], [("x", 0)], "- § 1 x"),
        ([("bullet", "o")], [("x", 0)], "- x"),
        (
            [("decimal", "%1."), ("decimal", "%1.%2")],
            [("x", 0), ("y", 1), ("z", 1), ("w", 0), ("v", 1)],
            "1. x\n   - 1.1 y\n   - 1.2 z\n2. w\n   - 2.1 v",
        ),
        ([("decimalZero", "%1")], [("x", 0)], "- 01 x"),
    ],
)
async def test_lists_have_the_numbers_that_word_shows(
    levels: list[tuple[str, str]], lines: Lines, expected: str, workspace: Path
) -> None:
    made = "".join(_level(depth, kind, text) for depth, (kind, text) in enumerate(levels))
    _write(workspace / "a.docx", made, lines)
    assert (await _shown(workspace)).strip() == expected


async def test_headings_have_their_numbers(workspace: Path) -> None:
    levels = _level(0, "upperRoman", "Article %1.") + _level(1, "decimal", "%1.%2", "<w:isLgl/>")
    lines: Lines = [("Scope", 0), ("Words", 1), ("text", None), ("More", 1), ("Ends", 0), ("Last", 1)]
    _write(workspace / "a.docx", levels, lines, heading=True)
    shown = (await content(server, READ, file_path="a.docx", include_structure=True))["content"]
    for line in ("# Article I. Scope", "## 1.1 Words", "## 1.2 More", "# Article II. Ends", "## 2.1 Last"):
        assert f"\n{line}\n" in f"{shown}\n"
    assert "- Article I. Scope" in shown


async def test_a_list_of_another_number_goes_on_or_begins_as_it_says(workspace: Path) -> None:
    override = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'
    lines: Lines = [("a", 0), ("b", 0), ("!c", 0), ("!d", 0), ("e", 0)]
    _write(workspace / "a.docx", _level(0, "decimal", "%1."), lines, override)
    assert (await _shown(workspace)).strip() == "- 1. a\n- 2. b\n- 7. c\n- 8. d\n- 9. e"


async def test_the_numbering_of_a_heading_may_be_that_of_its_style(workspace: Path) -> None:
    _write(workspace / "a.docx", _level(0, "decimal", "%1", '<w:pStyle w:val="Heading1"/>'), [])
    document = docx.Document(str(workspace / "a.docx"))
    properties = document.styles["Heading 1"].element.get_or_add_pPr()
    properties.get_or_add_numPr().get_or_add_numId().val = 98
    for text in ("Aims", "Means"):
        document.add_paragraph(text, style="Heading 1")
    document.save(str(workspace / "a.docx"))
    assert "# 1 Aims\n\n# 2 Means" in await _shown(workspace)


def test_letters_go_on_after_z() -> None:
    assert [written_number(number, "lower-alpha") for number in (26, 27, 28, 703)] == ["z", "aa", "ab", "aaa"]
    assert written_number(28, "upper-alpha", repeats_letters=True) == "BB"
    assert written_number(0, "lower-alpha") == "0"
