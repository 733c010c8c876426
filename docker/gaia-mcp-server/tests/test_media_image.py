"""Pictures of ordinary kinds are read, described and shown to a model; hostile ones are refused in time."""

import base64
import difflib
import gzip
import io
import json
import socket
import struct
import subprocess
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import ocr, svg
from gaia_tools.media_image import server
from PIL import Image, ImageDraw, ImageFont
from PIL.TiffImagePlugin import IFDRational

from tests.conftest import call, content, needs, refusal, text
from tests.documents_made import laughs

SVG_TAG = b'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">'
LINES = "Invoice 4711\nTotal 1234.56 EUR"


def drawn(words: str = LINES, size: int = 40, ground: str = "white", ink: str = "black") -> Image.Image:
    image = Image.new("RGB", (size * 14, size * (2 + 2 * words.count("\n"))), ground)
    ImageDraw.Draw(image).multiline_text((size, size // 2), words, ink, ImageFont.load_default(size))
    return image


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.png", {}),
        ("a.jpg", {"quality": 90}),
        ("a.webp", {"lossless": True}),
        ("a.gif", {}),
        ("a.bmp", {}),
        ("a.tiff", {"compression": "tiff_lzw"}),
        ("a.avif", {"quality": 90}),
    ],
)
async def test_text_is_read_from_each_kind(workspace: Path, name: str, options: dict[str, Any]) -> None:
    needs("tesseract")
    drawn().save(workspace / name, **options)
    found = await content(server, "extract_text_ocr", file_path=name)
    assert found["text"].split() == LINES.split() and found["confidence"] > 80 and found["words"] == 5


