"""Word files are read in their order, with all that stands in them; damaged and hostile ones end in an error."""

import random
import re
import shutil
import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from gaia_tools.documents_csv import server as csv_server
from gaia_tools.documents_docx import server

from tests.conftest import call, content, refusal, text
from tests.documents_made import as_programs_write_it, laughs, picture, rewritten

READ = "extract_docx_content"
SAMPLES = Path(__file__).parent / "samples"
_NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


@pytest.fixture
def letter(workspace: Path) -> Path:
    word = docx.Document()
    word.core_properties.title, word.core_properties.author = "A letter", "Ann"
    word.sections[0].header.paragraphs[0].text = "Confidential"
    word.sections[0].footer.paragraphs[0].text = "Page of a letter"
    word.add_heading("Letter", 0)
    word.add_heading("First part", 1)
    paragraph = word.add_paragraph("Before the table, ")
    paragraph.add_run("bold").bold = True
    word.add_comment(paragraph.runs, text="Is it so?", author="Bob")
    table = word.add_table(3, 3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"r{row}c{column}"
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide | one"
    table.cell(1, 2).merge(table.cell(2, 2)).text = "high"
    word.add_heading("Second part", 2)
    word.add_paragraph("first", style="List Number")
    word.add_paragraph("second", style="List Number")
    word.add_paragraph("point", style="List Bullet")
    word.add_picture(picture())
    # A form's field, and an insertion that nobody has accepted yet: python-docx itself shows neither.
    for inner in (
        "<w:sdt {}><w:sdtContent><w:p><w:r><w:t>Filled in</w:t></w:r></w:p></w:sdtContent></w:sdt>",
        '<w:p {}><w:ins w:id="1" w:author="Bob"><w:r><w:t>Inserted</w:t></w:r></w:ins></w:p>',
    ):
        word.element.body.insert(len(word.element.body) - 1, parse_xml(inner.format(_NAMES)))
    word.save(workspace / "letter.docx")
    return workspace / "letter.docx"


async def test_all_is_read_in_its_order(letter: Path) -> None:
    result = await call(server, READ, file_path="letter.docx")
    shown = text(result)
    parts = [
        "[Header: Confidential]",
        "# Letter",
        "# First part",
        "Before the table, **bold**",
        "| wide \\| one | wide \\| one | r0c2 |\n| --- | --- | --- |\n| r1c0 | r1c1 | high |\n| r2c0 | r2c1 | high |",
        "## Second part",
        "1. first\n2. second",
        "- point",
        "[Picture: picture]",
        "Filled in",
        "Inserted",
        "Is it so?",
        "[Footer: Page of a letter]",
    ]
    places = [shown.find(part) for part in parts]
    assert -1 not in places, (parts[places.index(-1)], shown)
    assert places == sorted(places)
    assert "Comment [Bob 1]" in shown
    assert result.structuredContent is not None
    assert result.structuredContent["title"] == "A letter"
    assert result.structuredContent["author"] == "Ann"


@pytest.mark.parametrize("kind", ["odt", "doc", "rtf"])
async def test_older_and_open_formats_are_read_with_all_that_stands_in_them(
    kind: str, workspace: Path
) -> None:
    shutil.copy(SAMPLES / f"letter.{kind}", workspace / "letter")
    result = await call(server, READ, file_path="letter", include_structure=True, extract_images=True)
    shown = text(result)
    parts = [
        "Structure: 3 headings, 1 table, 1 image",
        "# Bridge repair",
        "The old bridge — „Brücke“, мост, 橋 — costs **12,500",
        "more[1] than planned",
        "## Steps",
        "1. Close the road\n2. Replace the deck",
        "- paint",
        "| Item and year | Item and year | Euro |\n| --- | --- | --- |\n| Deck \\| rails | 2024 | 9000 |",
        "[the plan](https://example.org/bridge)",
        "](letter_images/image1.png)",
        "[1] Prices of March.",
    ]
    places = [shown.find(part) for part in parts]
    assert -1 not in places, (parts[places.index(-1)], shown)
    assert places == sorted(places)
    assert (workspace / "letter_images/image1.png").read_bytes().startswith(b"\x89PNG")
    found = result.structuredContent
    assert found is not None
    assert found["format"] == kind
    assert found["structure"] == ["- Bridge repair", "  - Steps", "  - Costs"]
    if kind == "doc":
        assert "What it has of headers and footers and comments is not shown: of .doc" in shown
    else:
        assert "[Header: Confidential draft]" in shown
        assert "[Footer: City of Aa, works office]" in shown
        assert "[Comment by Bob: Is this final?]" in shown
    if kind != "rtf":
        assert (found["title"], found["author"]) == ("Bridge repair", "Ann")
    without = await content(
        server, READ, file_path="letter", extract_tables=False, extract_headers_footers=False
    )
    assert "9000" not in without["content"]
    assert "Confidential" not in without["content"]


async def test_lists_with_letters_keep_them(workspace: Path) -> None:
    body = r"{\listtext a)\tab}first\par {\listtext b)\tab}second\par"
    (workspace / "a.rtf").write_text(r"{\rtf1\ansi\ansicpg1252 Gr\'fc\'dfe \u269?\par " + body + "}")
    shown = (await content(server, READ, file_path="a.rtf"))["content"]
    assert shown == "Grüße č\n\n- a) first\n- b) second"


async def test_headers_and_comments_of_rich_text_may_be_empty_damaged_or_in_another_code_page(
    workspace: Path,
) -> None:
    start = rb"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0\fcharset204 Arial;}}\f0 "
    parts = (
        rb"{\header\pard\par}{\footerf \'cc\'ee\'f1\'f2 \{1\}\par}"
        rb"{\footer {\*\atnauthor Ann}{\*\annotation \'e4\'e0}"
    )
    (workspace / "a.rtf").write_bytes(start + parts + rb"}{\*\annotation {{{" + rb"}}} end\par}")
    found = await content(server, READ, file_path="a.rtf")
    assert found["headers"] == []
    assert found["footers"][0] == "Мост {1}"
    assert "[Comment by Ann: да]" in found["content"]


async def test_what_was_deleted_from_an_open_document_is_not_shown(workspace: Path) -> None:
    shutil.copy(SAMPLES / "letter.odt", workspace / "a.odt")
    with zipfile.ZipFile(workspace / "a.odt") as archive:
        body = archive.read("content.xml").decode()
    deleted = (
        '<text:tracked-changes><text:changed-region text:id="c1"><text:deletion><text:p>gone for good</text:p>'
        "</text:deletion></text:changed-region></text:tracked-changes>"
    )
    changed = re.sub(r"(<office:text[^>]*>)", lambda match: match[1] + deleted, body)
    assert changed != body
    rewritten(workspace / "a.odt", "content.xml", changed.encode())
    shown = (await content(server, READ, file_path="a.odt"))["content"]
    assert "gone for good" not in shown
    assert "Bridge repair" in shown


@pytest.mark.parametrize("kind", ["odt", "doc", "rtf"])
async def test_damage_to_older_and_open_formats_ends_in_a_result_or_an_error(
    kind: str, workspace: Path
) -> None:
    held = (SAMPLES / f"letter.{kind}").read_bytes()
    for seed in range(6):
        chance = random.Random(seed)
        damaged = bytearray(held)
        for _ in range(1 + 20 * seed):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        (workspace / "a").write_bytes(damaged[: chance.choice([len(damaged), len(damaged) * 3 // 4])])
        assert text(await call(server, READ, file_path="a"))


async def test_xml_of_open_documents_that_declares_entities_is_refused(workspace: Path) -> None:
    for part in ("content.xml", "styles.xml", "meta.xml"):
        shutil.copy(SAMPLES / "letter.odt", workspace / "a.odt")
        rewritten(workspace / "a.odt", part, laughs())
        assert "declares XML entities" in await refusal(server, READ, file_path="a.odt")


async def test_a_protected_open_document_is_called_so(workspace: Path) -> None:
    shutil.copy(SAMPLES / "letter.odt", workspace / "a.odt")
    rewritten(workspace / "a.odt", "content.xml", random.Random(1).randbytes(500))
    manifest = (
        b'<manifest><file-entry full-path="content.xml"><manifest:encryption-data/></file-entry></manifest>'
    )
    rewritten(workspace / "a.odt", "META-INF/manifest.xml", manifest)
    assert "protected with a password" in await refusal(server, READ, file_path="a.odt", password="x")


async def test_other_tools_name_the_one_that_reads_these(workspace: Path) -> None:
    for name in ("letter.doc", "letter.odt"):
        shutil.copy(SAMPLES / name, workspace / name)
        assert "Use extract_docx_content" in await refusal(csv_server, "extract_csv_content", file_path=name)


async def test_parts_may_be_left_out_or_listed(letter: Path) -> None:
    found = await content(
        server,
        READ,
        file_path="letter.docx",
        extract_tables=False,
        extract_headers_footers=False,
        include_structure=True,
    )
    assert "wide" not in found["content"]
    assert "Confidential" not in found["content"]
    assert found["structure"] == ["- Letter", "- First part", "  - Second part"]
    assert (found["headings"], found["tables"], found["images"]) == (3, 1, 1)


async def test_pictures_are_written_into_the_workspace(letter: Path, workspace: Path) -> None:
    found = await content(server, READ, file_path="letter.docx", extract_images=True)
    assert found["image_files"] == ["letter_images/image1.png"]
    assert (workspace / "letter_images/image1.png").read_bytes() == picture().getvalue()
    assert "![picture](letter_images/image1.png)" in found["content"]


async def test_a_picture_that_is_elsewhere_is_not_fetched(letter: Path, workspace: Path) -> None:
    relations = "word/_rels/document.xml.rels"
    with zipfile.ZipFile(letter) as word:
        body, related = word.read("word/document.xml"), word.read(relations)
    found = re.search(rb'r:embed="(\w+)"', body)
    assert found is not None
    rewritten(letter, "word/document.xml", body.replace(b"r:embed=", b"r:link="))
    target = b'Id="%s" TargetMode="External"' % found[1]
    related = related.replace(b'Id="%s"' % found[1], target)
    rewritten(letter, relations, related.replace(b"media/image1.png", b"file:///etc/hostname"))
    shown = await content(server, READ, file_path="letter.docx", extract_images=True)
    assert shown["image_files"] == []
    assert "Filled in" in shown["content"]
    assert not (workspace / "letter_images").exists()


async def test_a_long_document_is_read_part_by_part(workspace: Path) -> None:
    word = docx.Document()
    for number in range(3000):
        word.add_paragraph(f"Paragraph {number}.")
    word.save(workspace / "long.docx")
    first = await content(server, READ, file_path="long.docx")
    second = await content(server, READ, file_path="long.docx", start=first["next_start"])
    assert "Paragraph 0." in first["content"]
    assert "Paragraph 2999." in second["content"]


async def test_protected_documents_need_their_password(letter: Path, workspace: Path) -> None:
    from msoffcrypto.format.ooxml import OOXMLFile

    with letter.open("rb") as plain, (workspace / "locked.docx").open("wb") as locked:
        OOXMLFile(plain).encrypt("sesame", locked)
    assert "protected with a password" in await refusal(server, READ, file_path="locked.docx")
    assert "not with the password" in await refusal(server, READ, file_path="locked.docx", password="x")
    assert (await content(server, READ, file_path="locked.docx", password="sesame"))["title"] == "A letter"


async def test_damaged_and_other_files_are_refused(letter: Path, workspace: Path) -> None:
    (workspace / "cut.docx").write_bytes((workspace / "letter.docx").read_bytes()[:-2000])
    assert "damaged or incomplete" in await refusal(server, READ, file_path="cut.docx")
    (workspace / "zero.docx").touch()
    assert "0 bytes" in await refusal(server, READ, file_path="zero.docx")
    (workspace / "text.docx").write_text("just text")
    assert "is a text file, not a Word file" in await refusal(server, READ, file_path="text.docx")
    (workspace / "old.doc").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000))
    assert "old Office file" in await refusal(server, READ, file_path="old.doc")
    rewritten(letter, "word/document.xml", b"<w:document")
    assert "word/document.xml in it cannot be read" in await refusal(server, READ, file_path="letter.docx")
    rewritten(letter, "word/document.xml", b"<other/>")
    assert "damaged" in await refusal(server, READ, file_path="letter.docx")


@pytest.mark.parametrize("part", ["word/document.xml", "word/styles.xml", "docProps/core.xml", "_rels/.rels"])
async def test_xml_that_declares_entities_is_refused(letter: Path, part: str) -> None:
    rewritten(letter, part, laughs())
    assert "declares XML entities" in await refusal(server, READ, file_path="letter.docx")


async def test_a_bomb_is_refused(letter: Path) -> None:
    rewritten(letter, "word/document.xml", b"<x>" + b" " * (300 << 20) + b"</x>")
    assert "ZIP bomb" in await refusal(server, READ, file_path="letter.docx")


async def test_nesting_without_end_is_no_crash(letter: Path) -> None:
    deep = f"<w:document {_NAMES}><w:body>" + "<w:sdt><w:sdtContent>" * 50_000
    rewritten(letter, "word/document.xml", deep.encode())
    assert await refusal(server, READ, file_path="letter.docx")


_FIELD = (
    '<w:r {0}><w:fldChar w:fldCharType="begin"><w:ffData><w:name w:val="f"/>{1}</w:ffData></w:fldChar></w:r>',
    "<w:r {0}><w:instrText> {2} </w:instrText></w:r>",
    '<w:r {0}><w:fldChar w:fldCharType="end"/></w:r>',
)
_TICK = (
    '<w:sdt {0} xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"><w:sdtPr><w14:checkbox>'
    '<w14:checked w14:val="{1}"/></w14:checkbox></w:sdtPr><w:sdtContent><w:r><w:t>☐</w:t></w:r></w:sdtContent></w:sdt>'
)
_HALF = (
    '<m:oMathPara xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:oMath><m:f><m:num><m:r><m:t>1'
    "</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath></m:oMathPara>"
)


async def test_exponents_equations_ticks_and_choices_are_text(workspace: Path) -> None:
    word = docx.Document()
    line = word.add_paragraph("10")
    for text_of_run in ("-", "3"):
        line.add_run(text_of_run).font.superscript = True
    line.add_run(" m, half: ")
    line._p.append(parse_xml(_HALF))
    boxes = "<w:checkBox><w:checked/></w:checkBox>", "<w:checkBox><w:default w:val='0'/></w:checkBox>"
    choice = '<w:ddList><w:result w:val="1"/><w:listEntry w:val="red"/><w:listEntry w:val="blue"/></w:ddList>'
    form = word.add_paragraph("Form: ")
    for inner, instruction in [(box, "FORMCHECKBOX") for box in boxes] + [(choice, "FORMDROPDOWN")]:
        for part in _FIELD:
            form._p.append(parse_xml(part.format(_NAMES, inner, instruction)))
    for state in (1, 0):
        form._p.append(parse_xml(_TICK.format(_NAMES, state)))
    header = word.sections[0].header.paragraphs[0]
    header.add_run("5 m")
    header.add_run("2").font.superscript = True
    header.add_run("\t2024")
    word.save(workspace / "a.docx")
    rewritten(workspace / "a.docx", "word/embeddings/sheet.xlsx", b"x")
    as_programs_write_it(workspace / "a.docx")
    shown = (await content(server, READ, file_path="a.docx", output_format="json"))["content"]
    assert shown.split("\n\n") == [
        "[Header: 5 m^2 2024]",
        r"10^-3 m, half: $\frac{1}{2}$",
        "Form: ☑☐blue [of: red; blue]☑☐",
        "[Files in it that are not shown: sheet.xlsx.]",
    ]


async def test_charts_of_a_word_file_are_tables(workspace: Path) -> None:
    import pptx
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    data = CategoryChartData()
    data.categories = ["May", "June"]
    data.add_series("Gulls", (1.5, -2))
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    chart = slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 9, 9, data).chart
    docx.Document().save(workspace / "a.docx")
    rewritten(workspace / "a.docx", "word/charts/chart1.xml", chart.part.blob)
    shown = (await content(server, READ, file_path="a.docx"))["content"]
    assert "|  | Gulls |\n| --- | --- |\n| May | 1.5 |\n| June | -2 |" in shown


async def test_open_documents_and_rich_text_keep_exponents_formulas_and_ticks(workspace: Path) -> None:
    from odf.opendocument import OpenDocumentText

    names = " ".join(f'xmlns:{name}="{{0}}{name}:1.0"' for name in ("office", "text", "style", "form"))
    names += ' xmlns:draw="{0}drawing:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'
    body = (
        f"<office:document-content {names}><office:automatic-styles>"
        '<style:style style:name="S" style:family="text"><style:text-properties style:text-position="-33% 58%"/>'
        "</style:style></office:automatic-styles><office:body><office:text><office:forms><form:form>"
        '<form:checkbox form:id="c" form:label="pears" form:current-state="checked"/></form:form></office:forms>'
        '<text:p>H<text:span text:style-name="S">2</text:span>O <draw:frame><draw:object xlink:href="./Object 1"/>'
        '</draw:frame> <draw:control draw:control="c"/></text:p></office:text></office:body></office:document-content>'
    ).format("urn:oasis:names:tc:opendocument:xmlns:")
    OpenDocumentText().save(workspace / "a.odt")
    rewritten(workspace / "a.odt", "content.xml", body.encode())
    formula = b'<math xmlns="http://www.w3.org/1998/Math/MathML"><msqrt><mn>2</mn></msqrt></math>'
    rewritten(workspace / "a.odt", "Object 1/content.xml", formula)
    as_programs_write_it(workspace / "a.odt")
    shown = (await content(server, READ, file_path="a.odt", output_format="json"))["content"]
    assert shown.split() == ["H_2O", r"$\sqrt{2}$", "☑", "pears"]
    (workspace / "a.rtf").write_text(r"{\rtf1\ansi 10{\super -3} x\super a+b\nosupersub\par 14{\super th}}")
    shown = (await content(server, READ, file_path="a.rtf", output_format="json"))["content"]
    assert shown == "10^-3 x^{a+b}\n\n14th"
