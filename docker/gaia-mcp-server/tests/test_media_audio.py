"""Sound files of many kinds are described, cut and written down; files that are none are refused and open nothing."""

import shutil
import struct
import subprocess
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import speech
from gaia_tools.media_audio import server

from tests.conftest import call, content, needs, refusal, text
from tests.whisper_models import untrained

SPOKEN = "one two three four five six seven eight nine"


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, spoken by a program: 3 seconds."""
    needs("flite")
    needs("ffmpeg")
    path = tmp_path_factory.mktemp("spoken") / "digits.wav"
    subprocess.run(["flite", "-voice", "slt", "-t", SPOKEN, "-o", str(path)], check=True)
    return path


def encoded(source: Path, target: Path, *options: str) -> Path:
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", str(source), *options, str(target)], check=True)
    return target


def sound_of(path: Path) -> bytes:
    return path.read_bytes()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_speech_is_written_down_without_any_key(spoken: Path, workspace: Path) -> None:
    shutil.copy(spoken, workspace / "digits.wav")
    result = await call(server, "transcribe_audio", file_path="digits.wav")
    found = result.structuredContent
    assert found is not None and found["text"] == SPOKEN
    assert (found["transcriber"], found["model"]) == ("pocketsphinx", "en-us")
    assert "by pocketsphinx (en-us)" in text(result) and "knows English only" in text(result)
    assert found["until"] == pytest.approx(found["seconds"], abs=0.1)


async def test_speech_in_a_stereo_video_is_written_down_from_where_it_is_asked(
    spoken: Path, workspace: Path
) -> None:
    path = workspace / "talk.mp4"
    picture = ["-f", "lavfi", "-i", "color=red:s=64x48:r=5", "-shortest", "-af", "adelay=2000|2000"]
    encoded(spoken, path, *picture, "-ac", "2", "-ar", "44100", "-c:v", "mpeg4", "-c:a", "aac")
    found = await content(server, "transcribe_audio", file_path="talk.mp4", start=1.0)
    assert "three four five six seven" in found["text"]
    assert found["segments"][0]["start"] == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp3", "MP3"),
        ("a.ogg", "Vorbis"),
        ("a.flac", "FLAC"),
        ("a.m4a", "AAC"),
        ("a.opus", "Opus"),
        ("a.wav", "PCM"),
        ("a.aiff", "PCM"),
    ],
)
async def test_each_kind_of_file_is_described_and_cut(
    spoken: Path, workspace: Path, name: str, codec: str
) -> None:
    encoded(spoken, workspace / name, "-metadata", "title=Digits")
    found = await content(server, "extract_audio_metadata", file_path=name)
    assert codec in found["codec"] and found["channels"] == 1
    assert found["seconds"] == pytest.approx(3.0, abs=0.2)
    tags = {tag.lower(): value for tag, value in found["tags"].items()}
    assert tags.get("title") == "Digits" or name == "a.aiff"
    trimmed = await content(server, "trim_audio", file_path=name, start_time=1.0, duration=0.5)
    assert trimmed["seconds"] == pytest.approx(0.5, abs=0.08)
    assert trimmed["file"] == name.replace("a.", "a_1-1.5.").replace("aiff", "wav")
    assert (workspace / trimmed["file"]).stat().st_size == trimmed["bytes"]


async def test_what_is_behind_the_end_is_refused(spoken: Path, workspace: Path) -> None:
    shutil.copy(spoken, workspace / "digits.wav")
    for tool, more in (("trim_audio", {"start_time": 99}), ("transcribe_audio", {"start": 99})):
        assert "seconds long; there is nothing at 99" in await refusal(
            server, tool, file_path="digits.wav", **more
        )


async def test_silence_has_no_words(workspace: Path) -> None:
    needs("ffmpeg")
    with wave.open(str(workspace / "silence.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(64000))
    result = await call(server, "transcribe_audio", file_path="silence.wav")
    assert "No speech was heard." in text(result) and result.structuredContent["segments"] == []  # type: ignore[index]


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://{secret}\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{url}/secret.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nconcat:{url}/a|file://{secret}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{secret}'\n",
        "ffconcat version 1.0\nfile '{url}/secret.wav'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet mimeType="audio/mp4"><Representation'
        ' id="a" bandwidth="1"><BaseURL>{url}/a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>',
    ],
)
async def test_a_list_of_other_files_or_addresses_opens_nothing(
    workspace: Path, tmp_path: Path, spoken: Path, playlist: str
) -> None:
    asked: list[str] = []
    sound = sound_of(spoken)

    async def serve(request: http.Request) -> http.Response:
        asked.append(request.path)
        return http.Response(body=sound)

    app = http.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    other = TestServer(app)
    await other.start_server()
    secret = tmp_path / "secret.wav"
    shutil.copy(spoken, secret)
    try:
        for name in ("song.mp3", "song.m3u8"):
            (workspace / name).write_text(
                playlist.format(secret=secret, url=f"http://127.0.0.1:{other.port}")
            )
            said = await refusal(server, "trim_audio", file_path=name, start_time=0)
            assert "list of other files" in said or "cannot be read" in said
    finally:
        await other.close()
    assert asked == [] and names_in(workspace) == ["song.m3u8", "song.mp3"]


@pytest.mark.parametrize("name", ["a.mp3", "a.wav", "a.m4a"])
async def test_damaged_files_are_refused(workspace: Path, spoken: Path, name: str) -> None:
    (workspace / name).write_bytes(b"")
    assert "0 bytes" in await refusal(server, "transcribe_audio", file_path=name)
    (workspace / name).write_bytes(bytes(range(256)) * 40)
    assert "cannot be read" in await refusal(server, "transcribe_audio", file_path=name)
    assert "cannot be read" in await refusal(server, "extract_audio_metadata", file_path=name)


async def test_a_header_that_lies_about_its_length_does_no_harm(workspace: Path, spoken: Path) -> None:
    whole = bytearray(sound_of(spoken))
    at = whole.index(b"data") + 4
    whole[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    whole[4:8] = struct.pack("<I", 0xFFFFFFF0)
    (workspace / "lies.wav").write_bytes(whole)
    assert (await content(server, "transcribe_audio", file_path="lies.wav"))["text"] == SPOKEN
    (workspace / "half.mp3").write_bytes(sound_of(encoded(spoken, workspace / "x.mp3"))[:6000])
    half = await content(server, "extract_audio_metadata", file_path="half.mp3")
    assert half["seconds"] > 0
    assert "cut" not in await content(server, "trim_audio", file_path="half.mp3", start_time=0.5)


@pytest.fixture
def mute(workspace: Path) -> str:
    needs("ffmpeg")
    made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "color=red:s=64x48:d=1", "-c:v", "mpeg4"]
    subprocess.run([*made, str(workspace / "mute.mp4")], check=True)
    return "mute.mp4"


async def test_a_file_without_sound_is_refused(mute: str) -> None:
    assert "has no sound" in await refusal(server, "transcribe_audio", file_path=mute)


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[str, object]]]:
    """An endpoint that transcribes, as OpenAI's API does; what it was asked is in the list."""
    asked: list[dict[str, object]] = []

    async def transcriptions(request: http.Request) -> http.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, http.FileField)
        asked.append(
            {"model": form["model"], "name": file.filename, "head": file.file.read(3)}
            | {"authorization": request.headers["Authorization"]}
        )
        return http.json_response({"text": " Heard by the endpoint. "})

    app = http.Application()
    app.router.add_post("/v1/audio/transcriptions", transcriptions)
    server = TestServer(app)
    await server.start_server()
    monkeypatch.setenv("AUDIO_LLM_BASE_URL", f"http://127.0.0.1:{server.port}/v1")
    monkeypatch.setenv("AUDIO_LLM_API_KEY", "secret-key")
    monkeypatch.setenv("AUDIO_LLM_MODEL_NAME", "whisper-1")
    yield asked
    await server.close()


