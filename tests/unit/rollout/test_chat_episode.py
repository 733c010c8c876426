"""Episodes whose model is asked by messages: what is recorded, counted and limited without token ids."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_episode import ChatEpisode
from aworld_train.rollout.chat_model import ChatModel, ContextExceeded, FilterRefused
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.messages import ChatRequest, RequestRefused
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure

LIMITS = EpisodeLimits(4, 100, 100, SamplingParams(1.0, 1.0, -1, seed=10))


class Scripted(ChatModel):
    """Gives answers in their order; exceptions among them are raised."""

    def __init__(self, *answers: ChatAnswer | Exception):
        self.answers = list(answers)
        self.requests: list[tuple[list[Message], SamplingParams, int]] = []
        self.faults: Counter[str] = Counter()

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sampling: SamplingParams,
        max_tokens: int,
        *,
        use_tools: bool = True,
    ) -> ChatAnswer:
        self.requests.append((list(messages), sampling, max_tokens))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def says(text: str, prompt: int = 10, sampled: int = 5, reason: Any = "stop", **more: Any) -> ChatAnswer:
    return ChatAnswer(text, "", more.get("calls", ()), reason, prompt, sampled)


QUESTION = Message("user", "How many?")


async def test_turns_are_recorded_with_the_endpoints_counts_and_make_no_rows() -> None:
    call = ToolCall("add", "{}", "c1")
    model = Scripted(says("", calls=(call,), reason="tool_calls"), says("42", prompt=25, sampled=3))
    episode = ChatEpisode(model, LIMITS)
    talk = episode.conversation("agent")
    first = await talk.complete(ChatRequest([QUESTION]))
    history = [QUESTION, first.message, Message("tool", "2", call_id="c1")]
    second = await talk.complete(ChatRequest(history))
    assert (first.finish_reason, second.content) == ("tool_calls", "42")
    assert episode.outcome is Outcome.answered
    assert episode.rows() == []
    assert episode.given_tokens == 35
    nodes = list(episode.agents["agent"].graph.nodes())
    assert [node.token_count for node in nodes] == [10, 5, 10, 3]
    assert [node.sampled for node in nodes] == [False, True, False, True]
    assert not episode.branches
    # What a turn may still have: 100 tokens after the first prompt.
    assert [max_tokens for _, _, max_tokens in model.requests] == [100, 95]
    assert [sampling.seed for _, sampling, _ in model.requests] == [10, 11]
    assert model.requests[1][0] == history


async def test_tokens_that_are_used_up_end_it_as_overlong() -> None:
    episode = ChatEpisode(Scripted(says("long", sampled=100)), LIMITS)
    talk = episode.conversation("agent")
    first = await talk.complete(ChatRequest([QUESTION]))
    with pytest.raises(RequestRefused, match="context is used up"):
        await talk.complete(ChatRequest([QUESTION, first.message, Message("user", "more")]))
    assert episode.outcome is Outcome.overlong


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (says("cut", reason="length"), Outcome.overlong),
        (says("<think>and so on"), Outcome.wrong_format),
        (says("<think>so</think>42"), Outcome.answered),
        (ContextExceeded("too long"), Outcome.overlong),
        (says("", reason="refusal"), Outcome.refused),
        (says("half", reason="content_filter"), Outcome.filtered),
        (FilterRefused("flagged"), Outcome.filtered),
        (replace(says("<call"), malformed=True), Outcome.wrong_format),
        (EpisodeFailure("gone"), Outcome.provider),
    ],
    ids=[
        *("cut off", "thought without an end", "thought", "context", "refusal", "filter", "filtered prompt"),
        *("unreadable call", "failure"),
    ],
)
async def test_how_it_ends(answer: ChatAnswer | Exception, outcome: Outcome) -> None:
    episode = ChatEpisode(Scripted(answer), LIMITS)
    if isinstance(answer, Exception):
        with pytest.raises(RequestRefused):
            await episode.conversation("agent").complete(ChatRequest([QUESTION]))
    else:
        await episode.conversation("agent").complete(ChatRequest([QUESTION]))
    assert episode.outcome is outcome
    assert episode.stopped == (outcome is not Outcome.answered)


async def test_a_text_to_go_on_with_is_refused() -> None:
    episode = ChatEpisode(Scripted(), LIMITS)
    with pytest.raises(RequestRefused, match="takes conversations"):
        await episode.conversation("agent").complete(ChatRequest([QUESTION], plain=True))


@pytest.mark.parametrize(("answer", "outcome"), [("first", Outcome.answered), ("cut", Outcome.overlong)])
async def test_a_helper_s_turn_that_is_cut_off_is_not_the_answer(answer: str, outcome: Outcome) -> None:
    episode = ChatEpisode(Scripted(says("first"), says("cut", reason="length")), LIMITS)
    for _ in range(2):
        await episode.conversation("agent").complete(ChatRequest([QUESTION]))
    assert episode.outcome is Outcome.overlong
    assert episode.outcome_of(answer) is outcome
