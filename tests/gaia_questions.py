"""How an agent answers the questions about the files of ``gaia_files``: a few calls each, written down beforehand.

A function's name is the question. It gets an agent with a session of its own, and returns what it found.
"""

import datetime
import json
import re
import statistics
import struct
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import ClientSession
from mcp.types import TextContent

PORT = 8000
HERE = f"http://127.0.0.1:{PORT}"
FILES = "/attachments"
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Agent:
    """An agent whose calls are written down beforehand, and measured."""

    def __init__(self, opened: ClientSession):
        self._opened = opened
        self._parameters: dict[str, set[str]] = {}
        self.seconds: list[tuple[str, float]] = []

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """All that a result says that is no error, with its text as ``content`` and as ``text``."""
        if not self._parameters:
            tools = (await self._opened.list_tools()).tools
            self._parameters = {one.name: set(one.inputSchema.get("properties", {})) for one in tools}
        if "output_format" in self._parameters[tool]:
            arguments["output_format"] = "json"
        began = time.monotonic()
        result = await self._opened.call_tool(tool, arguments)
        self.seconds.append((tool, time.monotonic() - began))
        assert not result.isError, (tool, result.content)
        shown = "\n".join(one.text for one in result.content if isinstance(one, TextContent))
        facts = result.structuredContent or json.loads(shown)
        text = facts.get("content", facts.get("text", shown))
        return {"content": text, "text": text, **facts}

    async def serve(self, folder: str, program: str = "-m http.server") -> None:
        """Have the files of a folder served in its own worker."""
        command = f"cd {folder} && (nohup python3 {program} {PORT} >/dev/null 2>&1 &) ; sleep 1; echo up"
        assert (await self.use("execute_command", command=command))["output"] == "up"

    async def table(self, name: str, **options: Any) -> list[list[Any]]:
        """The rows of a table."""
        return list((await self.use("extract_csv_content", file_path=_path(name), **options))["content"])

    async def text(self, tool: str, name: str, **options: Any) -> str:
        """The content of a document."""
        found = await self.use(tool, file_path=_path(name), **options)
        return str(found["content"])

    async def python(self, code: str) -> str:
        """What a program prints."""
        found = await self.use("run_python_code", code=code)
        assert found["exit_code"] == 0, found["stderr"]
        return str(found["stdout"]).strip()


def _path(name: str) -> str:
    return name if name.startswith("./") else f"{FILES}/{name}"


def _number(pattern: str, text: str) -> str:
    """The one place that a pattern has in a text."""
    (found,) = set(re.findall(pattern, text))
    return str(found)


def _digits(words: str) -> str:
    return "".join(str(NAMES.index(word)) for word in words.split())


# Spreadsheets


async def how_much_was_sold_in_oslo_in_2023(own: Agent) -> str:
    _, *rows = await own.table("sales.xlsx")
    return f"{sum(sold for city, year, sold in rows if (city, int(year)) == ('Oslo', 2023)):g}"


async def what_is_the_area_of_the_green_plots(own: Agent) -> str:
    found = await own.use("extract_csv_content", file_path=_path("plots.xlsx"), include_formatting=True)
    area = 0.0
    for cells in found["formatting"]["fill_colours"]["#00FF00"]:
        first, _, last = cells.partition(":")
        row, begin, end = int(first[1:]), ord(first[0]) - 65, ord((last or first)[0]) - 65
        area += sum(found["content"][row - 1][begin : end + 1])
    return f"{area:g}"


async def who_owns_the_plot_in_the_second_row(own: Agent) -> str:
    found = await own.use("extract_csv_content", file_path=_path("plots.xlsx"), include_formatting=True)
    return _number(r"Owned by Ms (\w+)", found["formatting"]["comments"]["C2"])


async def how_many_orders_were_on_a_friday(own: Agent) -> str:
    _, *rows = await own.table("orders.xlsx")
    return str(sum(datetime.date.fromisoformat(day[:10]).weekday() == 4 for _, day in rows))


