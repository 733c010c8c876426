"""Makes the files of questions in the current folder, and ``keys.json`` with the questions' keys.

A program for the interpreter of gaia-mcp-server's image.
They are of the kinds that GAIA asks about, and made here. A key is computed from what is written into the file.
"""

import datetime
import gzip
import io
import json
import math
import random
import sqlite3
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from openpyxl import Workbook
from openpyxl.comments import Comment
from openpyxl.styles import PatternFill
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

CITIES = ("Oslo", "Bergen", "Tromso", "Bodo")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_random = random.Random(7)

Keys = dict[str, str]


def main() -> None:
    keys: Keys = {}
    for make in MAKERS:
        keys |= make()
    Path("keys.json").write_text(json.dumps(keys))


def sheets() -> Keys:
    book = Workbook()
    sales = [("Oslo", 2022, 10), ("Oslo", 2023, 17.5), ("Bergen", 2023, 4), ("Oslo", 2023, 24.5)]
    for row in [("city", "year", "sold"), *sales]:
        book.active.append(row)
    book.save("sales.xlsx")

    book = Workbook()
    plots = [(_random.randint(1, 99), _random.choice(("FFFF00", "00FF00", "FFFFFF"))) for _ in range(24)]
    for number, (area, colour) in enumerate(plots):
        cell = book.active.cell(number // 6 + 1, number % 6 + 1, area)
        cell.fill = PatternFill("solid", fgColor=colour)
    book.active["C2"].comment = Comment("Owned by Ms Halvorsen", "clerk")
    book.save("plots.xlsx")

    book = Workbook()
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=_random.randrange(366)) for _ in range(40)]
    book.active.append(("order", "day"))
    for number, day in enumerate(days):
        book.active.append((number, day))
    hidden = book.create_sheet("prices")
    hidden.sheet_state = "hidden"
    hidden.append(("ticket", 129))
    total = book.create_sheet("total")
    total["B3"] = "=prices!B1*COUNT(Sheet!A:A)"
    book.save("orders.xlsx")
    return {
        "how_much_was_sold_in_oslo_in_2023": f"{sum(n for city, year, n in sales if (city, year) == ('Oslo', 2023)):g}",
        "what_is_the_area_of_the_green_plots": str(sum(area for area, colour in plots if colour == "00FF00")),
        "who_owns_the_plot_in_the_second_row": "Halvorsen",
        "how_many_orders_were_on_a_friday": str(sum(day.weekday() == 4 for day in days)),
        "what_is_the_price_in_the_hidden_sheet": "129",
        "which_cell_multiplies_the_price": "B3",
    }


def open_document() -> Keys:
    lakes = {"Mjosa": 365, "Femund": 203, "Rossvatnet": 219, "Tyrifjorden": 138}
    rows = "".join(
        f'<table:table-row><table:table-cell office:value-type="string"><text:p>{name}</text:p></table:table-cell>'
        f'<table:table-cell office:value-type="float" office:value="{area}"/></table:table-row>'
        for name, area in lakes.items()
    )
    names = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    content = (
        f"<office:document-content{names}><office:body><office:spreadsheet>"
        f'<table:table table:name="lakes">{rows}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/></manifest:manifest>'
    )
    parts = {"mimetype": kind, "content.xml": content, "META-INF/manifest.xml": manifest}
    # As LibreOffice writes it, with a part of no bytes.
    _zip("lakes.ods", {**parts, "Configurations2/accelerator/current.xml": ""})
    return {"which_lake_is_the_second_largest": sorted(lakes, key=lambda name: -lakes[name])[1]}


def tables_as_text() -> Keys:
    people = [(number, _random.choice(CITIES)) for number in range(30)]
    orders = [(_random.randrange(30), _random.randint(10, 500)) for _ in range(200)]
    _lines("customers.csv", ["id,city", *(f"{number},{city}" for number, city in people)])
    _lines("orders.csv", ["customer,amount", *(f"{customer},{amount}" for customer, amount in orders)])
    from_bergen = {number for number, city in people if city == "Bergen"}

    measured = [
        (city, _random.randint(-200, 300) / 10) for city in ("Tromsø", "Bodø", "Ålesund", "Røros") * 5
    ]
    rows = [f"{city};{degrees:.1f}".replace(".", ",") for city, degrees in measured]
    Path("temperatures.csv").write_text("\n".join(["by;grader", *rows]), encoding="latin-1")

    readings = [
        {"sensor": {"id": n, "room": _random.choice("ABC")}, "value": _random.random()} for n in range(50)
    ]
    _lines("readings.jsonl", [json.dumps(one) for one in readings])
    best = max((one for one in readings if one["sensor"]["room"] == "B"), key=lambda one: one["value"])
    visits = [
        (_random.choice(("200", "301", "404", "500")), f"/page{_random.randrange(9)}") for _ in range(3000)
    ]
    log = "\n".join(f'10.0.0.1 - - "GET {page} HTTP/1.1" {code} 512' for code, page in visits)
    Path("access.log.gz").write_bytes(gzip.compress(log.encode()))
    with sqlite3.connect("library.sqlite") as base:
        base.execute("create table loans (book text, days integer)")
        loans = [(_random.choice(("Atlas", "Bible", "Edda")), _random.randint(1, 40)) for _ in range(300)]
        base.executemany("insert into loans values (?, ?)", loans)
    return {
        "how_much_did_customers_from_bergen_spend": str(sum(n for one, n in orders if one in from_bergen)),
        "which_town_was_coldest": min(measured, key=lambda one: one[1])[0],
        "which_sensor_in_room_b_reads_most": str(best["sensor"]["id"]),
        "how_many_requests_were_not_found": str(sum(code == "404" for code, _ in visits)),
        "for_how_many_days_was_the_edda_lent": str(sum(days for book, days in loans if book == "Edda")),
    }


