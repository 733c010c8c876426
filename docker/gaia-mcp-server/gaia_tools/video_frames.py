"""Single frames of a video, written as JPEG files."""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import ffmpeg

R = TypeVar("R")
_FRAME_SECONDS = 60.0
_SCAN_SECONDS = 240.0
_AT_ONCE = 2
_SCENE = 0.15  # how much of a picture changes between two scenes, of 1
_LAST = 0.05  # seconds before the end where there is a frame still


@dataclass(frozen=True)
class Video:
    path: Path
    seconds: float | None
    interval: float


@dataclass(frozen=True)
class Frame:
    seconds: float
    path: Path


async def looked_up(path: Path) -> Video:
    media = await ffmpeg.probe(path)
    pictures = media.streams("video")
    if not pictures:
        raise ToolError(f"{path.name} has no pictures, only sound: use transcribe_audio.")
    try:  # what is seen may be shorter than what is heard
        seconds: float | None = float(pictures[0]["duration"])
    except (KeyError, ValueError):
        seconds = media.seconds
    return Video(path, seconds, _interval(str(pictures[0].get("avg_frame_rate"))))


def spread(start: float, end: float, per_second: float, most: int) -> list[float]:
    """Times from ``start`` to ``end``, ``per_second`` of them or, where that is too many, ``most`` evenly spread."""
    length = max(end - start, 0.0)
    count = max(min(int(length * per_second) + 1, most), 1)
    step = max(1 / per_second, length / count)
    return [round(min(start + step * number, max(end - _LAST, start)), 3) for number in range(count)]


async def at_times(
    video: Video, times: Sequence[float], folder: Path, longest: int | None = None
) -> list[Frame]:
    """The frames shown at these times, of at most ``longest`` pixels a side; those behind the end are left out."""
    few = asyncio.Semaphore(_AT_ONCE)
    size = (
        f"scale='min({longest},iw)':'min({longest},ih)':force_original_aspect_ratio=decrease,"
        if longest
        else ""
    )

    async def one(number: int, seconds: float) -> Frame | None:
        target = folder / f"frame_{number:03d}_{seconds:.2f}s.jpg"
        written = [
            "-an",
            "-sn",
            "-frames:v",
            "1",
            "-vf",
            f"{size}format=yuvj420p",
            "-q:v",
            "3",
            "-f",
            "image2",
        ]
        # ffmpeg gives the first frame from a time on; the one shown at that time may have begun before.
        seek = max(seconds - 0.999 * video.interval, 0.0)
        async with few:
            await ffmpeg.convert(
                video.path,
                ["-ss", f"{seek:.4f}"],
                [*written, "-update", "1", "-y", f"file:{target}"],
                _FRAME_SECONDS,
            )
        return Frame(seconds, target) if await asyncio.to_thread(target.is_file) else None

    found = await together(one(number, seconds) for number, seconds in enumerate(times))
    frames = [frame for frame in found if frame is not None]
    if not frames:
        raise ToolError(f"{video.path.name} has no picture at {times[0]:g} seconds.")
    return frames


async def scene_changes(video: Video, start: float, end: float, folder: Path, most: int) -> list[Frame]:
    """The frame at ``start``, and those until ``end`` with which another scene begins; ``most`` of them."""
    # showinfo says the time of each frame that passes; see ffmpeg-filters(1), select and showinfo.
    pictures = f"select='eq(n,0)+gt(scene,{_SCENE})',showinfo,format=yuvj420p"
    written = ["-an", "-sn", "-t", f"{end - start:.3f}", "-vf", pictures, "-fps_mode", "vfr", "-q:v", "2"]
    errors = await ffmpeg.convert(
        video.path,
        ["-ss", f"{start:.3f}"],
        [*written, "-frames:v", str(most), "-f", "image2", f"file:{folder}/scene_%03d.jpg"],
        _SCAN_SECONDS,
    )
    times = [float(one) for one in re.findall(r"showinfo.* pts_time:\s*(-?[\d.]+)", errors)]
    written_files = await asyncio.to_thread(lambda: sorted(folder.glob("scene_*.jpg")))
    return [
        Frame(round(max(start + seconds, 0.0), 3), file)
        for seconds, file in zip(times, written_files, strict=False)
    ]


async def together(work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None
    return [task.result() for task in tasks]


def _interval(rate: str) -> float:
    """Of a rate that ffprobe writes as a fraction, 30000/1001; a second at most, and a 25th if it does not say."""
    try:
        frames, _, seconds = rate.partition("/")
        return min(float(seconds) / float(frames), 1.0)
    except (ValueError, ZeroDivisionError):
        return 0.04