async def what_is_the_price_in_the_hidden_sheet(own: Agent) -> str:
    sheets = (await own.use("extract_csv_content", file_path=_path("orders.xlsx")))["sheets"]
    (hidden,) = [one["name"] for one in sheets if not one["visible"]]
    ((_, price),) = await own.table("orders.xlsx", sheet_name=hidden)
    return f"{price:g}"


async def which_cell_multiplies_the_price(own: Agent) -> str:
    options = {"sheet_name": "total", "include_formatting": True}
    found = await own.use("extract_csv_content", file_path=_path("orders.xlsx"), **options)
    (cell,) = [cell for cell, formula in found["formatting"]["formulas"].items() if "prices!" in formula]
    return str(cell)


async def which_lake_is_the_second_largest(own: Agent) -> str:
    rows = await own.table("lakes.ods")
    return str(sorted(rows, key=lambda row: -row[1])[1][0])


# Tables as text, and data


async def how_much_did_customers_from_bergen_spend(own: Agent) -> str:
    _, *customers = await own.table("customers.csv")
    _, *orders = await own.table("orders.csv")
    chosen = {number for number, city in customers if city == "Bergen"}
    return str(sum(int(amount) for number, amount in orders if number in chosen))


async def which_town_was_coldest(own: Agent) -> str:
    _, *rows = await own.table("temperatures.csv")
    return str(min(rows, key=lambda row: float(row[1].replace(",", ".")))[0])


async def which_sensor_in_room_b_reads_most(own: Agent) -> str:
    lines = (await own.text("extract_text_content", "readings.jsonl")).splitlines()
    readings = [one for one in map(json.loads, lines) if one["sensor"]["room"] == "B"]
    return str(max(readings, key=lambda one: one["value"])["sensor"]["id"])


async def how_many_requests_were_not_found(own: Agent) -> str:
    await own.use("extract_archive", file_path=_path("access.log.gz"), output_dir="logs")
    return str((await own.use("execute_command", command="grep -c '\" 404 ' logs/access.log"))["output"])


async def for_how_many_days_was_the_edda_lent(own: Agent) -> str:
    query = "select sum(days) from loans where book = 'Edda'"
    opened = f"file:{FILES}/library.sqlite?immutable=1"
    return await own.python(
        f"import sqlite3\nprint(sqlite3.connect({opened!r}, uri=True).execute({query!r}).fetchone()[0])"
    )


async def how_tall_are_all_elms_together(own: Agent) -> str:
    park = ElementTree.fromstring(await own.text("extract_text_content", "plants.xml"))
    return str(sum(int(one.findtext("height") or 0) for one in park if one.get("kind") == "elm"))


async def which_shelf_has_the_fewest_books(own: Agent) -> str:
    shelves = json.loads(await own.text("extract_text_content", "shelves.json"))["shelves"]
    return str(min(shelves, key=lambda one: one["books"])["name"])


# Text of other encodings


async def in_which_year_did_the_expedition_leave(own: Agent) -> str:
    return _number(r"в августе (\d+) года", await own.text("extract_text_content", "diary.txt"))


async def how_many_passengers_were_aboard(own: Agent) -> str:
    return _number(r"με (\d+) επιβάτες", await own.text("extract_text_content", "ship.txt"))


async def how_often_is_an_owl_named(own: Agent) -> str:
    return str(len(re.findall(r"\bowl\b", await own.text("extract_text_content", "poem.txt"))))


# Documents


async def how_much_gold_did_norway_win(own: Agent) -> str:
    page = await own.text("extract_html_content", "medals.html")
    return str(sum(int(gold) for gold in re.findall(r"\| *Norway *\| *(\d+)", page)))


async def on_which_day_would_ragna_leave(own: Agent) -> str:
    return _number(r"Rather on (\d+ \w+)\.", await own.text("extract_docx_content", "plan.docx"))


async def how_many_things_are_packed(own: Agent) -> str:
    plan = await own.text("extract_docx_content", "plan.docx", extract_headers_footers=False)
    return str(sum(int(count) for count in re.findall(r"^\| *[A-Z]\w+ *\| *(\d+) *\|", plan, re.MULTILINE)))