def texts() -> Keys:
    russian = "Экспедиция вышла из Мурманска в августе 1932 года и вернулась через сорок два дня. " * 3
    Path("diary.txt").write_text(russian, encoding="cp1251")
    greek = "Το πλοίο έφυγε από τον Πειραιά με 318 επιβάτες και έφτασε στη Χίο το πρωί. " * 3
    Path("ship.txt").write_text(greek, encoding="iso8859_7")
    poem = "The owl looked down with his great round eyes\nat the owl below.\nNo owl was wise.\n"
    Path("poem.txt").write_text(poem, encoding="utf-16")
    plants = [(f"plant{n}", _random.choice(("oak", "ash", "elm")), _random.randint(1, 90)) for n in range(40)]
    Path("plants.xml").write_text(
        "<?xml version='1.0'?><!-- a park --><park>"
        + "".join(
            f'<tree id="{name}" kind="{kind}"><height>{height}</height></tree>'
            for name, kind, height in plants
        )
        + "</park>"
    )
    books = {"shelves": [{"name": f"s{n}", "books": _random.randint(0, 60)} for n in range(12)]}
    Path("shelves.json").write_text(json.dumps(books))
    Path("medals.html").write_text(
        "<!doctype html><title>Medals</title><table><tr><th>Land<th>Gold<th>Silver"
        "<tr><td rowspan=2>Norway<td>16<td>8<tr><td>14<td>14<tr><td>Sweden<td>8<td>5</table>"
        "<script>document.write('Norway won 99')</script>"
    )
    fewest = min(books["shelves"], key=lambda one: one["books"])["name"]
    return {
        "in_which_year_did_the_expedition_leave": "1932",
        "how_many_passengers_were_aboard": "318",
        "how_often_is_an_owl_named": str(poem.count("owl")),
        "how_tall_are_all_elms_together": str(sum(height for _, kind, height in plants if kind == "elm")),
        "which_shelf_has_the_fewest_books": fewest,
        "how_much_gold_did_norway_win": "30",
    }


def documents() -> Keys:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    items = [("Tents", 4), ("Ropes", 12), ("Stoves", 3)]
    cells = "".join(
        "<w:tr>" + "".join(f"<w:tc><w:p><w:r><w:t>{one}</w:t></w:r></w:p></w:tc>" for one in row) + "</w:tr>"
        for row in [("item", "count"), *items]
    )
    body = (
        '<w:p><w:commentRangeStart w:id="0"/><w:r><w:t>We leave in June.</w:t></w:r><w:commentRangeEnd w:id="0"/>'
        f'<w:r><w:commentReference w:id="0"/></w:r></w:p><w:tbl>{cells}</w:tbl>'
    )
    text = "<w:p><w:r><w:t>Rather on 14 July.</w:t></w:r></w:p>"
    comment = f'<w:comment w:id="0" w:author="Ragna" w:initials="R">{text}</w:comment>'
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    package = "http://schemas.openxmlformats.org/package/2006"
    _zip(
        "plan.docx",
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/>'
            f'<Override PartName="/word/comments.xml" ContentType="{kind}.comments+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{office}/comments" Target="comments.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
            "word/comments.xml": f'<w:comments xmlns:w="{word}">{comment}</w:comments>',
        },
    )
    chapters = {
        "harbour": "The gulls cried.",
        "storm": "A whale came up.",
        "island": "The whale was gone, the whale!",
    }
    pages = {
        f"{name}.xhtml": f"<html><body><h1>{name}</h1><p>{text}</p></body></html>"
        for name, text in chapters.items()
    }
    manifest = "".join(f'<item id="{name}" href="{name}.xhtml"/>' for name in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    _zip(
        "novel.epub",
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
            '<rootfiles><rootfile full-path="book.opf"/></rootfiles></container>',
            "book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata/>'
            f"<manifest>{manifest}</manifest><spine>{spine}</spine></package>",
            **pages,
        },
    )
    return {
        "on_which_day_would_ragna_leave": "14 July",
        "how_many_things_are_packed": str(sum(count for _, count in items)),
        "in_how_many_chapters_is_there_a_whale": str(sum("whale" in text for text in chapters.values())),
    }


