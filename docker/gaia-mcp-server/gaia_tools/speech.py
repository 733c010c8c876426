"""Speech to text, by the first of three transcribers that is there:

1. the endpoint of ``AUDIO_LLM_*``, where its variables are set;
2. Whisper on this machine (whisper.cpp), where ``WHISPER_MODEL_DIR`` names a folder with its models, ``ggml-*.bin``;
3. PocketSphinx, which brings its model along: English only, and good for clear speech only.
"""

import io
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import ffmpeg, llm
from gaia_tools.isolated import isolated

PREFIX = "AUDIO_LLM"
RATE = 16_000  # samples a second: what all three were trained on
MAX_SECONDS = 3 * 3600.0
_WORK_SECONDS = 420.0
_CONVERT_SECONDS = 120.0
_PIECE_SECONDS = 20 * 60.0  # for an endpoint: 7 MB, where 25 MB are usual as a limit
_WHISPER_MEGABYTES = 8192
_BYTES = 2  # of a sample
_THREADS = (
    2  # a session's cores; the number of the machine's says nothing of them, and threads too many only wait
)


@dataclass(frozen=True)
class Segment:
    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What was understood ``until`` so many seconds from the beginning of the file."""

    transcriber: str
    model: str
    segments: tuple[Segment, ...]
    until: float

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments if segment.text)


async def transcribe(path: Path, start: float, model_size: str) -> Transcript:
    with tempfile.TemporaryDirectory(prefix="speech-") as folder:
        if llm.is_configured(PREFIX):
            return await _by_endpoint(path, start, Path(folder))
        raw = Path(folder, "sound.raw")
        await _converted(path, start, ["-f", "s16le", f"file:{raw}"])
        model = whisper_model(model_size)
        if model is None:
            name = "pocketsphinx", "en-us"
            found, until = await isolated(_by_pocketsphinx, raw, seconds=_WORK_SECONDS + 30)
        else:
            name = "whisper.cpp", model.stem.removeprefix("ggml-")
            try:
                found, until = await isolated(
                    _by_whisper, raw, model, seconds=_WORK_SECONDS + 30, megabytes=_WHISPER_MEGABYTES
                )
            except ToolError as error:
                raise ToolError(f"Whisper failed with its model {model.name}: {error}") from error
    segments = tuple(Segment(round(start + a, 2), round(start + b, 2), text) for a, b, text in found)
    return Transcript(*name, segments, round(start + until, 2))


async def _converted(path: Path, start: float, into: list[str]) -> None:
    sound = ["-vn", "-sn", "-dn", "-t", f"{MAX_SECONDS:g}", "-ac", "1", "-ar", str(RATE)]
    await ffmpeg.convert(path, ["-ss", f"{start:.3f}"], [*sound, *into], _CONVERT_SECONDS)


def available() -> list[str]:
    endpoint = ["endpoint (AUDIO_LLM_*)"] if llm.is_configured(PREFIX) else []
    whisper = ["whisper.cpp (WHISPER_MODEL_DIR)"] if os.environ.get("WHISPER_MODEL_DIR", "").strip() else []
    return [*endpoint, *whisper, "pocketsphinx (English)"]


def whisper_model(size: str) -> Path | None:
    """The file of the Whisper model of that size (``base``), or the largest there is; None without any."""
    folder = os.environ.get("WHISPER_MODEL_DIR", "").strip()
    if not folder:
        return None
    models = sorted(Path(folder).glob("ggml-*.bin"), key=lambda path: path.stat().st_size)
    if not models:
        raise ToolError(
            f"WHISPER_MODEL_DIR is {folder}, where there is no ggml-*.bin: put a model of whisper.cpp there."
        )
    named = [path for path in models if path.stem.removeprefix("ggml-").startswith(size)]
    return (named or models)[-1]


def _by_whisper(raw: Path, model: Path) -> tuple[list[tuple[float, float, str]], float]:
    import numpy as np
    from pywhispercpp.model import Model

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it tells all it does
    samples = np.fromfile(raw, dtype="<i2").astype(np.float32) / np.float32(32768)
    seconds = len(samples) / RATE
    # It hears nothing in less than a second: whisper.cpp leaves a last piece out that is shorter.
    samples = np.concatenate([samples, np.zeros(RATE, dtype=np.float32)])
    deadline = time.monotonic() + _WORK_SECONDS
    loaded = Model(
        str(model),
        redirect_whispercpp_logs_to=None,
        n_threads=_THREADS,
        print_progress=False,
        language="en" if ".en" in model.stem else "auto",
    )
    late = False

    def is_late() -> bool:
        nonlocal late
        late = late or time.monotonic() > deadline
        return late

    segments = loaded.transcribe(samples, abort_callback=is_late)
    # Its times are in hundredths of a second.
    found = [(one.t0 / 100, min(one.t1 / 100, seconds), one.text.strip()) for one in segments]
    return found, (found[-1][1] if found else 0.0) if late else seconds


def _by_pocketsphinx(raw: Path) -> tuple[list[tuple[float, float, str]], float]:
    from pocketsphinx import Decoder, Segmenter

    deadline = time.monotonic() + _WORK_SECONDS
    decoder = Decoder(samprate=RATE, loglevel="FATAL")
    content = raw.read_bytes()
    seconds = len(content) / (RATE * _BYTES)
    # Silence behind it ends the last stretch of speech; a frame that is not full ends the stream.
    sound = io.BytesIO(content + bytes(RATE * _BYTES + _BYTES))
    found: list[tuple[float, float, str]] = []
    for speech in Segmenter(sample_rate=RATE).segment(sound):
        if time.monotonic() > deadline:
            return found, speech.start_time
        decoder.start_utt()
        decoder.process_raw(speech.pcm, full_utt=True)
        decoder.end_utt()
        understood = decoder.hyp()
        if understood is not None and understood.hypstr:
            found.append((speech.start_time, min(speech.end_time, seconds), understood.hypstr))
    return found, seconds


async def _by_endpoint(path: Path, start: float, folder: Path) -> Transcript:
    deadline = time.monotonic() + _WORK_SECONDS
    pieces = ["-f", "segment", "-segment_time", f"{_PIECE_SECONDS:g}", f"file:{folder}/%03d.mp3"]
    await _converted(path, start, ["-b:a", "48k", *pieces])
    segments: list[Segment] = []
    until = start
    for piece in _pieces(folder):
        left = deadline - time.monotonic()
        if segments and left < 30:
            break
        answer: dict[str, Any] = await llm.transcribe(PREFIX, piece, seconds=left)
        length = (await ffmpeg.probe(piece)).seconds or 0.0
        segments.append(Segment(round(until, 2), round(until + length, 2), answer["text"].strip()))
        until += length
    model = os.environ[f"{PREFIX}_MODEL_NAME"].strip()
    return Transcript("endpoint", model, tuple(segments), round(until, 2))


def _pieces(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())
