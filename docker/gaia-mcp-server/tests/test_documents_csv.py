"""Tables are read from delimited text and from spreadsheets, with what else a sheet says; damage ends in an error."""

import datetime
import zipfile
from pathlib import Path

import openpyxl
import pytest
import xlwt
from gaia_tools.documents_csv import server
from openpyxl.comments import Comment
from openpyxl.styles import Font, PatternFill
from openpyxl.styles.colors import Color

from tests.conftest import call, content, refusal, text
from tests.constants_made import WRITERS
from tests.documents_made import as_programs_write_it, laughs, rewritten
from tests.paragraphs import PARAGRAPHS

READ = "extract_csv_content"


def workbook(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales"
    sheet.append(["Region", "Amount", "Day", "Share"])
    sheet.append(["North", 12, datetime.date(2024, 2, 29), 0.25])
    sheet.append(["South|East", 30, datetime.date(2024, 3, 1), 1e-9])
    sheet["B4"] = "=SUM(B2:B3)"
    sheet.merge_cells("A6:C6")
    sheet["A6"] = "over three"
    for cell in ("B2", "C2", "D3"):
        sheet[cell].fill = PatternFill("solid", fgColor="FFC000")
    sheet["A9"].fill = PatternFill("solid", fgColor=Color(theme=4, tint=0.4))
    sheet["A2"].font = Font(color="FF0000")
    sheet["A3"].comment = Comment("doubtful", "Ann")
    sheet["A2"].hyperlink = "https://example.org/"
    hidden = book.create_sheet("Hidden one")
    hidden["C5"] = "found"
    hidden.sheet_state = "hidden"
    book.save(path)


async def test_a_spreadsheet_is_shown_with_its_letters_numbers_and_sheets(workspace: Path) -> None:
    workbook(workspace / "a.xlsx")
    result = await call(server, READ, file_path="a.xlsx")
    assert "2 sheets: Sales, Hidden one (hidden)" in text(result)
    assert "|  | A | B | C | D |" in text(result)
    assert "| 2 | North | 12 | 2024-02-29 | 0.25 |" in text(result)
    assert "| 3 | South\\|East | 30 | 2024-03-01 | 1e-09 |" in text(result)
    assert "Merged cells (the value is in the first): A6:C6" in text(result)
    assert "include_formatting=true" in text(result)
    found = await content(server, READ, file_path="a.xlsx", sheet_name="hidden ONE")
    assert found["content"][4] == [None, None, "found"]
    assert "it has: Sales, Hidden one" in await refusal(server, READ, file_path="a.xlsx", sheet_name="x")


async def test_colours_formulas_comments_and_links_are_shown_when_asked(workspace: Path) -> None:
    workbook(workspace / "a.xlsx")
    found = (await content(server, READ, file_path="a.xlsx", include_formatting=True))["formatting"]
    assert found["fill_colours"] == {"#FFC000": ["B2:C2", "D3"], "#95B3D7": ["A9"]}
    assert found["letter_colours"]["#FF0000"] == ["A2"]
    assert found["formulas"] == {"B4": "=SUM(B2:B3)"}
    assert found["comments"] == {"A3": "doubtful"}
    assert found["links"] == {"A2": "https://example.org/"}


async def test_a_map_of_colours_without_values_is_shown(workspace: Path) -> None:
    book = openpyxl.Workbook()
    for place in ("A1", "B1", "C1", "C2", "C3"):
        book.active[place].fill = PatternFill("solid", fgColor="00FF00")
    book.save(workspace / "map.xlsx")
    assert "include_formatting=true" in text(await call(server, READ, file_path="map.xlsx"))
    found = text(await call(server, READ, file_path="map.xlsx", include_formatting=True))
    assert "#00FF00: A1:C1, C2, C3" in found


async def test_values_of_formulas_are_those_saved(workspace: Path) -> None:
    workbook(workspace / "a.xlsx")
    part = "xl/worksheets/sheet1.xml"
    with zipfile.ZipFile(workspace / "a.xlsx") as book:
        sheet = book.read(part)
    # openpyxl saves no values of formulas; Excel does.
    assert b"<f>SUM(B2:B3)</f><v></v>" in sheet or b"<f>SUM(B2:B3)</f><v />" in sheet
    saved = sheet.replace(b"</f><v></v>", b"</f><v>42</v>").replace(b"</f><v />", b"</f><v>42</v>")
    rewritten(workspace / "a.xlsx", part, saved)
    assert (await content(server, READ, file_path="a.xlsx"))["content"][3][1] == 42


async def test_an_old_spreadsheet_is_read(workspace: Path) -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Alt")
    sheet.write(1, 1, "Größe")
    sheet.write(1, 2, 1.5)
    sheet.write_merge(3, 4, 0, 1, "merged")
    book.save(str(workspace / "a.xls"))
    found = await content(server, READ, file_path="a.xls")
    assert found["content"] == [[None] * 3, [None, "Größe", 1.5], [None] * 3, ["merged", None, None]]
    assert found["merged"] == ["A4:B5"]
    assert "only that of .xlsx" in await refusal(server, READ, file_path="a.xls", include_formatting=True)


def open_document(path: Path) -> None:
    names = 'xmlns:{0}="urn:oasis:names:tc:opendocument:xmlns:{0}:1.0"'
    spaces = " ".join(names.format(name) for name in ("office", "table", "text", "style"))
    cells = (
        '<table:table-cell office:value-type="string" table:number-columns-spanned="2"><text:p>Größe</text:p>'
        '</table:table-cell><table:covered-table-cell/><table:table-cell office:value-type="date" '
        'office:date-value="2024-02-29"><text:p>29 Feb</text:p></table:table-cell>'
        '<table:table-cell office:value-type="float" office:value="1.5"><text:p>1,5</text:p></table:table-cell>'
    )
    sheets = "".join(
        f'<table:table table:name="{name}" table:style-name="{style}"><table:table-row>{cells}</table:table-row>'
        "</table:table>"
        for name, style in (("First", "seen"), ("Second", "unseen"))
    )
    styles = "".join(
        f'<style:style style:name="{name}" style:family="table"><style:table-properties table:display="{shown}"/>'
        "</style:style>"
        for name, shown in (("seen", "true"), ("unseen", "false"))
    )
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        package.writestr("META-INF/manifest.xml", "<manifest/>")
        package.writestr("Configurations2/accelerator/current.xml", "")
        package.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:spreadsheet>{sheets}</office:spreadsheet></office:body></office:document-content>",
        )