def slides() -> Keys:
    deck = Presentation()
    for title in ("Whales", "Ships", "More on whales", "The end"):
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = title
    deck.save("talk.pptx")

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    data = CategoryChartData()
    data.categories = ["2019", "2020", "2021", "2022"]
    visitors = [_random.randint(100, 999) for _ in range(4)]
    data.add_series("visitors", visitors)
    place = (Inches(1), Inches(1), Inches(6), Inches(4))
    slide.shapes.add_chart(XL_CHART_TYPE.LINE, *place, data)
    slide.notes_slide.notes_text_frame.text = "Say that the roof was closed in 2020."
    grid = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_table(4, 2, *place).table
    rooms = [("room", "seats"), *((f"Hall {n}", _random.randint(20, 200)) for n in (1, 2, 3))]
    for row, values in enumerate(rooms):
        for column, value in enumerate(values):
            grid.cell(row, column).text = str(value)
    deck.save("museum.pptx")
    most = data.categories[visitors.index(max(visitors))].label
    return {
        "how_many_slides_are_about_whales": "2",
        "in_which_year_came_most_visitors": str(most),
        "what_was_closed_in_2020": "roof",
        "how_many_seats_have_all_halls": str(sum(seats for _, seats in rooms[1:])),
    }


def printed() -> Keys:
    import matplotlib as mpl

    mpl.use("pdf")
    from matplotlib import pyplot
    from matplotlib.backends.backend_pdf import PdfPages

    fees = [(city, _random.randint(100, 900)) for city in CITIES]
    with PdfPages("fees.pdf") as pdf:
        for text in ("Fees of harbours", "See the table on the next page", ""):
            figure = pyplot.figure()
            if text:
                figure.text(0.1, 0.5, text)
            else:
                axes = figure.subplots()
                axes.axis("off")
                axes.table(
                    [[city, str(fee)] for city, fee in fees], colLabels=["harbour", "fee"], loc="center"
                )
            pdf.savefig(figure)
            pyplot.close(figure)
    pages = [_picture((1240, 700), ["Minutes of the board", f"Present: {n} members"], 56) for n in (11, 17)]
    pages[0].save("minutes.pdf", save_all=True, append_images=pages[1:], resolution=150)
    return {
        "what_are_the_fees_of_all_harbours": str(sum(fee for _, fee in fees)),
        "on_which_page_are_the_fees": "3",
        "how_many_members_were_present_on_the_second_page": "17",
    }


def pictures() -> Keys:
    _picture((600, 160), ["PLATFORM 42"], 72).save("sign.png")
    pages = [
        _picture((900, 300), [f"Invoice {n}", f"Total: {amount} kr"], 60)
        for n, amount in ((1, 350), (2, 871))
    ]
    pages[0].save("invoices.tiff", save_all=True, append_images=pages[1:])
    photo = Image.effect_noise((320, 200), 40)
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2017:05:21 06:41:00"
    exif[0x0110] = "Hasselblad X2"
    photo.save("glacier.jpg", exif=exif)
    return {
        "what_platform_does_the_sign_name": "42",
        "what_does_the_second_invoice_come_to": "871",
        "on_which_day_was_the_glacier_photographed": "2017-05-21",
    }


def sound_and_film() -> Keys:
    def flite(words: str) -> list[str]:
        return ["-f", "lavfi", "-i", f"flite=text='{words}':voice=slt"]

    number = "47193"
    _ffmpeg(*flite(" ".join(DIGITS[int(one)] for one in number)), "digits.wav")
    late = "914"
    silence = ["-f", "lavfi", "-t", "4", "-i", "anullsrc=r=16000"]
    join = ["-filter_complex", "[0][1]concat=v=0:a=1", "-ar", "16000", "-ac", "1"]
    _ffmpeg(*silence, *flite(" ".join(DIGITS[int(one)] for one in late)), *join, "message.wav")
    _ffmpeg(
        *silence[:3], "93.5", *silence[4:], "-metadata", "title=Fjord", "-metadata", "artist=Liv", "tune.mp3"
    )
    for second, code in enumerate((3107, 8264, 5591)):
        _picture((640, 360), [f"CODE {code}"], 96).save(f"frame{second}.png")
    _ffmpeg("-framerate", "1", "-i", "frame%d.png", "-r", "10", "-pix_fmt", "yuv420p", "film.mp4")
    for one in Path().glob("frame*.png"):
        one.unlink()
    return {
        "which_number_is_spoken": number,
        "which_number_is_spoken_at_the_end": late,
        "how_many_whole_seconds_has_the_tune": "93",
        "which_code_is_shown_in_the_second_second": "8264",
    }


