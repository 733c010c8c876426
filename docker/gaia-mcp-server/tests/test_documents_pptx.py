"""Slides are read in their order, with all that is on them; damaged and hostile files end in an error."""

from pathlib import Path

import pptx
import pytest
from gaia_tools.documents_pptx import server
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.conftest import call, content, refusal, text
from tests.documents_made import laughs, picture, rewritten

READ = "extract_pptx_content"
_BOX = (Inches(1), Inches(2), Inches(4), Inches(3))


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
    assert "an HTML page, not a PowerPoint file. Use extract_html_content" in await refusal(
        server, READ, file_path="page.pptx"
    )
    rewritten(deck, "ppt/presentation.xml", b"<other/>")
    assert "damaged" in await refusal(server, READ, file_path="deck.pptx")


@pytest.mark.parametrize("part", ["ppt/slides/slide1.xml", "ppt/presentation.xml", "[Content_Types].xml"])
async def test_xml_that_declares_entities_is_refused(deck: Path, part: str) -> None:
    rewritten(deck, part, laughs())
    assert "declares XML entities" in await refusal(server, READ, file_path="deck.pptx")
