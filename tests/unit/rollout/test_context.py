"""A long history is shortened once, as its policy says, and grows from there; long results are condensed once."""

from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.rollout import context
from aworld_train.rollout.context import (
    ASK_FOR_SUMMARY,
    DISCARDED,
    SUMMARY_FOLLOWS,
    ContextSettings,
    ContextView,
)
from aworld_train.rollout.outcome import EpisodeFailure, ToolHelperFailed
from tests.vision import image

SYSTEM, QUESTION = Message("system", "Be brief."), Message("user", "What?")
TURNS = [Message("assistant", f"turn {number}") for number in range(3)]
RESULTS = [Message("tool", f"result {number}", name="calc", images=(image(0),)) for number in range(3)]
MORE = Message("user", "Go on.")
HEAD = [SYSTEM, QUESTION]
HISTORY = [*HEAD, TURNS[0], RESULTS[0], MORE, TURNS[1], RESULTS[1], TURNS[2], RESULTS[2]]
LATER = [TURNS[0], MORE]
REMOVED = Message("tool", DISCARDED, name="calc")
SUMMARY = Message("user", f"{SUMMARY_FOLLOWS}all of it")


async def no_question(messages: list[Message]) -> str:
    raise AssertionError


@pytest.mark.parametrize(
    ("policy", "keep", "shorter"),
    [
        ("discard_tools", 0, [REMOVED if m in RESULTS else m for m in HISTORY]),
        ("discard_tools", 1, [REMOVED if m in RESULTS[:2] else m for m in HISTORY]),
        ("discard_tools", 3, None),
        ("discard_tools", 4, None),
        ("keep_last_k", 0, HEAD),
        ("keep_last_k", 1, [*HEAD, *HISTORY[7:]]),
        ("keep_last_k", 2, [*HEAD, *HISTORY[5:]]),
        ("keep_last_k", 3, None),
        ("keep_last_k", 4, None),
    ],
)
async def test_a_history_is_replaced_by_a_shorter_one_and_grows_from_there(
    policy: Any, keep: int, shorter: list[Message] | None
) -> None:
    view = ContextView(ContextSettings(policy, keep=keep))
    assert await view.of(HISTORY) == HISTORY
    assert await view.shorten(HISTORY, HISTORY, no_question) == shorter
    assert await view.of([*HISTORY, *LATER]) == [*(shorter or HISTORY), *LATER]
    assert await view.of([*HISTORY[:-1], *LATER]) == [*HISTORY[:-1], *LATER], "another history"


@pytest.mark.parametrize("has_summarizer", [True, False])
async def test_a_summary_stands_for_all_turns(has_summarizer: bool) -> None:
    requests: list[list[Message]] = []

    async def sums_up(messages: list[Message]) -> str:
        requests.append(messages)
        return "all of it"

    settings = ContextSettings("summarize", summarizer=sums_up if has_summarizer else None)
    view = ContextView(settings)
    ask = no_question if has_summarizer else sums_up
    assert await view.shorten(HISTORY, HISTORY, ask) == [*HEAD, SUMMARY]
    assert requests == [[*HISTORY, Message("user", ASK_FOR_SUMMARY)]]
    # What has been shortened is shortened again from what the model saw.
    history = [*HISTORY, *LATER]
    assert await view.shorten(history, await view.of(history), ask) == [*HEAD, SUMMARY, SUMMARY]
    assert await view.of([*history, TURNS[1]]) == [*HEAD, SUMMARY, SUMMARY, TURNS[1]]


@pytest.mark.parametrize("policy", ["discard_tools", "keep_last_k", "summarize"])
async def test_a_first_prompt_cannot_be_shortened(policy: Any) -> None:
    view = ContextView(ContextSettings(policy, keep=0))
    assert await view.shorten(HEAD, HEAD, no_question) is None


async def test_a_result_over_the_limit_is_condensed_once_for_its_task() -> None:
    requests: list[list[Message]] = []

    async def condense(messages: list[Message]) -> str:
        requests.append(messages)
        return "in short"

    view = ContextView(ContextSettings(condense_over=10, condenser=condense))
    question, photo = Message("user", "What is to be done?"), image(3)
    fitting = Message("tool", "x" * 10, name="calc")
    long = Message("tool", "y" * 11, call_id="c1", name="calc", images=(photo,))
    nameless = Message("tool", "z" * 11)
    history = [SYSTEM, question, TURNS[0], fitting, long, nameless]
    condensed = [long.with_text("in short"), nameless.with_text("in short")]
    for _ in range(2):
        assert await view.of(history) == [*history[:4], *condensed]
    assert [[message.role for message in request] for request in requests] == [["system", "user"]] * 2
    assert [request[0].content for request in requests] == [context._CONDENSE] * 2
    assert [request[1].content for request in requests] == [
        f"Task:\nWhat is to be done?\n\nTool: calc\n\nReturned:\n{long.content}",
        f"Task:\nWhat is to be done?\n\nTool: unknown\n\nReturned:\n{nameless.content}",
    ]


async def test_a_result_that_cannot_be_condensed_is_the_helpers_failure() -> None:
    async def fails(messages: list[Message]) -> str:
        assert messages[1].content.startswith("Task:\n\n\n"), "there is no user"
        raise EpisodeFailure("all endpoints are gone")

    view = ContextView(ContextSettings(condense_over=0, condenser=fails))
    with pytest.raises(ToolHelperFailed, match="could not be condensed: all endpoints are gone"):
        await view.of([Message("tool", "x")])


async def test_nothing_is_shortened_or_condensed_by_default() -> None:
    settings = ContextSettings()
    assert (settings.policy, settings.budget, settings.keep, settings.condense_over) == (None, 0, 1, None)
    history = [QUESTION, Message("tool", "x" * 100_000)]
    assert await ContextView(settings).of(history) == history