async def test_text_is_read_that_is_small_or_light_or_on_its_side_or_transparent(workspace: Path) -> None:
    needs("tesseract")
    drawn(size=13).save(workspace / "small.png")
    drawn(ground="#102040", ink="#ffe0c0").save(workspace / "light.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    drawn().transpose(Image.Transpose.ROTATE_90).save(workspace / "side.jpg", exif=exif)
    drawn().convert("CMYK").save(workspace / "cmyk.jpg")
    clear = drawn().convert("RGBA")
    clear.putalpha(drawn().convert("L").point(lambda value: 255 - value))
    clear.save(workspace / "clear.png")
    Image.frombytes("I;16", drawn().size, drawn().convert("I;16").tobytes()).save(workspace / "deep.png")
    for name in ("small.png", "light.png", "side.jpg", "cmyk.jpg", "clear.png", "deep.png"):
        found = await content(server, "extract_text_ocr", file_path=name)
        assert found["text"].split() == LINES.split(), name


async def test_all_pages_of_a_tiff_are_read(workspace: Path) -> None:
    needs("tesseract")
    pages = [drawn(f"Page number {number}") for number in (1, 2, 3)]
    pages[0].save(workspace / "scan.tiff", save_all=True, append_images=pages[1:])
    found = await content(server, "extract_text_ocr", file_path="scan.tiff")
    assert found["text"].split("\n\f\n") == ["Page number 1", "Page number 2", "Page number 3"]
    pages[0].save(workspace / "moving.gif", save_all=True, append_images=pages[1:], duration=100)
    result = await call(server, "extract_text_ocr", file_path="moving.gif")
    assert "Page number 1" in text(result) and "of 3 frames or pages only the first 1" in text(result)


async def test_an_empty_page_and_an_unknown_language_are_said(workspace: Path) -> None:
    needs("tesseract")
    Image.new("RGB", (300, 300), "white").save(workspace / "empty.png")
    assert "no text was found" in text(await call(server, "extract_text_ocr", file_path="empty.png"))
    message = await refusal(server, "extract_text_ocr", file_path="empty.png", language="xyz+eng")
    assert "no data to read 'xyz'" in message and "eng (English)" in message
    for odd in ("../../etc/passwd", "-c", "eng;ls", "", "osd", "auto+eng"):
        message = await refusal(server, "extract_text_ocr", file_path="empty.png", language=odd)
        assert "eng (English)" in message, odd


@pytest.mark.parametrize("clockwise", [90, 180, 270])
async def test_turned_pictures_are_read_and_said_to_be_turned(workspace: Path, clockwise: int) -> None:
    needs("tesseract")
    lines = "Invoice number 4711\nTotal amount 98.50\nThe committee met\nin northern towns"
    back = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
    drawn(lines).transpose(back[clockwise]).save(workspace / "turned.png")
    result = await call(server, "extract_text_ocr", file_path="turned.png")
    assert result.structuredContent is not None
    assert result.structuredContent["text"].split() == lines.split()
    assert result.structuredContent["turned"] == [clockwise]
    assert f"turned clockwise to be read: by {clockwise} degrees" in text(result)


async def test_an_upright_picture_is_read_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detecting orientation takes half the time of reading, and is not done where the text is clear."""
    needs("tesseract")
    readings: list[int] = []
    read = ocr._reading

    def counted(image: Image.Image, language: str, turn: int) -> Any:
        reading = read(image, language, turn)
        readings.append(reading.turned)
        return reading

    monkeypatch.setattr(ocr, "_reading", counted)
    drawn().save(workspace / "a.png")
    assert ocr.read_text(workspace / "a.png", "auto", True)["turned"] == [0]
    assert readings == [0]


SCRIPTS = {
    "eng": "The quick brown fox jumps over\nthe lazy dog in the year 1987",
    "rus": "Комитет рассмотрел отчёт\nо торговле за 1987 год\nв северных областях страны",
    "ell": "Η γρήγορη αλεπού πηδάει πάνω\nαπό το σκυλί το έτος 1987\nκαι η τιμή ήταν μεγάλη",
}


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("is_turned", [False, True])
async def test_the_script_is_found(workspace: Path, language: str, is_turned: bool) -> None:
    needs_language(language)
    words = SCRIPTS[language]
    page = in_script(words)
    (page.rotate(180) if is_turned else page).save(workspace / "a.png")
    found = await content(server, "extract_text_ocr", file_path="a.png")
    assert found["language"] == language and found["confidence"] > 80
    assert similar(found["text"], words) > 0.9
    assert found["turned"] == [180 * is_turned]


async def test_several_languages_are_read_with_their_letters(workspace: Path) -> None:
    needs_language("deu")
    needs_language("fra")
    words = "Die Größe der Häuser für müde\nBürger übertraf alles.\nL'été dernier, la forêt brûlait."
    in_script(words).save(workspace / "a.png")
    for named in ("deu+fra", "deu, fra", "FRA deu"):
        found = await content(server, "extract_text_ocr", file_path="a.png", language=named)
        assert similar(found["text"], words) > 0.95, found["text"]


async def test_columns_of_characters_are_read_downwards(workspace: Path) -> None:
    needs_language("jpn")
    needs_language("jpn_vert")
    needs("fc-match")
    found = subprocess.run(["fc-match", "-f", "%{file}", ":lang=ja"], capture_output=True, text=True)  # noqa: ASYNC221
    font = found.stdout
    if "DejaVu" in font:
        needs("a font with Japanese characters")
    columns = ["吾輩は猫である。名前はまだ無い。", "どこで生れたかとんと見当がつかぬ。"] * 3
    page = Image.new("L", (700, 900), 255)
    for number, column in enumerate(columns):
        for place, character in enumerate(column):
            position = (600 - 70 * number, 60 + 44 * place)
            ImageDraw.Draw(page).text(position, character, 0, ImageFont.truetype(font, 40))
    page.save(workspace / "a.png")
    found = await content(server, "extract_text_ocr", file_path="a.png", language="jpn")
    assert similar(found["text"], "\n".join(columns)) > 0.85, found["text"]


def in_script(words: str) -> Image.Image:
    """A page in a font that comes with matplotlib and has most European letters."""
    font = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSerif.ttf")
    page = Image.new("L", (1000, 400), 255)
    ImageDraw.Draw(page).multiline_text((60, 60), words, 0, ImageFont.truetype(str(font), 40), spacing=16)
    return page


def similar(one: str, other: str) -> float:
    """From 0 to 1: one letter that is read wrongly does not make a reading useless."""
    return difflib.SequenceMatcher(None, one, other).ratio()


def needs_language(code: str) -> None:
    needs("tesseract")
    if code not in ocr._installed():
        needs(f"tesseract's data for {code}")


DRAWING = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="300" height="100">
<title>Sales</title><style>@import url(http://127.0.0.1:1/a.css); .a {{ fill: #000080 }}</style>
<script>throw 1</script><image xlink:href="{address}" width="300" height="100"/>
<text class="a" x="20" y="60" font-size="30" font-family="No Such Font">Total 4711 EUR</text></svg>"""


async def test_drawings_in_svg_are_read_described_and_shown(
    workspace: Path, model: list[dict[str, Any]]
) -> None:
    needs("tesseract")
    drawing = DRAWING.format(address="#nothing").encode()
    (workspace / "a.svg").write_bytes(drawing)
    (workspace / "a.svgz").write_bytes(gzip.compress(drawing))
    for name in ("a.svg", "a.svgz"):
        assert (await content(server, "extract_text_ocr", file_path=name))["text"] == "Total 4711 EUR"
        metadata = await content(server, "get_image_metadata", file_path=name)
        assert (metadata["format"], metadata["width"], metadata["height"]) == ("SVG", 300, 100)
        assert metadata["texts"] == {"title": "Sales", "text": "Total 4711 EUR"}
        await content(server, "analyze_image_ai", file_path=name)
        assert picture_in(model[-1]).size == (2000, 667)
        assert picture_in(model[-1]).convert("RGB").getcolors(1 << 20)[-1][1] != (0, 0, 0)  # type: ignore[index]


async def test_a_drawing_fetches_nothing_that_is_outside_it(workspace: Path) -> None:
    Image.new("RGB", (300, 100), "red").save(workspace / "red.png")
    red = base64.b64encode((workspace / "red.png").read_bytes()).decode()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        outside = [
            f"http://127.0.0.1:{listening.getsockname()[1]}/red.png",
            str(workspace / "red.png"),
            (workspace / "red.png").as_uri(),
            "red.png",
        ]
        for address in [*outside, f"data:image/png;base64,{red}"]:
            (workspace / "a.svg").write_text(DRAWING.format(address=address))
            corner = Image.open(io.BytesIO(svg.as_png(workspace / "a.svg"))).convert("RGB").getpixel((5, 5))
            assert corner == ((255, 0, 0) if address.startswith("data:") else (255, 255, 255)), address
        listening.settimeout(0.01)
        with pytest.raises(TimeoutError):
            listening.accept()


async def test_drawings_that_grow_without_end_are_refused(workspace: Path) -> None:
    (workspace / "laughs.svg").write_bytes(laughs().replace(b"<x>", SVG_TAG).replace(b"</x>", b"</svg>"))
    assert "is SVG, and damaged" in await refusal(server, "get_image_metadata", file_path="laughs.svg")
    (workspace / "zeros.svgz").write_bytes(gzip.compress(SVG_TAG + b" " * (30 << 20) + b"</svg>"))
    assert "more than 20 MB" in await refusal(server, "get_image_metadata", file_path="zeros.svgz")
    uses = "".join(f'<g id="g{n}">{f"""<use href="#g{n - 1}"/>""" * 10}</g>' for n in range(1, 12))
    content = f'{SVG_TAG.decode()}<g id="g0"><rect width="1" height="1"/></g>{uses}<use href="#g11"/></svg>'
    (workspace / "uses.svg").write_text(content)
    await refusal(server, "extract_text_ocr", file_path="uses.svg")


async def test_the_file_says_camera_time_and_place(workspace: Path) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0132] = "Maker", "Model 1", "2024:05:06 07:08:09"
    exif.get_ifd(0x8769)[0x9003] = "2024:05:06 07:08:09"
    degrees = (IFDRational(48), IFDRational(51), IFDRational(2964, 100))
    west = (IFDRational(2), IFDRational(17), IFDRational(4020, 100))
    exif.get_ifd(0x8825).update({1: "N", 2: degrees, 3: "W", 4: west})
    drawn().save(workspace / "photo.jpg", exif=exif, dpi=(300, 300), comment=b"a comment")
    found = await content(server, "get_image_metadata", file_path="photo.jpg")
    assert (found["format"], found["width"], found["height"]) == ("JPEG", 560, 160)
    assert found["exif"]["Model"] == "Model 1" and found["exif"]["DateTimeOriginal"] == "2024:05:06 07:08:09"
    assert (found["gps"]["latitude"], found["gps"]["longitude"]) == (48.8582333, -2.2945)
    assert found["texts"]["comment"] == "a comment" and found["dpi"] == [300, 300]


