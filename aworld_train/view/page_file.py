"""A page as one HTML file that needs no server and no network.

The file's policy lets it run the one script and the one style sheet that are in it, known by their hashes, and load
nothing. What models and tools wrote is in it as JSON in which ``<`` is escaped, so nothing of it ends the element.
"""

import base64
import hashlib
import html
from collections.abc import Sequence

from aworld_train.image_files import data_uri, shown_image_type
from aworld_train.store.content import EpisodeContent, image_digests
from aworld_train.store.reading import Store
from aworld_train.view.bundle import bundled
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