async def test_an_endpoint_comes_first_where_there_is_one(
    endpoint: list[dict[str, object]], spoken: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(spoken, workspace / "digits.wav")
    found = await content(server, "transcribe_audio", file_path="digits.wav")
    assert (found["text"], found["transcriber"]) == ("Heard by the endpoint.", "endpoint")
    assert endpoint[0]["model"] == "whisper-1" and endpoint[0]["authorization"] == "Bearer secret-key"
    assert endpoint[0]["head"] in (b"ID3", b"\xff\xf3\x84") and found["until"] == pytest.approx(3.0, abs=0.2)
    monkeypatch.setenv("AUDIO_LLM_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("gaia_tools.llm._FIRST_PAUSE", 0.001)
    said = await refusal(server, "transcribe_audio", file_path="digits.wav")
    assert "AUDIO_LLM_BASE_URL" in said and "secret-key" not in said


async def test_whisper_is_used_where_there_is_a_model(
    spoken: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ggml-tiny.bin").write_bytes(bytes(1000))
    (tmp_path / "ggml-small.bin").write_bytes(bytes(9_000_000))
    untrained(tmp_path / "ggml-base.en.bin")
    monkeypatch.setenv("WHISPER_MODEL_DIR", str(tmp_path))
    assert [speech.whisper_model(size).stem for size in ("tiny", "base", "large")] == [  # type: ignore[union-attr]
        "ggml-tiny",
        "ggml-base.en",
        "ggml-small",
    ]
    shutil.copy(spoken, workspace / "digits.wav")
    found = await content(server, "transcribe_audio", file_path="digits.wav", model_size="base")
    assert (found["transcriber"], found["model"]) == ("whisper.cpp", "base.en")
    assert found["until"] == pytest.approx(3.0, abs=0.1) and found["notes"] == []


async def test_what_there_was_no_time_for_is_said(
    spoken: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speech, "_WORK_SECONDS", 0.0)
    shutil.copy(spoken, workspace / "digits.wav")
    result = await call(server, "transcribe_audio", file_path="digits.wav")
    assert "It was heard up to 0" in text(result) and "ask again with start=" in text(result)
    untrained(tmp_path / "ggml-tiny.bin")
    monkeypatch.setenv("WHISPER_MODEL_DIR", str(tmp_path))
    assert "It was heard up to 0" in text(await call(server, "transcribe_audio", file_path="digits.wav"))


async def test_a_folder_without_a_whisper_model_is_said(
    spoken: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(spoken, workspace / "digits.wav")
    monkeypatch.setenv("WHISPER_MODEL_DIR", str(workspace))
    assert "no ggml-*.bin" in await refusal(server, "transcribe_audio", file_path="digits.wav")
    (workspace / "ggml-base.bin").write_bytes(b"lmgg" + bytes(5000))
    said = await refusal(server, "transcribe_audio", file_path="digits.wav")
    assert "ggml-base.bin" in said


async def test_what_can_be_done_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("ffmpeg")
    assert "by pocketsphinx (English)" in text(await call(server, "get_audio_capabilities"))
    monkeypatch.setenv("WHISPER_MODEL_DIR", "/models")
    assert "by whisper.cpp" in text(await call(server, "get_audio_capabilities"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "it has no ffmpeg" in await refusal(server, "get_audio_capabilities")
