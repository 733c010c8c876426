"""Text in pictures, read by Tesseract; the functions here are for `isolated`.

Pictures are first made grey, with stretched contrast and dark text on light ground, and small ones larger (letters of
20 pixels and more are best). Where Tesseract is not sure of its words, its detection of orientation and script says
which turns and languages to try, and the reading that it is surest of is taken.
"""

import logging
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import pictures

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PAGES = 20
_logger = logging.getLogger(__name__)
AUTO = "auto"
# Of ISO 639-2, as Tesseract calls them, with their English names; apt.txt has a package for each.
LANGUAGES = {
    "ara": "Arabic",
    "chi_sim": "Chinese, simplified",
    "chi_tra": "Chinese, traditional",
    "deu": "German",
    "ell": "Greek",
    "eng": "English",
    "fra": "French",
    "heb": "Hebrew",
    "hin": "Hindi",
    "ita": "Italian",
    "jpn": "Japanese",
    "kor": "Korean",
    "lat": "Latin",
    "nld": "Dutch",
    "pol": "Polish",
    "por": "Portuguese",
    "rus": "Russian",
    "spa": "Spanish",
    "tur": "Turkish",
}
_PAGE_SECONDS = 60
_RETRY_SECONDS = 20.0  # after which a page is not read in yet another way
_ALL_RETRY_SECONDS = 100.0  # the same for all pages of a file
_SMALL = 1200  # pixels of the longer side
_LARGEST = 6000
_SURE = (
    75.0  # of 100; what is turned, or in another script, comes to less than 60, clear text to more than 80
)
# Confidences in orientation and script have no upper limit.
_MIN_CLEAR_ORIENTATION = 1.5
_MIN_CLEAR_SCRIPT = 10.0
_MIN_GAIN = 5.0
_MIN_SHARE = 0.3  # of the characters of another reading: a single word that is clear is not a page
_TURNS = (0, 90, 180, 270)
# The scripts that are told apart, and what is tried for each.
_SCRIPTS = {
    "Latin": ("eng",),
    "Cyrillic": ("rus",),
    "Greek": ("ell",),
    "Arabic": ("ara",),
    "Hebrew": ("heb",),
    "Han": ("chi_sim", "chi_tra", "chi_tra_vert"),
    "Japanese": ("jpn", "jpn_vert"),
    "Korean": ("kor",),
    "Hangul": ("kor",),
    "Devanagari": ("hin",),
}
_VERTICAL = "_vert"  # the end of the names of data for columns of characters
_IDEOGRAPHS = r"[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]"
_SPACED = re.compile(f"(?<={_IDEOGRAPHS}) +(?={_IDEOGRAPHS})")
_TALL = 1.5  # height of a word by its width


@dataclass(frozen=True)
class _Word:
    text: str
    confidence: float
    width: int
    height: int


@dataclass(frozen=True)
class _Reading:
    """A page as Tesseract read it, ``turned`` clockwise by so many degrees."""

    text: str
    words: list[_Word]
    language: str
    turned: int

    @property
    def confidence(self) -> float:
        return fmean(word.confidence for word in self.words) if self.words else 0.0

    @property
    def is_sure(self) -> bool:
        return self.confidence >= _SURE

    @property
    def characters(self) -> int:
        return sum(len(word.text) for word in self.words)


@dataclass(frozen=True)
class _Detected:
    turn: int
    turn_clarity: float
    script: str
    script_clarity: float


def installed_languages() -> list[str]:
    return [one for one in _installed() if one != "osd" and not one.endswith(_VERTICAL)]


def checked_language(language: str) -> str:
    """One or more languages as Tesseract takes them, such as ``eng+fra``, or ``auto``."""
    named = [one for one in re.split(r"[+,;\s]+", language.strip().lower()) if one]
    if named == [AUTO]:
        return AUTO
    known = installed_languages()
    unknown = [one for one in named if one.removesuffix(_VERTICAL) not in known]
    if unknown or not named:
        problem = f"There is no data to read {', '.join(unknown)!r}" if named else "No language is named"
        raise ToolError(
            f"{problem}: the languages are {names(known)}, several joined with '+', or '{AUTO}' alone."
        )
    return "+".join(dict.fromkeys(named))


