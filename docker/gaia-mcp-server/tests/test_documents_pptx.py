"""Slides are read in their order, with all that is on them; damaged and hostile files end in an error."""

import datetime
import lzma
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pptx
import pytest
from gaia_tools.documents_pptx import server
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.conftest import call, content, refusal, text
from tests.documents_made import as_programs_write_it, laughs, picture, rewritten

READ = "extract_pptx_content"
SAMPLES = Path(__file__).parent / "samples"
_BOX = (Inches(1), Inches(2), Inches(4), Inches(3))


def sample(kind: str, path: Path) -> None:
    if kind == "ppt":
        path.write_bytes(lzma.decompress((SAMPLES / "deck.ppt.xz").read_bytes()))
    else:
        shutil.copy(SAMPLES / f"deck.{kind}", path)


@pytest.fixture
def deck(workspace: Path) -> Path:
    show = pptx.Presentation()
    for number in range(1, 11):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"Point of {number}"
        slide.notes_slide.notes_text_frame.text = f"Say {number} aloud."
    table = show.slides[1].shapes.add_table(2, 3, *_BOX).table
    for number, cell in enumerate(table.iter_cells()):
        cell.text = f"cell {number}"
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(0, 0).text = "wide"
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("2023", (1.5, 2))
    data.add_series("2024", (3, None))
    show.slides[2].shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *_BOX, data)
    group = show.slides[3].shapes.add_group_shape().shapes.add_group_shape()
    group.shapes.add_textbox(*_BOX).text_frame.text = "In a group of a group"
    shown = show.slides[4].shapes.add_picture(picture(), *_BOX)
    shown._element._nvXxPr.cNvPr.set("descr", "A red box")
    show.slides[5]._element.set("show", "0")
    level = show.slides[6].placeholders[1].text_frame.add_paragraph()
    level.text, level.level = "Below it", 1
    show.save(workspace / "deck.pptx")
    return workspace / "deck.pptx"


async def test_ten_slides_are_read_in_order_with_their_notes(deck: Path) -> None:
    result = await call(server, READ, file_path="deck.pptx")
    shown = text(result)
    assert shown.startswith("deck.pptx: 10 slides, of which 1 hidden")
    slides = shown.split("## Slide ")[1:]
    assert len(slides) == 10
    for number, slide in enumerate(slides, 1):
        assert slide.startswith(f"{number}: Title {number}")
        assert f"Point of {number}" in slide
        assert f"Notes: Say {number} aloud." in slide
        assert slide.count("Title") == 1
    assert "| wide | wide | cell 2 |\n| --- | --- | --- |\n| cell 3 | cell 4 | cell 5 |" in slides[1]
    assert "Chart (column clustered)" in slides[2]
    assert "|  | 2023 | 2024 |\n| --- | --- | --- |\n| East | 1.5 | 3 |\n| West | 2 |  |" in slides[2]
    assert "In a group of a group" in slides[3]
    assert "[Picture: A red box]" in slides[4]
    assert "(hidden)" in slides[5]
    assert "\n  - Below it" in slides[6]


@pytest.mark.parametrize("kind", ["odp", "ppt"])
async def test_older_and_open_presentations_are_read_slide_by_slide(kind: str, workspace: Path) -> None:
    sample(kind, workspace / "deck")
    result = await call(server, READ, file_path="deck", include_structure=True)
    shown = text(result)
    slides = shown.split("## Slide ")[1:]
    assert len(slides) == 3
    for number, slide in enumerate(slides, 1):
        assert slide.startswith(f"{number}: Title {number}")
        assert f"- Point of {number}" in slide
        assert f"Notes: Say {number} aloud." in slide
        assert "number>" not in slide
    assert "Below it" in slides[0]
    assert all(f"cell {number}" in slides[1] for number in range(4))
    assert "In a box — мост" in slides[2]
    found = result.structuredContent
    assert found is not None
    assert (found["format"], found["slides"]) == (kind, 3)
    assert found["structure"][0] == "- Slide 1: Title 1: " + ("2 lists" if kind == "odp" else "1 list")
    if kind == "odp":
        assert "| cell 0 | cell 1 |\n| --- | --- |\n| cell 2 | cell 3 |" in slides[1]
        assert found["hidden_slides"] == [3]
        assert "Title 3 (hidden)" in slides[2]
    without = await content(server, READ, file_path="deck", extract_notes=False)
    assert "aloud" not in without["content"]


