"""Text in pictures, read by Tesseract; the functions here are for `isolated`.

What helps it is done first, unless that is not wanted: grey, stretched contrast, dark text on light ground, and small
pictures made larger (it is best at letters of 20 pixels and more).
"""

import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import pictures

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PAGES = 20
_logger = logging.getLogger(__name__)
_PAGE_SECONDS = 60
_SMALL = 1200  # pixels of the longer side
_LARGEST = 6000


def installed_languages() -> list[str]:
    """Those whose data Tesseract has.

    Raises:
        ToolError: It is not installed.
    """
    lines = _tesseract(["--list-langs"]).splitlines()
    return sorted(line.strip() for line in lines[1:] if line.strip() and line.strip() != "osd")


def read_text(path: Path, language: str, preprocess: bool) -> dict[str, Any]:
    """The text in a picture, page by page if it is a TIFF of several, and how sure Tesseract is, of 100."""
    unknown = sorted(set(language.split("+")) - set(there := installed_languages()))
    if unknown:
        raise ToolError(
            f"Tesseract has no data for {', '.join(unknown)!r}; it has {', '.join(there)}. "
            "Several are joined with '+'."
        )
    image = pictures.opened(path)
    frames = getattr(image, "n_frames", 1)
    read = min(frames, MAX_PAGES) if image.format == "TIFF" else 1
    pages, sure = [], []
    for number in range(read):
        if frames > 1:
            image.seek(number)
        page = pictures.on_white(pictures.pixels(image.copy() if frames > 1 else image, path))
        text, confidences = _page(_prepared(page) if preprocess else page, language)
        pages.append(text)
        sure += confidences
    return {
        "text": "\n\f\n".join(pages) if len(pages) > 1 else pages[0],
        "confidence": round(sum(sure) / len(sure), 1) if sure else None,
        "words": len(sure),
        "pages": read,
        "frames": frames,
        "width": image.width,
        "height": image.height,
    }


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


def _page(image: "Image", language: str) -> tuple[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
        source = Path(folder, "page.png")
        image.save(source, dpi=(300, 300))
        _tesseract([str(source), str(Path(folder, "page")), "-l", language, "--psm", "3", "txt", "tsv"])
        text = Path(folder, "page.txt").read_text("utf-8", errors="replace").strip()
        rows = [line.split("\t") for line in Path(folder, "page.tsv").read_text("utf-8").splitlines()[1:]]
    # Columns of tesseract(1), tsv: the last but one is the confidence, -1 for what is no word; the last is the word.
    return text, [
        float(row[10]) for row in rows if len(row) == 12 and row[11].strip() and float(row[10]) >= 0
    ]


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