def names(languages: list[str]) -> str:
    return ", ".join(f"{one} ({LANGUAGES[one]})" if one in LANGUAGES else one for one in languages)


def read_text(path: Path, language: str, preprocess: bool) -> dict[str, Any]:
    """The text in a picture, page by page if it is a TIFF of several, and how sure Tesseract is, of 100.

    ``language`` is as ``eng+fra``, or ``auto`` for that of the script.
    """
    language = checked_language(language)
    end = time.monotonic() + _ALL_RETRY_SECONDS
    image = pictures.opened(path)
    frames = getattr(image, "n_frames", 1)
    read = min(frames, MAX_PAGES) if image.format == "TIFF" else 1
    readings = []
    for number in range(read):
        if frames > 1:
            image.seek(number)
        page = pictures.on_white(pictures.pixels(image.copy() if frames > 1 else image, path))
        readings.append(_best_reading(_prepared(page) if preprocess else page, language, end))
    words = [word for reading in readings for word in reading.words]
    return {
        "text": "\n\f\n".join(one.text for one in readings),
        "confidence": round(fmean(word.confidence for word in words), 1) if words else None,
        "words": len(words),
        "pages": read,
        "frames": frames,
        "width": image.width,
        "height": image.height,
        "language": "+".join(dict.fromkeys(one.language for one in readings)),
        "turned": [one.turned for one in readings],
    }


def turned_note(turned: list[int]) -> str:
    parts = [
        f"page {n} by {by} degrees" if len(turned) > 1 else f"by {by} degrees"
        for n, by in enumerate(turned, 1)
        if by
    ]
    return f"turned clockwise to be read: {', '.join(parts)}" if parts else ""


def _best_reading(image: "Image", language: str, end: float) -> _Reading:
    end = min(end, time.monotonic() + _RETRY_SECONDS)
    best = _reading(image, "eng" if language == AUTO else language, 0)
    if best.is_sure or not best.words or time.monotonic() > end:
        return best
    for turn, another in _attempts(image, language):
        if time.monotonic() > end:
            break
        reading = _reading(image, another, turn)
        gain = reading.confidence - best.confidence
        # Spots and frames look like letters of any script.
        is_likely = another.removesuffix(_VERTICAL) in best.language or reading.is_sure
        if is_likely and gain > _MIN_GAIN and reading.characters >= _MIN_SHARE * best.characters:
            best = reading
        # The other kind of Chinese is read nearly as well by the wrong one.
        if best.is_sure and not (another == "chi_sim" and language == AUTO):
            break
    return best


def _attempts(image: "Image", language: str) -> Iterator[tuple[int, str]]:
    detected = _detected(image)
    if detected is None:
        return
    turns = [detected.turn]
    if detected.turn_clarity < _MIN_CLEAR_ORIENTATION:
        turns += [turn for turn in _TURNS if turn != detected.turn]
    installed = _installed()
    likely = [one for one in _SCRIPTS.get(detected.script, ("eng",)) if one in installed]
    if language != AUTO:
        vertical = [f"{one}{_VERTICAL}" for one in language.split("+")]
        likely = [language, *(one for one in vertical if one in installed)]
    tried = {(0, "eng" if language == AUTO else language)}
    attempts = [(turn, one) for turn in turns[:1] for one in likely]
    if language == AUTO and detected.script_clarity < _MIN_CLEAR_SCRIPT:
        others = dict.fromkeys(one for group in _SCRIPTS.values() for one in group if one in installed)
        attempts += [(detected.turn, one) for one in others]
    attempts += [(turn, one) for turn in turns[1:] for one in likely]
    for attempt in attempts:
        if attempt not in tried:
            tried.add(attempt)
            yield attempt


