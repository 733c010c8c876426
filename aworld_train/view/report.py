"""A run as one HTML file that needs no server and no network: its figures and curves, and a sample of its episodes.

The file's policy lets it run the one script and the one style sheet that are in it, known by their hashes, and load
nothing. What models and tools wrote stands in it as JSON in which ``<`` is escaped, so nothing of it ends the element.
"""

import base64
import hashlib
import html
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train import __version__
from aworld_train.atomic import write_text
from aworld_train.store.content import EpisodeContent
from aworld_train.store.reading import Store
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.training.run_store import find_run_store
from aworld_train.view.bundle import bundled
from aworld_train.view.curves import run_curves
from aworld_train.view.episodes import episode_json, token_ids, tokens_json
from aworld_train.view.overview import facts, overview
from aworld_train.view.plain import to_json
from aworld_train.view.routes import image_type
from aworld_train.view.server import static_files
from aworld_train.view.token_texts import token_texts

MAX_CHARS = 10_000
"""The longest text of a sampled episode."""
MAX_TOKENS = 300_000
"""Of how many tokens a report has ids and log-probabilities: some 5 MB."""
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


@dataclass(frozen=True)
class Report:
    """A report that was written.

    Attributes:
        file: The file.
        size: Its size in bytes.
        episodes: How many episodes are in it.
        total: How many episodes the run has.
    """

    file: Path
    size: int
    episodes: int
    total: int


def write_report(run: RecordedRun, file: Path, *, episodes: int) -> Report:
    """Write a run's report.

    Args:
        run: The run.
        file: The file, which is replaced.
        episodes: The most episodes that are in it.

    Raises:
        StoreUnreachable: The database of its episodes does not answer.
    """
    store = find_run_store(run)
    try:
        outline = store.outline() if store else []
        sample = sample_episodes(outline, episodes)
        data = _data(run, store, sample, len(outline))
    finally:
        if store:
            store.close()
    text = page(run.name, to_json(data))
    write_text(file, text)
    return Report(file, len(text.encode()), len(sample), len(outline))


def sample_episodes(
    outline: Sequence[tuple[str, str, int, str, float | None]], max_episodes: int
) -> list[str]:
    """Ids of at most ``max_episodes``, always the same: of each kind of outcome as many, spread over the steps.

    A kind is phase and outcome; answered episodes are right, wrong or not scored.
    """
    kinds: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for episode, phase, _, outcome, accuracy in outline:
        kinds[phase, outcome, "" if accuracy is None else accuracy > 0.5].append(episode)
    ordered = [kinds[key] for key in sorted(kinds, key=str)]
    shares = [0] * len(ordered)
    while sum(shares) < min(max_episodes, len(outline)):
        for number, kind in enumerate(ordered):
            if shares[number] < len(kind) and sum(shares) < max_episodes:
                shares[number] += 1
    return [
        kind[i * len(kind) // share]
        for kind, share in zip(ordered, shares, strict=True)
        for i in range(share)
    ]


def page(title: str, data: str) -> str:
    """The file: the data, as JSON, with the page's own modules and styles."""
    files = {
        name: content.decode() for name, content in static_files().items() if name.endswith((".js", ".css"))
    }
    script = "\n" + bundled(files, "report.js")
    style = f"\n{files['vendor/uplot.css']}\n{files['view.css']}"
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


def _data(run: RecordedRun, store: Store | None, sample: Sequence[str], total: int) -> dict[str, Any]:
    episodes: list[dict[str, Any]] = []
    tokens: dict[str, Any] = {}
    images: dict[str, str] = {}
    token_budget, image_budget = MAX_TOKENS, MAX_IMAGE_BYTES
    for name in sample if store else ():
        assert store is not None
        episode = store.episode(name)
        episodes.append(episode_json(episode, max_chars=MAX_CHARS))
        count = sum(node.token_count for agent in _agents(episode.content) for node in agent.nodes)
        if count <= token_budget:
            token_budget -= count
            texts, note = token_texts(run, token_ids(episode))
            tokens[episode.head.id] = tokens_json(episode, texts) | {"note": note}
        for digest in _image_digests(episode.content) - images.keys():
            data = store.blob(digest) or b""
            media_type = image_type(data)
            if media_type and len(data) <= image_budget:
                image_budget -= len(data)
                images[digest] = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    created = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {
        "report": {"made": created, "version": __version__, "episodes": len(episodes), "of": total},
        "run": {
            "run": overview(run),
            "facts": facts(run),
            "curves": run_curves(run, store),
            "has_store": store is not None,
        },
        "episodes": episodes,
        "tokens": tokens,
        "images": images,
    }


def _agents(content: EpisodeContent | None) -> Sequence[Any]:
    return content.agents if content else ()


def _image_digests(content: EpisodeContent | None) -> set[str]:
    return {
        image.digest
        for agent in _agents(content)
        for node in agent.nodes
        for message in node.messages
        for image in message.images
    }


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