async def test_frames_transparency_and_texts_are_said(workspace: Path) -> None:
    frames = [Image.new("RGB", (20, 10), (60 * number, 0, 0)) for number in range(4)]
    frames[0].save(workspace / "a.gif", save_all=True, append_images=frames[1:], duration=80)
    found = await content(server, "get_image_metadata", file_path="a.gif")
    assert (found["frames"], found["animated"], found["duration_ms"]) == (4, True, 80)
    from PIL.PngImagePlugin import PngInfo

    note = PngInfo()
    note.add_text("Author", "Someone")
    Image.new("RGBA", (5, 5)).save(workspace / "a.png", pnginfo=note)
    found = await content(server, "get_image_metadata", file_path="a.png")
    assert found["has_transparency"] and found["texts"] == {"Author": "Someone"} and found["exif"] == {}


async def test_photographs_of_phones_are_read(workspace: Path) -> None:
    needs("tesseract")
    needs("heif-convert")
    needs("heif-enc")
    exif = Image.Exif()
    exif[0x0110], exif[0x0112] = "Phone", 6  # as phones write it, beside HEIF's own turning
    drawn().save(workspace / "a.jpg", quality=95, exif=exif)
    encode = ["heif-enc", "-q", "90", "-o", str(workspace / "a.heic"), str(workspace / "a.jpg")]
    subprocess.run(encode, check=True, capture_output=True)  # noqa: ASYNC221
    found = await content(server, "extract_text_ocr", file_path="a.heic")
    assert found["text"].split() == LINES.split()
    said = await content(server, "get_image_metadata", file_path="a.heic")
    assert (said["format"], said["mime"], said["exif"]["Model"]) == ("HEIF", "image/heif", "Phone")


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def truncated() -> bytes:
    written = io.BytesIO()
    drawn().save(written, "JPEG", quality=95)
    return written.getvalue()[: len(written.getvalue()) // 2]


@pytest.mark.parametrize("tool", ["get_image_metadata", "extract_text_ocr", "analyze_image_ai"])
@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.png", b"", "0 bytes"),
        ("noise.png", bytes(range(256)) * 9, "damaged, or of a kind"),
        ("bomb.png", png(60_000, 60_000, b""), "60000 x 60000 pixels"),
        ("a.jpg", b"%PDF-1.7\n", "PDF document"),
        ("a.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PostScript"),
        ("a.gif", b"<!DOCTYPE html><html>", "web page"),
        ("a.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(300), "HEIC"),
    ],
)
async def test_what_is_no_picture_to_read_is_refused_with_what_it_is(
    workspace: Path, model: list[Any], tool: str, name: str, data: bytes, said: str
) -> None:
    needs("tesseract")
    (workspace / name).write_bytes(data)
    assert said in await refusal(server, tool, file_path=name)
    assert model == []