def _detected(image: "Image") -> _Detected | None:
    """None where there are too few letters to tell, or its data is not installed."""
    if "osd" not in _installed():
        return None
    with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
        source = Path(folder, "page.png")
        image.save(source, dpi=(300, 300))
        try:
            output = _tesseract(
                [str(source), "-", "-l", "osd", "--psm", "0", "-c", "min_characters_to_try=5"]
            )
        except ToolError:
            return None
    found = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    try:
        return _Detected(
            int(found["Rotate"]),
            float(found["Orientation confidence"]),
            found["Script"],
            float(found["Script confidence"]),
        )
    except (KeyError, ValueError):
        return None


def _prepared(image: "Image") -> "Image":
    from PIL import Image, ImageOps, ImageStat

    grey = ImageOps.autocontrast(image.convert("L"), cutoff=0.5)
    if ImageStat.Stat(grey).median[0] < 110:
        grey = ImageOps.invert(grey)
    longer = max(grey.size)
    if longer < _SMALL:
        factor = min(3.0, max(2.0, _SMALL / longer))
        grey = grey.resize(
            (round(grey.width * factor), round(grey.height * factor)), Image.Resampling.LANCZOS
        )
        grey = ImageOps.expand(grey, border=20, fill=255)  # text at the edge is not seen
    grey.thumbnail((_LARGEST, _LARGEST))
    return grey


def _reading(image: "Image", language: str, turn: int) -> _Reading:
    with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
        source = Path(folder, "page.png")
        (image.rotate(-turn, expand=True) if turn else image).save(source, dpi=(300, 300))
        _tesseract([str(source), str(Path(folder, "page")), "-l", language, "--psm", "3", "txt", "tsv"])
        text = Path(folder, "page.txt").read_text("utf-8", errors="replace").strip()
        rows = [line.split("\t") for line in Path(folder, "page.tsv").read_text("utf-8").splitlines()[1:]]
    # Columns of tesseract(1), tsv: width and height are the ninth and the tenth, then the confidence, -1 for what is no
    # word, and the word.
    words = [
        _Word(row[11].strip(), float(row[10]), int(row[8]), int(row[9]))
        for row in rows
        if len(row) == 12 and row[11].strip() and float(row[10]) >= 0
    ]
    return _Reading(
        _SPACED.sub("", text), words, language, (turn + _turned_by_tesseract(words, language)) % 360
    )


def _turned_by_tesseract(words: list[_Word], language: str) -> int:
    """270 where Tesseract itself turned the page, as it does with text that runs downwards; else 0."""
    shapes = [
        word.height / max(word.width, 1) for word in words if len(word.text) > 2 and word.confidence >= _SURE
    ]
    may_run_downwards = language.startswith(("jpn", "chi", "kor"))
    return 270 if len(shapes) >= 3 and median(shapes) >= _TALL and not may_run_downwards else 0


def _installed() -> list[str]:
    lines = _tesseract(["--list-langs"]).splitlines()
    return sorted(line.strip() for line in lines[1:] if line.strip())


def _tesseract(arguments: list[str]) -> str:
    variables = {"PATH": os.environ.get("PATH", os.defpath), "OMP_THREAD_LIMIT": "1", "LANG": "C.UTF-8"}
    if "TESSDATA_PREFIX" in os.environ:
        variables["TESSDATA_PREFIX"] = os.environ["TESSDATA_PREFIX"]
    try:
        ended = subprocess.run(
            ["tesseract", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PAGE_SECONDS,
            env=variables,
            check=False,
        )
    except FileNotFoundError as error:
        _logger.error("The program tesseract is not installed.")
        raise ToolError(
            "Text in pictures cannot be read in this environment; analyze_image_ai can, where it has a model."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"Tesseract took longer than {_PAGE_SECONDS} seconds for a page; give it a part of the picture."
        ) from error
    if ended.returncode != 0:
        raise ToolError(f"Tesseract failed: {ended.stderr.decode(errors='replace').strip()[-300:]}")
    return ended.stdout.decode(errors="replace")