def archives() -> Keys:
    stock = [(f"part{n}", _random.randint(1, 50)) for n in range(20)]
    table = "\n".join(["part,stock", *(f"{name},{count}" for name, count in stock)])
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr("depot/stock.csv", table)
    _zip("backup.zip", {"2024/inner.zip": inner.getvalue(), "2024/readme.txt": "see inside"})
    letter = b"The key lies under stone 64."
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("letter.txt", letter)
    with tarfile.open("estate.tar.gz", "w:gz") as bundle:
        entry = tarfile.TarInfo("box/papers.zip")
        entry.size = len(packed.getvalue())
        packed.seek(0)
        bundle.addfile(entry, packed)
    Path("secret.txt").write_text("The vault opens with 90210.\n")
    traditional = ["--options", "zip:encryption=traditional", "--passphrase", "sesame"]
    subprocess.run(["bsdtar", "-a", *traditional, "-cf", "vault.zip", "secret.txt"], check=True)
    Path("crew.txt").write_text("Ada\nBo\nCal\nDee\n")
    subprocess.run(["bsdtar", "-a", "-cf", "crew.7z", "crew.txt"], check=True)
    for name in ("secret.txt", "crew.txt"):
        Path(name).unlink()
    return {
        "how_many_parts_are_in_stock": str(sum(count for _, count in stock)),
        "under_which_stone_lies_the_key": "64",
        "with_which_number_opens_the_vault": "90210",
        "how_many_are_in_the_crew": "4",
    }


def science() -> Keys:
    Path("position.fen").write_text("6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1\n")
    atoms = [(1.0, 2.0, 3.0), (4.0, 6.0, 3.0), (0.0, 0.0, 9.5)]
    lines = [
        f"ATOM  {n:5d}  {name:<3} GLY A   1    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00           {name[0]}"
        for n, (name, (x, y, z)) in enumerate(zip(("N", "CA", "C"), atoms, strict=True), 1)
    ]
    _lines("protein.pdb", ["HEADER    TEST", *lines, "END"])
    points = [_random.uniform(-5, 5) for _ in range(64)]
    Path("samples.bin").write_bytes(struct.pack("<64d", *points))
    return {
        "which_move_mates": "Ra8#",
        "how_far_apart_are_the_first_two_atoms": f"{math.dist(atoms[0], atoms[1]):.3f}",
        "what_is_the_mean_of_the_samples": f"{math.fsum(points) / 64:.4f}",
    }


def site() -> Keys:
    folder = Path("site")
    folder.mkdir()
    (folder / "index.html").write_text(
        "<title>Museum</title><h1>Museum</h1><a href='/hours.html'>Opening hours</a> <a href='/find.html'>Find</a>"
    )
    (folder / "hours.html").write_text("<title>Hours</title><p>On Sundays the museum opens at 11:30.</p>")
    (folder / "find.html").write_text(
        "<title>Find</title><form action=/found><input name=ship aria-label=Ship>"
        "<select name=year aria-label=Year><option>1905<option>1911</select><button>Search</button></form>"
    )
    ships = {("Fram", "1905"): 13, ("Fram", "1911"): 19, ("Gjoa", "1905"): 7}
    (folder / "ships.json").write_text(json.dumps([[*key, crew] for key, crew in ships.items()]))
    (folder / "tides.csv").write_text("hour,level\n0,12\n6,-31\n12,44\n18,-8\n")
    return {
        "when_does_the_museum_open_on_sundays": "11:30",
        "how_large_was_the_crew_of_the_fram_in_1911": str(ships["Fram", "1911"]),
        "what_was_the_range_of_the_tides": "75",
        "what_does_the_page_on_hours_say": "11:30",
        "how_high_is_the_lighthouse": "38",
    }


def _picture(size: tuple[int, int], lines: list[str], points: int) -> Image.Image:
    image = Image.new("RGB", size, "white")
    font = ImageFont.load_default(points)
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((30, 40 + number * points * 2), line, fill="black", font=font)
    return image


def _zip(name: str, parts: dict[str, str | bytes]) -> None:
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as file:
        for part, content in parts.items():
            kind = zipfile.ZIP_STORED if part == "mimetype" else zipfile.ZIP_DEFLATED
            file.writestr(part, content, kind)


def _lines(name: str, lines: list[str]) -> None:
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", *arguments], check=True)


MAKERS: tuple[Callable[[], Keys], ...] = (
    sheets,
    open_document,
    tables_as_text,
    texts,
    documents,
    slides,
    printed,
    pictures,
    sound_and_film,
    archives,
    science,
    site,
)

if __name__ == "__main__":
    main()