async def in_how_many_chapters_is_there_a_whale(own: Agent) -> str:
    book = await own.use("extract_epub_content", file_path=_path("novel.epub"))
    texts = [
        await own.text("extract_epub_content", "novel.epub", chapter=number + 1)
        for number in range(len(book["chapters"]))
    ]
    return str(sum("whale" in text for text in texts))


async def how_many_slides_are_about_whales(own: Agent) -> str:
    text = await own.text("extract_pptx_content", "talk.pptx")
    return str(sum("whales" in slide.lower() for slide in text.split("## Slide")[1:]))


async def in_which_year_came_most_visitors(own: Agent) -> str:
    text = await own.text("extract_pptx_content", "museum.pptx")
    values = re.findall(r"\| *(20\d\d) *\| *([\d.]+)", text)
    return str(max(values, key=lambda one: float(one[1]))[0])


async def what_was_closed_in_2020(own: Agent) -> str:
    return _number(r"the (\w+) was closed in 2020", await own.text("extract_pptx_content", "museum.pptx"))


async def how_many_seats_have_all_halls(own: Agent) -> str:
    text = await own.text("extract_pptx_content", "museum.pptx")
    return str(sum(map(int, re.findall(r"\| *Hall \d *\| *(\d+)", text))))


async def what_are_the_fees_of_all_harbours(own: Agent) -> str:
    text = await own.text("convert_document_to_markdown", "fees.pdf")
    return str(sum(map(int, re.findall(r"(?:Oslo|Bergen|Tromso|Bodo)\W+(\d+)", text))))


async def on_which_page_are_the_fees(own: Agent) -> str:
    text = await own.text("convert_document_to_markdown", "fees.pdf", paginate=True)
    (page,) = [part.partition("]")[0] for part in text.split("[Page ")[1:] if "Bergen" in part]
    return page


async def how_many_members_were_present_on_the_second_page(own: Agent) -> str:
    text = await own.text("convert_document_to_markdown", "minutes.pdf", pages="2")
    return _number(r"Present: (\d+)", text)


# Pictures, sound and film


async def what_platform_does_the_sign_name(own: Agent) -> str:
    return "".join(re.findall(r"\d+", await own.text("extract_text_ocr", "sign.png")))


async def what_does_the_second_invoice_come_to(own: Agent) -> str:
    text = await own.text("extract_text_ocr", "invoices.tiff")
    return re.findall(r"Total: (\d+)", text)[1]


async def on_which_day_was_the_glacier_photographed(own: Agent) -> str:
    found = await own.use("get_image_metadata", file_path=_path("glacier.jpg"))
    return str(found["exif"]["DateTimeOriginal"])[:10].replace(":", "-")


async def which_number_is_spoken(own: Agent) -> str:
    return _digits(await own.text("transcribe_audio", "digits.wav"))


async def which_number_is_spoken_at_the_end(own: Agent) -> str:
    part = await own.use("trim_audio", file_path=_path("message.wav"), start_time=3.5)
    return _digits(await own.text("transcribe_audio", f"./{part['file']}"))


async def how_many_whole_seconds_has_the_tune(own: Agent) -> str:
    found = await own.use("extract_audio_metadata", file_path=_path("tune.mp3"))
    assert found["tags"]["artist"] == "Liv"
    return str(int(found["seconds"]))


async def which_code_is_shown_in_the_second_second(own: Agent) -> str:
    options = {"video_path": _path("film.mp4"), "target_time": 1.5, "window_size": 0.4}
    frames = (await own.use("extract_keyframes", **options))["frames"]
    return _number(r"CODE (\d+)", await own.text("extract_text_ocr", f"./{frames[0]['file']}"))


# Archives


async def how_many_parts_are_in_stock(own: Agent) -> str:
    outer = await own.use("extract_archive", file_path=_path("backup.zip"), files=["2024/inner.zip"])
    inner = await own.use("extract_archive", file_path=outer["files"][0], output_dir="inner")
    _, *rows = await own.table(f"./{inner['files'][0]}")
    return str(sum(int(count) for _, count in rows))


