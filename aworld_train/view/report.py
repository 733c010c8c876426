"""A run as one HTML file that needs no server and no network: its figures and curves, and a sample of its episodes."""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train import __version__
from aworld_train.atomic import write_text
from aworld_train.episode.figures import shown_figures
from aworld_train.store.reading import Store
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.training.run_store import find_run_store
from aworld_train.view.curves import run_curves
from aworld_train.view.episodes import episode_json, token_ids, tokens_json
from aworld_train.view.overview import facts, overview
from aworld_train.view.page_file import PageImages, page
from aworld_train.view.plain import to_json
from aworld_train.view.token_texts import token_texts

MAX_CHARS = 10_000
MAX_TOKENS = 300_000
"""Of how many tokens a report has ids and log-probabilities: some 5 MB."""


@dataclass(frozen=True)
class Report:
    """A report that was written: its size in bytes, and how many of the run's episodes are in it."""

    file: Path
    size: int
    episodes: int
    total: int


def write_report(run: RecordedRun, file: Path, *, episodes: int) -> Report:
    with find_run_store(run) or nullcontext() as store:
        outline = store.outline() if store else []
        sample = sample_episodes(outline, episodes)
        data = _data(run, store, sample, len(outline))
    text = page(run.name, to_json(data), entry="report.js", styles=("vendor/uplot.css", "view.css"))
    write_text(file, text)
    return Report(file, len(text.encode()), len(sample), len(outline))


def sample_episodes(
    outline: Sequence[tuple[str, str, int, str, float | None]], max_episodes: int
) -> list[str]:
    """Ids of at most ``max_episodes``, always the same: as many of each phase and outcome, spread over the steps."""
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


def _data(run: RecordedRun, store: Store | None, sample: Sequence[str], total: int) -> dict[str, Any]:
    episodes: list[dict[str, Any]] = []
    tokens: dict[str, Any] = {}
    images = PageImages()
    token_budget = MAX_TOKENS
    for name in sample if store else ():
        assert store is not None
        episode = store.episode(name)
        episodes.append(episode_json(episode, max_chars=MAX_CHARS))
        agents = episode.content.agents if episode.content else ()
        count = sum(node.token_count for agent in agents for node in agent.nodes)
        if count <= token_budget:
            token_budget -= count
            texts, note = token_texts(run, token_ids(episode))
            tokens[episode.head.id] = tokens_json(episode, texts) | {"note": note}
        images.add(store, episode.content)
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
        "figures": shown_figures(),
        "tokens": tokens,
        "images": images.addresses,
    }
