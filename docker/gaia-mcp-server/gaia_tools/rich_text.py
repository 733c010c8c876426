"""What anydoc leaves out of rich text: headers, footers and comments, each read as a document of its own, and which
letters are raised or lowered.
"""

import re
from dataclasses import dataclass

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools import office_model, superscripts

_FONTS = re.compile(rb"\{\\fonttbl")
_AROUND = {
    "header": re.compile(rb"\{\\header[lrf]?(?![a-z])"),
    "footer": re.compile(rb"\{\\footer[lrf]?(?![a-z])"),
}
_AUTHOR_OR_COMMENT = re.compile(rb"\{\\\*\\(atnauthor|annotation)(?![a-z])")
_BRACE = re.compile(rb"\\[\s\S]|[{}]")
_MAX_PARTS = 200
_TOKEN = re.compile(rb"\\bin(\d+) ?|\\([a-z]+)(-?\d*) ?|\\'[0-9a-fA-F]{2}|\\[^a-z]|[{}]|[\r\n]+|[^\\{}\r\n]+")
_LINE_ENDS = (b"par", b"cell", b"row", b"line", b"tab", b"sect", b"page")
# Groups that are not text of the document, such as the names of styles.
_APART = re.compile(rb"\{\\(\*|fonttbl|stylesheet|info|pict|colortbl)(?![a-z])")


@dataclass(frozen=True)
class Beside:
    headers: list[str]
    footers: list[str]
    comments: list[str]


def with_scripts(content: bytes) -> bytes:
    """The file, with superscripts and subscripts written as text."""
    if not re.search(rb"\\(super|sub|up|dn)(?![a-z])", content):
        return content
    pieces: list[tuple[str, int]] = []
    places: list[tuple[int, int]] = []
    inserted: list[tuple[int, bytes]] = []

    def end_line() -> None:
        for (start, end), (text, _), written in zip(places, pieces, superscripts.spread(pieces), strict=True):
            if written != text:
                opening, _, closing = written.partition(text.strip())
                inserted.append((start, _escaped(opening)))
                inserted.append((end, _escaped(closing)))
        pieces.clear()
        places.clear()

    levels, place = [0], 0
    while match := _TOKEN.match(content, place):
        token, word, place = match[0], match[2], match.end()
        if token == b"{":
            if _APART.match(content, match.start()):
                place = _end(content, match.start())
            else:
                levels.append(levels[-1])
        elif token == b"}":
            levels = levels[:-1] or [0]
        elif match[1]:
            place += int(match[1])
        elif word in (b"super", b"sub"):
            levels[-1] = 0 if match[3] == b"0" else 1 if word == b"super" else -1
        elif word in (b"up", b"dn"):
            levels[-1] = 0 if match[3] == b"0" else 1 if word == b"up" else -1
        elif word in (b"nosupersub", b"plain"):
            levels[-1] = 0
        elif word in _LINE_ENDS:
            end_line()
        elif not word and token.strip(b"\r\n"):
            text = (
                bytes.fromhex(token[2:].decode()) if token.startswith(b"\\'") else token.removeprefix(b"\\")
            )
            pieces.append((text.decode("latin-1"), levels[-1]))
            places.append(match.span())
    end_line()
    parts, place = [], 0
    for following, mark in inserted:
        parts += [content[place:following], mark]
        place = following
    return b"".join([*parts, content[place:]])


def _escaped(mark: str) -> bytes:
    return re.sub(r"[{}]", r"\\\g<0>", mark).encode("latin-1", "replace")


def beside(content: bytes, name: str) -> Beside:
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
