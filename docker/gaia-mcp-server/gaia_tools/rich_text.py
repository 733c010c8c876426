"""Headers, footers and comments of rich text, which anydoc leaves out: each is read as a document of its own."""

import re
from dataclasses import dataclass

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import office_model

_FONTS = re.compile(rb"\{\\fonttbl")
_AROUND = {
    "header": re.compile(rb"\{\\header[lrf]?(?![a-z])"),
    "footer": re.compile(rb"\{\\footer[lrf]?(?![a-z])"),
}
_AUTHOR_OR_COMMENT = re.compile(rb"\{\\\*\\(atnauthor|annotation)(?![a-z])")
_BRACE = re.compile(rb"\\[\s\S]|[{}]")
_MAX_PARTS = 200


@dataclass(frozen=True)
class Beside:
    """What stands beside the text, each on one line."""

    headers: list[str]
    footers: list[str]
    comments: list[str]


def beside(content: bytes, name: str) -> Beside:
    """The different headers and footers, and the comments with their authors, as far as they can be read."""
    fonts = _FONTS.search(content)
    # Its fonts say which code page its letters are in.
    start = content[: _end(content, fonts.start())] if fonts else b"{\\rtf1\\ansi "
    found = {
        kind: dict.fromkeys(
            _text(start, content[match.end() : _end(content, match.start())], name)
            for match in list(pattern.finditer(content))[:_MAX_PARTS]
        )
        for kind, pattern in _AROUND.items()
    }
    comments, author = [], "?"
    for match in list(_AUTHOR_OR_COMMENT.finditer(content))[: 2 * _MAX_PARTS]:
        text = _text(start, content[match.end() : _end(content, match.start())], name)
        if match[1] == b"atnauthor":
            author = text or "?"
        elif text:
            comments.append(f"[Comment by {author}: {text}]")
    return Beside([one for one in found["header"] if one], [one for one in found["footer"] if one], comments)


def _end(content: bytes, start: int) -> int:
    """Where the group that begins at ``start`` ends."""
    depth = 0
    for match in _BRACE.finditer(content, start):
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(content)


def _text(start: bytes, group: bytes, name: str) -> str:
    try:
        document = office_model.model(start + b"{" + group + b"}", "rtf", name)
    except ToolError:
        return ""
    return " / ".join(filter(None, (office_model.plain(block.content) for block in document.blocks)))
