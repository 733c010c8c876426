"""A loop of four turns is one row, whatever the framework and what it sends by default.

The clients of OpenAI and Anthropic are part of every run. The frameworks have the marker ``frameworks``, and an
interpreter of their own that is made from the package index: ``pytest -m frameworks tests/integration``.
"""

import sys

import pytest

from tests.aworld_environment import clients_python
from tests.frameworks.episodes import SCRIPTS, Played, play

OFFICIAL = ("openai_chat", "openai_parse", "openai_responses", "anthropic_messages")


def check(played: Played) -> None:
    assert played.printed.strip().splitlines()[-1:] == ["answer: 10"], played.printed
    [(_, row)] = played.episode.rows()
    assert len(row.turns) == 4
    assert not played.episode.branches
    assert not played.episode.misses
    # The row is the last model call: its input, and what was sampled, up to a stop text.
    prompt, sampled = played.model.calls[-1]
    tokens = row.prompt + row.response
    assert len(tokens) > len(prompt)
    assert tokens == (prompt + sampled.tokens)[: len(tokens)]


@pytest.mark.parametrize("name", OFFICIAL)
async def test_a_loop_of_an_official_client_is_one_row(name: str) -> None:
    check(await play(sys.executable, name))


@pytest.mark.frameworks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_loop_of_a_framework_is_one_row(name: str) -> None:
    check(await play(str(clients_python()), name))
