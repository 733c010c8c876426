"""Episodes turn by turn against whole histories, in the chat templates that trl, vLLM and llama.cpp ship.

The templates and a real tokenizer come out of those projects' packages. Where prompts differ from the whole history,
`tests/data/chat_templates/differences.json` says why; no other prompt may differ.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tests.locations import DATA
from tests.properties import TRY_ALL
from tests.published_templates import PACKAGES, SCENARIOS, Tokenizer, play, templates

_RANKS = ("wrong", "refused", "end", "new row", "earlier", "equal")
PART = 3
"""Every third template is tried, all by ``scripts/test.sh --all``."""
MIN_TEMPLATES = {"trl": 70, "vllm": 34, "llama.cpp": 65}


@cache
def listed() -> Mapping[tuple[str, str], str]:
    """The written result of each play that is not equal, by template and scenario."""
    entries: list[dict[str, Any]] = json.loads(
        (DATA / "chat_templates" / "differences.json").read_text("utf-8")
    )
    return {
        (name, scenario): entry["result"]
        for entry in entries
        for name, scenarios in entry["plays"].items()
        for scenario in (SCENARIOS if scenarios == "all" else scenarios)
    }


@pytest.mark.parametrize("project", PACKAGES)
def test_prompts_are_the_whole_history_s_or_the_difference_is_listed(project: str) -> None:
    sources = templates(project)
    assert len(sources) >= MIN_TEMPLATES[project]
    results = {}
    tried = dict(list(sources.items())[:: 1 if TRY_ALL in os.environ else PART])
    for name, source in tried.items():
        for scenario, conversation in SCENARIOS.items():
            compared = play(Tokenizer(name, source), conversation)
            results[f"{project}/{name}", scenario] = next(rank for rank in _RANKS if rank in compared)
    counts = Counter(results.values())
    sys.stdout.write(f"{project}: {len(tried)} templates, {len(results)} conversations, {dict(counts)}\n")
    assert not counts["wrong"]
    different = {play: result for play, result in results.items() if result != "equal"}
    expected = {play: result for play, result in listed().items() if play in results}
    assert different == expected
