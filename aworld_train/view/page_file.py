"""A page as one HTML file that needs no server and no network.

The file's policy lets it run the one script and the one style sheet that are in it, known by their hashes, and load
nothing. What models and tools wrote is in it as JSON in which ``<`` is escaped, so nothing of it ends the element.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath

from aworld_train.image_files import data_uri, shown_image_type
from aworld_train.store.content import EpisodeContent, image_digests
from aworld_train.store.reading import Store
from aworld_train.view.server import static_files

MAX_IMAGE_BYTES = 10_000_000
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="report">{data}</script>
<script>{script}</script>
</body>
</html>
"""

_IMPORT = re.compile(
    r"""^import\s*(?:(\w+)|\{([^}]*)\})\s*from\s*["'](\.{1,2}/[\w./-]+)["'];?""", re.MULTILINE
)
_DECLARED = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_LISTED = re.compile(r"\bexport\s*\{([^}]*)\};?\s*$")
# One that begins a line; what is commented out exports nothing. A licence begins with /** and stays.
_COMMENT = re.compile(r"^/\*(?!\*).*?\*/", re.MULTILINE | re.DOTALL)
_UNREAD = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)


class PageImages:
    """The images of a page's episodes, as addresses that hold their data; some megabytes of them."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self._bytes_left = MAX_IMAGE_BYTES

    def add(self, store: Store, content: EpisodeContent | None) -> None:
        for digest in _digests(content) - self.addresses.keys():
            data = store.blob(digest) or b""
            if shown_image_type(data) and len(data) <= self._bytes_left:
                self._bytes_left -= len(data)
                self.addresses[digest] = data_uri(data)


def page(title: str, data: str, *, entry: str, styles: Sequence[str]) -> str:
    """The file: data as JSON, with the module ``entry`` and all that it imports, and style sheets."""
    files = {
        name: content.decode() for name, content in static_files().items() if name.endswith((".js", ".css"))
    }
    script = "\n" + bundled(files, entry)
    style = "".join(f"\n{files[name]}" for name in styles)
    if "</" in style or "</script" in script.lower() or "<!--" in script:
        raise ValueError("The page's own files would end the element that holds them.")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{title} · aworld-train"),
        style=style,
        data=data.replace("<", "\\u003c"),
        script=script,
    )


def _digests(content: EpisodeContent | None) -> set[str]:
    nodes = (node for agent in (content.agents if content else ()) for node in agent.nodes)
    return {digest for node in nodes for digest in image_digests(node.messages)}


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bundled(files: Mapping[str, str], entry: str) -> str:
    """The module ``entry`` and all that it imports, as one classic script; ``files`` are sources by path.

    Only the few forms of ``import`` and ``export`` that the files of this package have are read; others are refused.
    """
    names: dict[str, str] = {}
    parts: list[str] = []
    _add(files, entry, names, parts, ())
    return "'use strict';\n" + "".join(parts)


def _add(
    files: Mapping[str, str], path: str, names: dict[str, str], parts: list[str], above: tuple[str, ...]
) -> None:
    if path in above:
        raise ValueError(f"{path} imports itself: {' -> '.join((*above, path))}")
    source = _COMMENT.sub("", files[path])
    imported = {target: normpath(join(dirname(path), target)) for _, _, target in _IMPORT.findall(source)}
    for target in imported.values():
        if target not in names:
            _add(files, target, names, parts, (*above, path))
    exported = {name: name for name in _DECLARED.findall(source)}

    def collect(match: re.Match[str]) -> str:
        exported.update({outer: inner for inner, outer in _pairs(match[1])})
        return ""

    def bind(match: re.Match[str]) -> str:
        module = names[imported[match[3]]]
        if match[1]:
            return f"const {match[1]} = {module}.default;"
        return f"const {{{', '.join(f'{outer}: {inner}' for outer, inner in _pairs(match[2]))}}} = {module};"

    body = _LISTED.sub(collect, _DECLARED.sub("", _IMPORT.sub(bind, source)))
    if unread := _UNREAD.search(body):
        raise ValueError(
            f"{path} has an import or export that cannot be bundled: {body[unread.start() :][:80]!r}"
        )
    names[path] = f"module{len(names)}"
    returned = ", ".join(f"{outer}: {inner}" for outer, inner in exported.items())
    parts.append(
        f"// {path}\nconst {names[path]} = (() => {{\n{body.strip()}\nreturn {{{returned}}};\n}})();\n"
    )


def _pairs(listed: str) -> list[tuple[str, str]]:
    """``a, b as c`` as pairs of what comes before and after ``as``."""
    pairs = []
    for part in filter(None, map(str.strip, listed.split(","))):
        before, _, after = part.partition(" as ")
        pairs.append((before.strip(), after.strip() or before.strip()))
    return pairs
