"""media-audio-server: sound files, and the sound of videos."""

from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import ffmpeg, speech
from gaia_tools.files import readable, shown, writable
from gaia_tools.results import OutputFormat, answer, cut

server = FastMCP("media-audio-server", log_level="WARNING")
_MAX_BYTES = 1 << 30
_TRIM_SECONDS = 240.0
_SHORTEST = 0.05
_BEHIND = 0.5  # seconds by which a file's own word of its length may be wrong
# Kinds of files that ffmpeg writes for the endings that are common; others are written as WAV, which loses nothing.
_WRITTEN = {
    ".mp3": ("-c:a", "libmp3lame", "-q:a", "2"),
    ".m4a": ("-c:a", "aac", "-b:a", "192k"),
    ".aac": ("-c:a", "aac", "-b:a", "192k"),
    ".ogg": ("-c:a", "libvorbis", "-q:a", "6"),
    ".oga": ("-c:a", "libvorbis", "-q:a", "6"),
    ".opus": ("-c:a", "libopus", "-b:a", "128k"),
    ".flac": ("-c:a", "flac"),
    ".wav": ("-c:a", "pcm_s16le"),
}
_SoundFile = Annotated[
    str, Field(description="A sound or video file in the workspace or among the attachments.")
]


@server.tool()
async def transcribe_audio(
    file_path: _SoundFile,
    model_size: Annotated[
        str,
        Field(
            description="Of the local Whisper model, where there is one: tiny, base, small, medium, large."
        ),
    ] = "base",
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
    start: Annotated[float, Field(description="Seconds from the beginning where to begin.", ge=0)] = 0.0,
) -> CallToolResult:
    """Write down what is said in a sound or video file, with times; the result says how, and how far it came."""
    path, media = await _sound(file_path)
    _check_start(file_path, start, media)
    transcript = await speech.transcribe(path, start, model_size)
    rest = media.seconds is not None and transcript.until < media.seconds - _BEHIND
    text, was_cut = cut(transcript.text, hint="; ask again with start to see it")
    lines, _ = cut("\n".join(f"[{_clock(one.start)}] {one.text}" for one in transcript.segments))
    notes = _notes(transcript, rest)
    structured = {
        "file": str(path),
        "transcriber": transcript.transcriber,
        "model": transcript.model,
        "seconds": media.seconds,
        "start": start,
        "until": transcript.until,
        "cut": was_cut,
        "notes": notes,
        "text": text,
        "segments": [
            {"start": one.start, "end": one.end, "text": one.text} for one in transcript.segments[:300]
        ],
    }
    by = f"{path.name}, by {transcript.transcriber} ({transcript.model})"
    shown_text = "\n\n".join([by, lines or "No speech was heard.", *notes])
    return answer(text if output_format == "text" else shown_text, structured, output_format)


@server.tool()
async def extract_audio_metadata(file_path: _SoundFile) -> CallToolResult:
    """Say how long a sound or video file is, how it is coded, and what its tags say: title, artist, chapters, ..."""
    path, media = await _sound(file_path)
    first = media.streams("audio")[0]
    tags = {**first.get("tags", {}), **media.described["format"].get("tags", {})}
    structured: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "seconds": media.seconds,
        "container": media.described["format"].get("format_long_name"),
        "codec": first.get("codec_long_name") or first.get("codec_name"),
        "sample_rate": _number(first.get("sample_rate")),
        "channels": first.get("channels"),
        "channel_layout": first.get("channel_layout"),
        "bit_rate": _number(first.get("bit_rate") or media.described["format"].get("bit_rate")),
        "audio_streams": len(media.streams("audio")),
        "video_streams": len(media.streams("video")),
        "tags": {name: cut(str(value), 2000)[0] for name, value in list(tags.items())[:60]},
        "chapters": [
            {
                "start": _number(one.get("start_time")),
                "end": _number(one.get("end_time")),
                "title": one.get("tags", {}).get("title"),
            }
            for one in (media.described.get("chapters") or [])[:200]
        ],
    }
    lines = [
        f"- {name}: {value}"
        for name, value in structured.items()
        if value not in (None, {}, []) and name != "tags"
    ]
    lines += [f"- tag {name}: {value}" for name, value in structured["tags"].items()]
    return answer(f"{path.name}\n" + "\n".join(lines), structured)


@server.tool()
async def trim_audio(
    file_path: _SoundFile,
    start_time: Annotated[float, Field(description="Seconds from the beginning.", ge=0)],
    duration: Annotated[float | None, Field(description="Seconds; without it, to the end.", gt=0)] = None,
) -> CallToolResult:
    """Cut a stretch out of a sound file, or of a video's sound, into a new file in the workspace."""
    path, media = await _sound(file_path)
    _check_start(file_path, start_time, media)
    ending = path.suffix.lower() if path.suffix.lower() in _WRITTEN else ".wav"
    length = "end" if duration is None else f"{start_time + duration:g}"
    target = writable(f"{path.stem}_{start_time:g}-{length}{ending}", overwrite=True)
    upto = [] if duration is None else ["-t", f"{duration:.3f}"]
    sound = [*upto, "-vn", "-sn", "-dn", "-map_chapters", "-1", *_WRITTEN[ending]]
    await ffmpeg.convert(path, ["-ss", f"{start_time:.3f}"], [*sound, "-y", f"file:{target}"], _TRIM_SECONDS)
    seconds = (await ffmpeg.probe(target)).seconds or 0.0
    if seconds < _SHORTEST:
        target.unlink()
        raise ToolError(f"There is no sound in {file_path} at {start_time:g} seconds.")
    structured = {
        "file": shown(target),
        "start": start_time,
        "seconds": round(seconds, 3),
        "bytes": target.stat().st_size,
    }
    return answer(f"{shown(target)}: {seconds:.2f} seconds from {start_time:g} on", structured)


@server.tool()
async def get_audio_capabilities() -> CallToolResult:
    """Say how speech is written down here, in which order, and which kinds of files can be written."""
    version = await ffmpeg.version()
    ways = speech.available()
    structured = {"transcribers": ways, "written": sorted(_WRITTEN), "ffmpeg": version}
    return answer(
        f"Speech is written down by {ways[0]}. {version} reads the common kinds of sound and video files; "
        f"trim_audio writes {', '.join(sorted(_WRITTEN))}.",
        structured,
    )


async def _sound(file_path: str) -> tuple[Path, ffmpeg.Media]:
    path = readable(file_path, _MAX_BYTES)
    media = await ffmpeg.probe(path)
    if not media.streams("audio"):
        raise ToolError(f"{file_path} has no sound, only pictures.")
    return path, media


def _check_start(file_path: str, start: float, media: ffmpeg.Media) -> None:
    if media.seconds is not None and start >= media.seconds:
        raise ToolError(f"{file_path} is {media.seconds:.2f} seconds long; there is nothing at {start:g}.")


def _notes(transcript: speech.Transcript, rest: bool) -> list[str]:
    notes = []
    if rest:
        notes.append(
            f"It was heard up to {transcript.until:g} seconds: ask again with start={transcript.until:g}."
        )
    if transcript.transcriber == "pocketsphinx":
        notes.append(
            "Heard by a small model that knows English only: expect wrong words, above all in names, in noise and "
            "in music. AUDIO_LLM_* or WHISPER_MODEL_DIR, set by who runs the tools, give a better one."
        )
    return notes


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:d}:{int(seconds) // 60 % 60:02d}:{seconds % 60:04.1f}"


def _number(value: Any) -> float | int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else round(number, 3)
