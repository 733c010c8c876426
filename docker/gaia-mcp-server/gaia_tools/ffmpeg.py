"""Sound and pictures of media files, through the programs ffmpeg and ffprobe, with limits on time and memory.

A media file can be a list of other files and addresses (HLS, DASH, concat): such lists are not read.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import processes

_MEGABYTES = 4096
_PROBE_SECONDS = 30.0
# Names of ffmpeg's readers (ffmpeg -demuxers) that read nothing but the file they are given.
_CONTAINERS = (
    "3dostr,aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,asf_o,au,avi,caf,dts,dv,eac3,flac,flv,gif,gsm,h264,hevc,ivf,m4v,"
    "matroska,mj2,mov,mp3,mp4,mpc,mpc8,mpeg,mpegts,mpegvideo,mxf,nut,ogg,rm,tta,voc,w64,wav,webm,wtv,wv,xwma,"
    "yuv4mpegpipe"
)
_SAFELY = ("-protocol_whitelist", "file", "-format_whitelist", _CONTAINERS)


@dataclass(frozen=True)
class Media:
    """What a media file has; ``seconds`` is its length by its own word."""

    seconds: float | None
    described: dict[str, Any]

    def streams(self, kind: str) -> list[dict[str, Any]]:
        """Its streams of a kind, ``audio`` or ``video``; pictures of an album's cover are not video."""
        return [
            stream
            for stream in self.described["streams"]
            if stream.get("codec_type") == kind and not stream.get("disposition", {}).get("attached_pic")
        ]


async def version() -> str:
    ended = await _run(["ffmpeg", "-version"], Path("/ffmpeg"), _PROBE_SECONDS)
    return " ".join(ended.output.split()[:3])


async def probe(path: Path) -> Media:
    described = ["-print_format", "json", "-show_format", "-show_streams", "-show_chapters"]
    ended = await _run(["ffprobe", "-v", "error", *_SAFELY, *described, f"file:{path}"], path, _PROBE_SECONDS)
    try:
        found = json.loads(ended.output)
        found["streams"] = list(found.get("streams") or [])
        found["format"] = {name: value for name, value in found["format"].items() if name != "filename"}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ToolError(f"What ffprobe says of {path.name} cannot be read: the file is too odd.") from error
    if not found["streams"]:
        raise ToolError(f"{path.name} has neither sound nor pictures that can be read.")
    return Media(_length(found), found)


async def convert(path: Path, before: Sequence[str], after: Sequence[str], seconds: float) -> str:
    """Run ffmpeg on a file, and return what it says; options ``before`` it are for reading, those ``after`` for
    writing.

    Names of files in ``after`` start with ``file:``.
    """
    command = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-threads", "2", *_SAFELY, *before]
    return (await _run([*command, "-i", f"file:{path}", *after], path, seconds)).errors


async def _run(command: Sequence[str], path: Path, seconds: float) -> processes.Ended:
    # AV_LOG_FORCE_NOCOLOR: libavutil/log.c.
    variables = {"PATH": os.environ.get("PATH", os.defpath), "AV_LOG_FORCE_NOCOLOR": "1", "LANG": "C.UTF-8"}
    ended = await processes.run(
        command, cwd=path.parent, seconds=seconds, env=variables, megabytes=_MEGABYTES, keep=200_000
    )
    if ended.exit_code is None:
        raise ToolError(f"{command[0]} took longer than {seconds:g} seconds for {path.name} and was ended.")
    if ended.exit_code != 0:
        message = ended.errors.replace(f"file:{path}", path.name).strip()
        if "not on whitelist" in message:
            raise ToolError(
                f"{path.name} is a list of other files or of a kind that is not read as media; give the media file."
            )
        last = message.splitlines()[-1][:300] if message else f"exit code {ended.exit_code}"
        raise ToolError(
            f"{path.name} cannot be read as sound or video; it may be damaged. {command[0]}: {last}"
        )
    return ended


def _length(found: dict[str, Any]) -> float | None:
    lengths = []
    for one in (found["format"], *found["streams"]):
        try:
            lengths.append(float(one["duration"]))
        except (KeyError, ValueError, TypeError):
            continue
    return lengths[0] if lengths else None