async def test_an_open_document_spreadsheet_is_read(workspace: Path) -> None:
    open_document(workspace / "a.ods")
    result = await call(server, READ, file_path="a.ods")
    assert result.structuredContent is not None
    assert result.structuredContent["content"] == [["Größe", None, "2024-02-29", 1.5]]
    assert "2 sheets: First, Second (hidden)" in text(result)


@pytest.mark.parametrize(
    ("encoding", "cities"),
    [
        ("cp1252", ("Zürich", "São Paulo, niño")),
        ("cp932", ("東京都渋谷区", "大阪府カタカナ")),
        ("gb18030", ("北京市朝阳区", "上海市，中文数据")),
    ],
)
async def test_fifty_thousand_rows_in_a_legacy_charset(
    workspace: Path, encoding: str, cities: tuple[str, str]
) -> None:
    lines = ["id;city;price"] + [
        f'{number};"{cities[number % 2]}";{number / 4}' for number in range(1, 50_001)
    ]
    (workspace / "big.csv").write_bytes("\r\n".join(lines).encode(encoding))
    found = await content(server, READ, file_path="big.csv", include_statistics=True, max_rows=3)
    assert (found["rows"], found["columns"], found["delimiter"]) == (50_001, 3, ";")
    assert found["encoding"] == encoding
    assert found["content"] == [["id", "city", "price"], ["1", cities[1], "0.25"], ["2", cities[0], "0.5"]]
    prices = found["statistics"][2]
    assert (prices["min"], prices["max"], prices["mean"], prices["sum"]) == (0.25, 12500, 6250.125, 312506250)
    assert found["statistics"][1]["most_common"] == f"{cities[1]} (25000), {cities[0]} (25000)"
    last = await content(server, READ, file_path="big.csv", start_row=50_001)
    assert last["content"] == [["50000", cities[0], "12500.0"]]
    assert last["next_start_row"] is None


