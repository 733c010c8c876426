"""Videos are looked at frame by frame by a model, and frames are written; what is no video is refused."""

import base64
import io
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import media_video, video_frames
from gaia_tools.media_video import server
from PIL import Image

from tests.conftest import call, content, needs, refusal, text

COLOURS = ("red", "lime", "blue")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 6 seconds: two red, two green, two blue, with a tone."""
    needs("ffmpeg")
    path = tmp_path_factory.mktemp("made") / "colours.mp4"
    inputs = [
        part for colour in COLOURS for part in ("-f", "lavfi", "-i", f"color={colour}:s=320x240:r=10:d=2")
    ]
    tone = ["-f", "lavfi", "-i", "sine=d=6"]
    joined = ["-filter_complex", "[0][1][2]concat=n=3[v]", "-map", "[v]", "-map", "3:a"]
    command = ["ffmpeg", "-v", "error", *inputs, *tone, *joined, "-c:v", "mpeg4", "-q:v", "2", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def video(made: Path, workspace: Path) -> str:
    shutil.copy(made, workspace / "colours.mp4")
    return "colours.mp4"


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[list[dict[str, Any]]]]:
    """A model that says the colours it is shown, at their times; the messages it was sent are in the list."""
    asked: list[list[dict[str, Any]]] = []

    async def completions(request: http.Request) -> http.Response:
        body = await request.json()
        asked.append(body["messages"])
        said = said_of(body["messages"][-1]["content"])
        return http.json_response({"model": "watcher", "choices": [{"message": {"content": said}}]})

    app = http.Application(client_max_size=50 << 20)
    app.router.add_post("/v1/chat/completions", completions)
    endpoint = TestServer(app)
    await endpoint.start_server()
    monkeypatch.setenv("VIDEO_LLM_BASE_URL", f"http://127.0.0.1:{endpoint.port}/v1")
    monkeypatch.setenv("VIDEO_LLM_API_KEY", "secret-key")
    monkeypatch.setenv("VIDEO_LLM_MODEL_NAME", "watcher")
    yield asked
    await endpoint.close()


def said_of(parts: Any) -> str:
    if isinstance(parts, str):
        return f"merged: {parts}"
    said = []
    for time, picture in zip(parts[:-1:2], parts[1:-1:2], strict=True):
        data = base64.b64decode(picture["image_url"]["url"].partition(",")[2])
        said.append(f"{time['text']} {colour_of(Image.open(io.BytesIO(data)))}")
    return "\n".join(said)


def colour_of(image: Image.Image) -> str:
    shade = image.convert("RGB").getpixel((image.width // 2, image.height // 2))
    return COLOURS[max(range(3), key=lambda one: shade[one])]  # type: ignore[index]


async def test_frames_are_seen_in_order_with_their_times(video: str, model: list[Any]) -> None:
    found = await content(server, "analyze_video", video_url=video, question="Which colours?")
    assert found["answer"].splitlines() == [
        f"At {second} seconds: {COLOURS[min(second // 2, 2)]}" for second in (0, 1, 2, 3, 4, 5)
    ] + ["At 5.95 seconds: blue"]
    assert model[0][-1]["content"][-1]["text"] == "Which colours?" and found["model"] == "watcher"
    part = await content(
        server, "analyze_video", video_url=video, question="?", start_time=2.5, end_time=3.5, sample_rate=2
    )
    assert part["frames"] == [2.5, 3.0, 3.45] and "red" not in part["answer"]


async def test_many_frames_are_seen_in_parts_and_put_together(
    video: str, model: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_video, "_FRAMES_AT_ONCE", 3)
    found = await content(server, "analyze_video", video_url=video, question="Which?")
    assert found["requests"] == 4 and len(found["frames"]) == 7
    assert found["answer"].startswith("merged:") and "Task: Which?" in found["answer"]
    assert found["answer"].index("At 0 seconds: red") < found["answer"].index("At 5 seconds: blue")


async def test_what_a_model_refuses_in_a_part_is_said(
    video: str, model: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_video, "_FRAMES_AT_ONCE", 3)
    monkeypatch.setenv("VIDEO_LLM_BASE_URL", os.environ["VIDEO_LLM_BASE_URL"] + "/nowhere")
    said = await refusal(server, "analyze_video", video_url=video, question="?")
    assert "answered 404" in said and "VIDEO_LLM_BASE_URL" in said


async def test_too_many_frames_are_spread_and_that_is_said(
    video: str, model: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_video, "_MAX_FRAMES", 4)
    result = await call(server, "analyze_video", video_url=video, question="?", sample_rate=10)
    assert result.structuredContent is not None and result.structuredContent["frames"] == [0, 1.5, 3, 4.5]
    assert "4 frames were looked at, not 61" in text(result)


def test_times_are_spread_within_the_stretch() -> None:
    assert video_frames.spread(10, 13, 1, 96) == [10, 11, 12, 12.95]
    assert video_frames.spread(0, 0.3, 1, 96) == [0]
    assert video_frames.spread(0, 100, 1, 4) == [0, 25, 50, 75]


async def test_a_video_is_summed_up(video: str, model: list[Any]) -> None:
    found = await content(server, "summarize_video", video_url=video)
    assert all(colour in found["answer"] for colour in COLOURS)
    assert "Summarise the video" in model[0][-1]["content"][-1]["text"]


async def test_frames_are_written_where_scenes_begin(video: str, workspace: Path) -> None:
    found = await content(server, "extract_keyframes", video_path=video, target_time=3.0, window_size=4)
    seen = [(one["seconds"], one["reason"]) for one in found["frames"]]
    assert seen == [
        (1.0, "the beginning of the window"),
        (2.0, "the beginning of a scene"),
        (3.0, "the time asked for"),
        (4.0, "the beginning of a scene"),
    ]
    pictures = [Image.open(workspace / one["file"]) for one in found["frames"]]
    assert [colour_of(one) for one in pictures] == ["red", "lime", "lime", "blue"]
    assert pictures[0].size == (320, 240) and found["frames"][0]["file"] == "keyframes/colours_1.00s.jpg"
    end = await content(
        server, "extract_keyframes", video_path=video, target_time=6.0, window_size=1, output_dir="end"
    )
    assert end["frames"][-1]["reason"] == "the time asked for"


async def test_frames_are_written_into_the_workspace_only(video: str) -> None:
    said = await refusal(server, "extract_keyframes", video_path=video, target_time=1, output_dir="/tmp/x")
    assert "is outside" in said


@pytest.fixture
async def site(made: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async def film(request: http.Request) -> http.FileResponse:
        return http.FileResponse(made)

    async def seen(request: http.Request) -> http.Response:
        return http.Response(text="<html>Watch it here</html>", content_type="text/html")

    async def gone(request: http.Request) -> http.Response:
        raise http.HTTPNotFound

    async def playlist(request: http.Request) -> http.Response:
        return http.Response(text="#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile:///etc/passwd\n")

    app = http.Application()
    for path, handler in (("film", film), ("page", seen), ("gone", gone), ("list", playlist)):
        app.router.add_get(f"/{path}", handler)
    other = TestServer(app)
    await other.start_server()
    monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"127.0.0.1:{other.port}")
    yield f"http://127.0.0.1:{other.port}"
    await other.close()


async def test_an_address_of_a_video_is_downloaded_and_seen(site: str, model: list[Any]) -> None:
    found = await content(server, "analyze_video", video_url=f"{site}/film", question="?", end_time=1)
    assert "red" in found["answer"] and "blue" not in found["answer"]


async def test_addresses_that_are_no_video_are_refused_with_what_they_are(
    site: str, model: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, said in (
        (f"{site}/page", "is a web page, no video file"),
        (f"{site}/gone", "answered 404"),
        (f"{site}/list", "list of other files"),
        ("https://www.youtube.com/watch?v=x", "is the page of a video on www.youtube.com"),
        ("https://youtu.be/x", "look for a transcript"),
        ("http://169.254.169.254/film.mp4", "not a public address"),
        ("file:///etc/passwd", "is no file"),
        ("/etc/passwd", "is outside"),
    ):
        assert said in await refusal(server, "analyze_video", video_url=url, question="?"), url
    assert model == []


async def test_files_that_are_no_video_are_refused(workspace: Path, made: Path, model: list[Any]) -> None:
    whole = made.read_bytes()  # noqa: ASYNC240
    (workspace / "half.mp4").write_bytes(whole[: len(whole) // 2])  # its index is at the end
    (workspace / "noise.mp4").write_bytes(bytes(range(256)) * 100)
    (workspace / "empty.mp4").write_bytes(b"")
    for name, said in (
        ("half.mp4", "damaged"),
        ("noise.mp4", "damaged"),
        ("empty.mp4", "0 bytes"),
        ("none.mp4", "no file"),
    ):
        assert said in await refusal(server, "analyze_video", video_url=name, question="?"), name
        assert said in await refusal(server, "extract_keyframes", video_path=name, target_time=0), name
    assert model == []


async def test_times_that_are_not_there_are_refused(video: str, model: list[Any]) -> None:
    ask = {"video_url": video, "question": "?"}
    assert "nothing at 60" in await refusal(server, "analyze_video", **ask, start_time=60)
    assert "later than start_time" in await refusal(server, "analyze_video", **ask, start_time=3, end_time=2)
    assert "nothing at 60" in await refusal(server, "extract_keyframes", video_path=video, target_time=60)


async def test_sound_alone_and_a_missing_model_are_said(workspace: Path, video: str) -> None:
    assert "VIDEO_LLM_BASE_URL is not set" in await refusal(
        server, "analyze_video", video_url=video, question="?"
    )
    tone = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "sine=d=1", str(workspace / "tone.wav")]
    subprocess.run(tone, check=True)  # noqa: ASYNC221
    assert "use transcribe_audio" in await refusal(
        server, "extract_keyframes", video_path="tone.wav", target_time=0
    )


async def test_what_can_be_done_is_said() -> None:
    needs("ffmpeg")
    said = text(await call(server, "get_video_capabilities"))
    assert said.startswith("ffmpeg version") and "at most 96 frames" in said and "is not set" in said