async def under_which_stone_lies_the_key(own: Agent) -> str:
    outer = await own.use("extract_archive", file_path=_path("estate.tar.gz"))
    inner = await own.use("extract_archive", file_path=outer["files"][0], output_dir="papers")
    return _number(r"under stone (\d+)", await own.text("extract_text_content", f"./{inner['files'][0]}"))


async def with_which_number_opens_the_vault(own: Agent) -> str:
    assert (await own.use("list_archive", file_path=_path("vault.zip")))["entries"][0]["encrypted"]
    found = await own.use("extract_archive", file_path=_path("vault.zip"), password="sesame")
    return _number(r"opens with (\d+)", await own.text("extract_text_content", f"./{found['files'][0]}"))


async def how_many_are_in_the_crew(own: Agent) -> str:
    await own.use("execute_command", command=f"bsdtar -xf {_path('crew.7z')}")
    return str(len((await own.text("extract_text_content", "./crew.txt")).split()))


# Science


async def which_move_mates(own: Agent) -> str:
    position = (await own.text("extract_text_content", "position.fen")).strip()
    return await own.python(
        f"import chess\nboard = chess.Board({position!r})\n"
        "for move in board.legal_moves:\n"
        "    san = board.san(move)\n"
        "    if san.endswith('#'): print(san)"
    )


async def how_far_apart_are_the_first_two_atoms(own: Agent) -> str:
    return await own.python(
        "from Bio.PDB import PDBParser\n"
        f"atoms = list(PDBParser(QUIET=True).get_structure('p', '{FILES}/protein.pdb').get_atoms())\n"
        "print(f'{atoms[0] - atoms[1]:.3f}')"
    )


async def what_is_the_mean_of_the_samples(own: Agent) -> str:
    code = f"print(open('{FILES}/samples.bin', 'rb').read().hex())"
    samples = struct.unpack("<64d", bytes.fromhex(await own.python(code)))
    return f"{statistics.fmean(samples):.4f}"


# A site


async def when_does_the_museum_open_on_sundays(own: Agent) -> str:
    await own.serve(f"{FILES}/site")
    page = await own.use("browser_navigate", url=f"{HERE}/")
    page = await own.use(
        "browser_click", element=int(_number(r"\[(\d+) link: Opening hours\]", page["text"]))
    )
    return _number(r"opens at (\S+)\.", page["text"])


async def how_large_was_the_crew_of_the_fram_in_1911(own: Agent) -> str:
    await own.serve(f"{FILES}/site", "serve.py")
    page = await own.use("browser_navigate", url=f"{HERE}/find.html")
    year = int(_number(r"\[(\d+) select Year:", page["text"]))
    page = await own.use("browser_select", element=year, option="1911")
    ship = int(_number(r"\[(\d+) text: Ship", page["text"]))
    page = await own.use("browser_type", element=ship, text="Fram", submit=True)
    return _number(r"a crew of (\d+)\.", page["text"])


async def what_was_the_range_of_the_tides(own: Agent) -> str:
    await own.serve(f"{FILES}/site")
    await own.use("download_file", url=f"{HERE}/tides.csv", output_file_path="tides.csv")
    _, *rows = await own.table("./tides.csv")
    levels = [int(level) for _, level in rows]
    return str(max(levels) - min(levels))


async def what_does_the_page_on_hours_say(own: Agent) -> str:
    await own.serve(f"{FILES}/site")
    return _number(r"opens at (\S+)\.", (await own.use("read_url", url=f"{HERE}/hours.html"))["content"])


async def how_high_is_the_lighthouse(own: Agent) -> str:
    await own.serve(f"{FILES}/site", "serve.py")
    found = await own.use("search_wikipedia", query="lighthouse")
    title = found["results"][0]["title"]
    article = await own.use("get_article_content", title=title, section="Tower")
    return _number(r"tower is (\d+) metres high", article["content"])


Question = Callable[[Agent], Awaitable[str]]
QUESTIONS: dict[str, Question] = {
    name: value
    for name, value in list(globals().items())
    if name.startswith(("how_", "what_", "which_", "who_", "when_", "in_", "on_", "for_", "under_", "with_"))
}