async def test_rows_are_read_part_by_part_and_none_is_lost(workspace: Path) -> None:
    (workspace / "a.csv").write_text("n,text\n" + "".join(f"{n},{'x' * 90}\n" for n in range(1000)))
    rows, start = [], 1
    while start is not None:
        found = await content(server, READ, file_path="a.csv", start_row=start, output_format="json")
        rows += found["content"]
        start = found["next_start_row"]
    assert [row[0] for row in rows] == ["n", *map(str, range(1000))]
    part = text(await call(server, READ, file_path="a.csv", start_row=10, max_rows=2))
    assert "| n | text |" in part
    assert "[Rows 10 to 11 of 1001: ask again with start_row=12 for more.]" in part


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
async def test_delimiters_are_found_out(workspace: Path, delimiter: str) -> None:
    rows = [["name", "quoted", "n"], ["a", f"x{delimiter}y", "1"], ["b", "two\nlines", "2"]]
    written = "\n".join(delimiter.join(f'"{value}"' for value in row) for row in rows)
    (workspace / "a.csv").write_text(written)
    assert (await content(server, READ, file_path="a.csv"))["content"] == rows


@pytest.mark.parametrize(
    ("written", "delimiter"),
    [
        ('"first name" "n"\n"Ann Lee" "1"\n"Bob, Jr." "2"\n', " "),
        ("name  n\nAnn    1\nBob 22\n", "spaces"),
        ("first name   n\nAnn Lee      1\nBob Ray     22\n", "two or more spaces"),
        ('name  "of what"  n\nAnn  "a b"  1\n  Bob  "c"  2\n', "two or more spaces"),
    ],
)
async def test_columns_between_spaces_are_found_out(workspace: Path, written: str, delimiter: str) -> None:
    (workspace / "a.txt").write_text(written)
    found = await content(server, READ, file_path="a.txt")
    assert found["delimiter"] == delimiter
    assert {len(row) for row in found["content"]} == {found["columns"]}
    assert found["content"][1][0].startswith("Ann")
    assert '"' not in str(found["content"]).replace("'", "")
    again = await content(server, READ, file_path="a.txt", delimiter=delimiter)
    assert again["content"] == found["content"]