async def test_cut_off_pictures_are_refused_and_described_as_far_as_they_go(
    workspace: Path, model: list[Any]
) -> None:
    needs("tesseract")
    (workspace / "half.jpg").write_bytes(truncated())
    (workspace / "short.png").write_bytes(png(500, 500, bytes(1000)))
    for name in ("half.jpg", "short.png"):
        assert "damaged or cut off" in await refusal(server, "extract_text_ocr", file_path=name)
        assert "damaged or cut off" in await refusal(server, "analyze_image_ai", file_path=name)
    assert (await content(server, "get_image_metadata", file_path="half.jpg"))["width"] == 560


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[str, Any]]]:
    """A model that answers as OpenAI's API does; the requests that it had are in the list."""
    asked: list[dict[str, Any]] = []

    async def completions(request: http.Request) -> http.Response:
        asked.append(await request.json())
        message = {"role": "assistant", "content": "<think>Looking.</think>Two lines of text."}
        usage = {"prompt_tokens": 900, "completion_tokens": 5}
        return http.json_response({"model": "seer", "choices": [{"message": message}], "usage": usage})

    app = http.Application(client_max_size=50 << 20)
    app.router.add_post("/v1/chat/completions", completions)
    endpoint = TestServer(app)
    await endpoint.start_server()
    monkeypatch.setenv("IMAGE_LLM_BASE_URL", f"http://127.0.0.1:{endpoint.port}/v1")
    monkeypatch.setenv("IMAGE_LLM_API_KEY", "secret-key")
    monkeypatch.setenv("IMAGE_LLM_MODEL_NAME", "seer")
    yield asked
    await endpoint.close()


def picture_in(request: dict[str, Any]) -> Image.Image:
    address = request["messages"][1]["content"][0]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


async def test_a_model_sees_the_picture_and_the_task(workspace: Path, model: list[dict[str, Any]]) -> None:
    drawn().save(workspace / "a.png")
    found = await content(server, "analyze_image_ai", file_path="a.png", task="How many lines?")
    assert found["answer"] == "Two lines of text."
    assert (found["model"], found["usage"]["prompt_tokens"]) == ("seer", 900)
    assert model[0]["messages"][1]["content"][1]["text"] == "How many lines?"
    assert picture_in(model[0]).size == (560, 160)


async def test_a_large_picture_is_made_smaller_for_the_model(
    workspace: Path, model: list[dict[str, Any]]
) -> None:
    Image.effect_noise((3000, 1500), 90).convert("CMYK").save(workspace / "large.jpg")
    found = await content(server, "analyze_image_ai", file_path="large.jpg")
    assert (found["width"], found["made_smaller"]) == (3000, True)
    assert picture_in(model[0]).size == (2048, 1024)
    assert len(json.dumps(model[0])) < 4_000_000


async def test_without_a_model_the_missing_variable_is_named(workspace: Path) -> None:
    drawn().save(workspace / "a.png")
    assert "IMAGE_LLM_BASE_URL is not set" in await refusal(server, "analyze_image_ai", file_path="a.png")


async def test_what_can_be_done_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tesseract")
    said = text(await call(server, "get_image_capabilities"))
    assert "WEBP" in said and "SVG" in said and "eng (English)" in said and "is not set" in said
    monkeypatch.setenv("PATH", "/nowhere")
    assert "cannot be read in this environment" in await refusal(server, "get_image_capabilities")