@pytest.mark.parametrize("kind", ["odp", "ppt"])
async def test_damage_to_older_and_open_presentations_ends_in_a_result_or_an_error(
    kind: str, workspace: Path
) -> None:
    sample(kind, workspace / "deck")
    held = (workspace / "deck").read_bytes()
    for seed in range(4):
        chance = random.Random(seed)
        damaged = bytearray(held)
        for _ in range(1 + 20 * seed):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        (workspace / "deck").write_bytes(damaged[: chance.choice([len(damaged), len(damaged) * 3 // 4])])
        assert text(await call(server, READ, file_path="deck"))


def chart_of(
    path: Path, categories: list[Any], number_format: str | None = None, axis_format: str | None = None
) -> None:
    show = pptx.Presentation()
    data = CategoryChartData(**({"number_format": "General"} if number_format is None else {}))
    data.categories = categories
    data.add_series("sold", range(len(categories)))
    frame = show.slides.add_slide(show.slide_layouts[6]).shapes.add_chart(XL_CHART_TYPE.LINE, *_BOX, data)
    space = frame.chart._chartSpace
    for code in space.xpath(".//c:cat//c:formatCode"):
        code.text = number_format or code.text
    for axis in space.xpath(".//c:dateAx/c:numFmt | .//c:catAx/c:numFmt"):
        axis.set("formatCode", axis_format or axis.get("formatCode"))
        axis.set("sourceLinked", "0" if axis_format else "1")
    show.save(path)


@pytest.mark.parametrize(
    ("number_format", "axis_format", "shown"),
    [
        (None, None, ["2024-02-29", "2024-03-01"]),
        ("d mmm yy", None, ["2024-02-29", "2024-03-01"]),
        ("General", "mmm yyyy", ["2024-02-29", "2024-03-01"]),
        ("General", "General", ["45351.0", "45352.0"]),
        ("0.00", "0", ["45351.0", "45352.0"]),
    ],
)
async def test_dates_of_charts_are_dates_where_a_format_says_so(
    workspace: Path, number_format: str | None, axis_format: str | None, shown: list[str]
) -> None:
    days = [datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
    chart_of(workspace / "a.pptx", days, number_format, axis_format)
    found = (await content(server, READ, file_path="a.pptx"))["content"]
    assert f"| {shown[0]} | 0 |\n| {shown[1]} | 1 |" in found


async def test_dates_of_charts_have_times_and_count_from_1904_where_they_do(workspace: Path) -> None:
    chart_of(workspace / "a.pptx", [45351.25, 45352.5], "yyyy-mm-dd hh:mm")
    assert "| 2024-02-29T06:00:00 | 0 |" in (await content(server, READ, file_path="a.pptx"))["content"]
    chart_of(workspace / "b.pptx", [datetime.date(2024, 2, 29)])
    part = "ppt/charts/" + next(
        Path(name).name for name in zipfile.ZipFile(workspace / "b.pptx").namelist() if "charts/chart" in name
    )
    held = zipfile.ZipFile(workspace / "b.pptx").read(part)
    assert b'<c:date1904 val="0"/>' in held
    rewritten(workspace / "b.pptx", part, held.replace(b'<c:date1904 val="0"/>', b'<c:date1904 val="1"/>'))
    assert "| 2028-03-01 | 0 |" in (await content(server, READ, file_path="b.pptx"))["content"]


async def test_years_of_charts_stay_numbers(workspace: Path) -> None:
    chart_of(workspace / "a.pptx", [2019, 2020], "General")
    assert "| 2019" in (await content(server, READ, file_path="a.pptx"))["content"]


async def test_notes_may_be_left_out_and_slides_listed(deck: Path) -> None:
    found = await content(server, READ, file_path="deck.pptx", extract_notes=False, include_structure=True)
    assert "aloud" not in found["content"]
    assert found["slides"] == 10
    assert found["hidden_slides"] == [6]
    assert found["structure"][1] == "- Slide 2: Title 2: 1 text, 1 table"


async def test_pictures_are_written_into_the_workspace(deck: Path, workspace: Path) -> None:
    found = await content(server, READ, file_path="deck.pptx", extract_images=True)
    assert "![A red box](deck_images/image1.png)" in found["content"]
    assert (workspace / "deck_images/image1.png").read_bytes() == picture().getvalue()


async def test_a_link_to_elsewhere_does_not_lead_pictures_out(deck: Path, workspace: Path) -> None:
    (workspace / "deck_images").symlink_to("/tmp")
    assert "outside" in await refusal(server, READ, file_path="deck.pptx", extract_images=True)


async def test_damaged_protected_and_other_files_are_refused(deck: Path, workspace: Path) -> None:
    from msoffcrypto.format.ooxml import OOXMLFile

    with deck.open("rb") as plain, (workspace / "locked.pptx").open("wb") as locked:
        OOXMLFile(plain).encrypt("sesame", locked)
    assert "protected with a password" in await refusal(server, READ, file_path="locked.pptx")
    assert (await content(server, READ, file_path="locked.pptx", password="sesame"))["slides"] == 10
    (workspace / "cut.pptx").write_bytes((workspace / "deck.pptx").read_bytes()[:5000])
    assert "damaged or incomplete" in await refusal(server, READ, file_path="cut.pptx")
    (workspace / "zero.pptx").touch()
    assert "0 bytes" in await refusal(server, READ, file_path="zero.pptx")
    (workspace / "page.pptx").write_text("<!DOCTYPE html><html></html>")
    assert "Use extract_html_content" in await refusal(server, READ, file_path="page.pptx")
    rewritten(deck, "ppt/presentation.xml", b"<other/>")
    assert "damaged" in await refusal(server, READ, file_path="deck.pptx")


@pytest.mark.parametrize("part", ["ppt/slides/slide1.xml", "ppt/presentation.xml", "[Content_Types].xml"])
async def test_xml_that_declares_entities_is_refused(deck: Path, part: str) -> None:
    rewritten(deck, part, laughs())
    assert "declares XML entities" in await refusal(server, READ, file_path="deck.pptx")


async def test_exponents_and_equations_of_slides_are_text(workspace: Path) -> None:
    from lxml import etree

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    for frame in (slide.shapes.title.text_frame, slide.notes_slide.notes_text_frame):
        frame.text = "10"
        run = frame.paragraphs[0].add_run()
        run.text = "-3"
        run.font._element.set("baseline", "30000")
    box = slide.shapes.add_textbox(0, 0, 9, 9)
    names = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    holder = f'<a14:m xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" {names}>{{}}</a14:m>'
    equation = (
        "<m:oMathPara><m:oMath><m:rad><m:e><m:r><m:t>7</m:t></m:r></m:e></m:rad></m:oMath></m:oMathPara>"
    )
    box.text_frame.paragraphs[0]._p.append(etree.fromstring(holder.format(equation)))
    # PowerPoint writes a shape with an equation twice: as it is, and as a picture for older programs.
    compatible = etree.fromstring(
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        '<mc:Choice Requires="a14"/><mc:Fallback/></mc:AlternateContent>'
    )
    box._element.addprevious(compatible)
    compatible[0].append(box._element)
    show.save(workspace / "a.pptx")
    as_programs_write_it(workspace / "a.pptx")
    shown = (await content(server, READ, file_path="a.pptx", output_format="json"))["content"]
    assert shown == "## Slide 1: 10^-3\n\n$\\sqrt{7}$\n\nNotes: 10^-3"
