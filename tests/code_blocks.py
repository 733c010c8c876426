"""The fenced code blocks of the README and of the pages under ``docs``."""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.locations import REPOSITORY

_FENCE = re.compile(r"(?m)^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')


@dataclass(frozen=True)
class CodeBlock:
    """One block.

    Attributes:
        place: File and line, for people.
        language: The first word of what stands after the opening fence.
        title: The ``title`` there; empty where there is none.
        text: What is in it, without the indentation of the list it stands in.
    """

    place: str
    language: str
    title: str
    text: str


def pages() -> list[Path]:
    """The README and every page, generated ones included."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def code_blocks() -> list[CodeBlock]:
    """All blocks of all pages."""
    return [block for page in pages() for block in blocks_of(page.read_text("utf-8"), page)]


def blocks_of(text: str, page: Path) -> list[CodeBlock]:
    """The blocks of one page."""
    blocks = []
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        title = _TITLE.search(fence["info"])
        blocks.append(
            CodeBlock(
                place=f"{page.relative_to(REPOSITORY)}:{line}",
                language=fence["info"].split(" ")[0],
                title=title[1] if title else "",
                text=dedent(fence["text"]),
            )
        )
    return blocks