async def test_prose_is_one_column_and_an_unknown_delimiter_is_refused(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one two three\nfour five six\nseven eight nine\n")
    assert (await content(server, READ, file_path="a.txt"))["columns"] == 1
    assert "two or more spaces" in await refusal(server, READ, file_path="a.txt", delimiter="::")


@pytest.mark.parametrize(
    "written",
    [
        '[{"city": "Łódź", "n": 1}, {"city": "x, y", "n": 2.5, "more": {"a": [1]}}]',
        '{"city": "Łódź", "n": 1}\n{"city": "x, y", "n": 2.5, "more": {"a": [1]}}\n',
        '[["city", "n", "more"], ["Łódź", 1, null], ["x, y", 2.5, {"a": [1]}]]',
        '{"city": ["Łódź", "x, y"], "n": [1, 2.5], "more": [null, {"a": [1]}]}',
        '{"count": 2, "rows": [{"city": "Łódź", "n": 1}, {"city": "x, y", "n": 2.5, "more": {"a": [1]}}]}',
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.csv"])
async def test_json_that_is_a_table_is_read_as_one(workspace: Path, written: str, name: str) -> None:
    (workspace / name).write_text(written, encoding="utf-8")
    result = await call(server, READ, file_path=name, include_statistics=True)
    assert result.structuredContent is not None
    rows = [["city", "n", "more"], ["Łódź", 1, None], ["x, y", 2.5, '{"a": [1]}']]
    assert result.structuredContent["content"] == rows
    assert result.structuredContent["statistics"][1]["sum"] == 3.5
    assert f"{name}: 3 rows, 3 columns, utf-8, JSON" in text(result)
    assert "| city | n | more |" in text(result)


async def test_one_object_is_one_row(workspace: Path) -> None:
    (workspace / "a.json").write_text('{"name": "Ann", "age": 3, "is_here": true}')
    found = await content(server, READ, file_path="a.json")
    assert found["content"] == [["name", "age", "is_here"], ["Ann", 3, True]]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('{"a": {"b": 1}, "c": [1, 2]}', "not a table: an object with a, c"),
        ("[1, 2, [3]]", "not a table: a list of single or mixed values"),
        ('[{"a": 1}, {"a":', "damaged JSON"),
        ('"a"', "not JSON that is a table"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
async def test_other_json_is_refused_with_what_reads_it(workspace: Path, written: str, reason: str) -> None:
    (workspace / "a.json").write_text(written)
    found = await refusal(server, READ, file_path="a.json")
    assert reason in found
    assert "extract_text_content" in found or "nested" in found


async def test_delimited_text_that_begins_like_json_is_read(workspace: Path) -> None:
    (workspace / "a.csv").write_text("[id],{name}\n1,x\n2,y\n")
    assert (await content(server, READ, file_path="a.csv"))["content"][0] == ["[id]", "{name}"]


async def test_a_table_in_an_old_code_page_tells_its_doubt(workspace: Path) -> None:
    lines = "\n".join(f"{number};{word}" for number, word in enumerate(PARAGRAPHS["czech"].split()))
    (workspace / "a.csv").write_bytes(lines.encode("iso8859-2"))
    result = await call(server, READ, file_path="a.csv")
    assert "a guess" in text(result)
    assert "přístavu" in text(result)


async def test_values_stay_as_they_are_written(workspace: Path) -> None:
    (workspace / "a.csv").write_text("code,country\n007,NA\n12345678901234567890,\n1.50,true\n")
    found = await content(server, READ, file_path="a.csv")
    assert found["content"][1:] == [["007", "NA"], ["12345678901234567890", ""], ["1.50", "true"]]
    assert "007\tNA" in text(await call(server, READ, file_path="a.csv", output_format="text"))


async def test_quotation_marks_that_do_not_match_lose_nothing(workspace: Path) -> None:
    (workspace / "a.csv").write_text('name,size\npipe,5"\n' + "a,b\n" * 400_000)
    assert (await content(server, READ, file_path="a.csv"))["rows"] == 400_002
    (workspace / "b.csv").write_text('name,size\n"pipe,5\n' + "a,b\n" * 400_000)
    found = await content(server, READ, file_path="b.csv")
    assert found["rows"] == 400_002
    assert "do not match" in found["note"]


async def test_histograms_are_drawn(workspace: Path) -> None:
    (workspace / "a.csv").write_text("n,name,m\n" + "".join(f"{n % 7},x,{n}\n" for n in range(100)))
    found = await content(server, READ, file_path="a.csv", generate_visualizations=True)
    assert found["visualizations"] == ["a_charts.png"]
    assert (workspace / "a_charts.png").read_bytes().startswith(b"\x89PNG")


async def test_a_name_says_nothing(workspace: Path) -> None:
    workbook(workspace / "a.csv")
    assert (await content(server, READ, file_path="a.csv"))["sheet"] == "Sales"
    (workspace / "b.xlsx").write_text("x,y\n1,2\n")
    assert (await content(server, READ, file_path="b.xlsx"))["content"][1] == ["1", "2"]
    (workspace / "d.xls").write_text("<html><table><tr><td>1</td></tr></table></html>")
    assert "extract_html_content" in await refusal(server, READ, file_path="d.xls")
    (workspace / "c.xlsx").write_bytes(b"%PDF-1.4\n")
    assert "convert_document_to_markdown" in await refusal(server, READ, file_path="c.xlsx")


async def test_protected_spreadsheets_need_their_password(workspace: Path) -> None:
    from msoffcrypto.format.ooxml import OOXMLFile

    workbook(workspace / "plain.xlsx")
    with (workspace / "plain.xlsx").open("rb") as plain, (workspace / "a.xlsx").open("wb") as locked:
        OOXMLFile(plain).encrypt("sesame", locked)
    assert "protected with a password" in await refusal(server, READ, file_path="a.xlsx")
    assert "not with the password" in await refusal(server, READ, file_path="a.xlsx", password="x")
    found = await content(server, READ, file_path="a.xlsx", password="sesame", include_formatting=True)
    assert found["content"][1][0] == "North"
    assert found["formatting"]["formulas"]


async def test_damaged_spreadsheets_are_refused(workspace: Path) -> None:
    workbook(workspace / "a.xlsx")
    whole = (workspace / "a.xlsx").read_bytes()
    (workspace / "cut.xlsx").write_bytes(whole[: len(whole) // 2])
    assert "damaged or incomplete" in await refusal(server, READ, file_path="cut.xlsx")
    (workspace / "zero.xlsx").touch()
    assert "0 bytes" in await refusal(server, READ, file_path="zero.xlsx")
    with zipfile.ZipFile(workspace / "a.xlsx") as book:
        packed = book.getinfo("xl/worksheets/sheet1.xml").header_offset + 200
    (workspace / "flipped.xlsx").write_bytes(
        whole[:packed] + bytes([whole[packed] ^ 1]) + whole[packed + 1 :]
    )
    assert "sheet1.xml in it cannot be read" in await refusal(server, READ, file_path="flipped.xlsx")
    rewritten(workspace / "a.xlsx", "xl/workbook.xml", b"not XML at all")
    assert "xl/workbook.xml in it cannot be read" in await refusal(server, READ, file_path="a.xlsx")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_xml_that_declares_entities_is_refused(workspace: Path, encoding: str) -> None:
    for part in ("xl/worksheets/sheet1.xml", "xl/workbook.xml", "xl/styles.xml"):
        workbook(workspace / "a.xlsx")
        rewritten(workspace / "a.xlsx", part, laughs(encoding))
        assert "declares XML entities" in await refusal(server, READ, file_path="a.xlsx")


async def test_a_bomb_and_a_lying_size_are_refused(workspace: Path) -> None:
    workbook(workspace / "a.xlsx")
    rewritten(workspace / "a.xlsx", "xl/styles.xml", b"<x>" + b" " * (300 << 20) + b"</x>")
    assert "ZIP bomb" in await refusal(server, READ, file_path="a.xlsx")
    workbook(workspace / "b.xlsx")
    held = (workspace / "b.xlsx").read_bytes()
    with zipfile.ZipFile(workspace / "b.xlsx") as book:
        size = book.getinfo("xl/workbook.xml").file_size
    directory = held.index(b"PK\x01\x02")
    lie = held[directory:].replace(size.to_bytes(4, "little"), (2 << 30).to_bytes(4, "little"))
    (workspace / "b.xlsx").write_bytes(held[:directory] + lie)
    assert "claims to hold 2048 MB" in await refusal(server, READ, file_path="b.xlsx")


async def test_a_sheet_as_wide_and_long_as_can_be_ends_in_an_error_and_the_server_goes_on(
    workspace: Path,
) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = 1
    book.active["XFD1048576"] = 2
    book.save(workspace / "far.xlsx")
    assert "too much memory" in await refusal(server, READ, file_path="far.xlsx")
    workbook(workspace / "a.xlsx")
    assert (await content(server, READ, file_path="a.xlsx"))["rows"] == 6


async def test_an_error_in_a_cell_is_shown_and_an_empty_part_is_no_damage(workspace: Path) -> None:
    book = openpyxl.Workbook()
    for row in (("part", "share"), ("a", 0.5), ("b", "#DIV/0!"), ("c", None), (None, "#REF!")):
        book.active.append(row)
    book.save(workspace / "shares.xlsx")
    # LibreOffice leaves such a part in its files.
    rewritten(workspace / "shares.xlsx", "Configurations2/accelerator/current.xml", b"")
    found = await content(server, "extract_csv_content", file_path="shares.xlsx")
    assert found["content"] == [["part", "share"], ["a", 0.5], ["b", "#DIV/0!"], ["c", None], [None, "#REF!"]]


@pytest.mark.parametrize("kind", [".xlsx", ".xls", ".ods"])
async def test_exponents_in_cells_are_text_whatever_wrote_the_file(kind: str, workspace: Path) -> None:
    lines = [[("10", 0), ("-3", 1), (" mol", 0)], [("10-3 mol", 0)]]
    WRITERS[kind](lines, workspace / f"a{kind}")
    if kind != ".xls":
        as_programs_write_it(workspace / f"a{kind}")
    shown = await content(server, READ, file_path=f"a{kind}", output_format="json")
    assert shown["content"] == [["10^-3 mol"], ["10-3 mol"]]
