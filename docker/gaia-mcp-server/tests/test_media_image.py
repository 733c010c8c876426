"""Pictures of ordinary kinds are read, described and shown to a model; hostile ones are refused in time."""

import base64
import io
import json
import struct
import subprocess
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools.media_image import server
from PIL import Image, ImageDraw, ImageFont
from PIL.TiffImagePlugin import IFDRational

from tests.conftest import call, content, needs, refusal, text

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
    said = await refusal(server, "extract_text_ocr", file_path="empty.png", language="xyz+eng")
    assert "no data for 'xyz'" in said and "eng" in said
    for odd in ("../../etc/passwd", "-c", "eng;ls", ""):
        assert "is no language" in await refusal(
            server, "extract_text_ocr", file_path="empty.png", language=odd
        )


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
        ("a.svg", b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "it is SVG"),
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
    assert "WEBP" in said and "Text is read in: eng" in said and "is not set" in said
    monkeypatch.setenv("PATH", "/nowhere")
    assert "cannot be read in this environment" in await refusal(server, "get_image_capabilities")
