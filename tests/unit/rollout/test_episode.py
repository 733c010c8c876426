"""At the model's boundary the trainer's word counts: sampling, limits, long histories, and how an episode ended."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout import context as contexts
from aworld_train.rollout import episode as episodes
from aworld_train.rollout.context import ContextSettings
from aworld_train.rollout.episode import EpisodeLimits, with_wish
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model import SampledTokens, SamplingParams, WeightVersions
from aworld_train.rollout.outcome import EpisodeFailure, ToolHelperFailed
from aworld_train.rollout.repetition import RepetitionLimits, ends_in_loop
from aworld_train.rollout.response_constraints import ResponseConstraints
from aworld_train.rollout.token_episode import TokenEpisode
from tests.templates import ScriptedModel, cut_up

TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {}}}]
CALL = '<tool_call>\n{{"name": "calc", "arguments": {{"a": {}}}}}\n</tool_call>'
QUESTION = Message("user", "What was asked?")
LIMITS = EpisodeLimits(100, 1000, 10_000, SamplingParams(0.7, 0.9, 20))
Turn = str | Exception


class Model(ScriptedModel):
    """Says what the script has, one turn after the other; keeps how it was asked."""

    def __init__(self, *script: Turn, ends: bool = True):
        self.script: Iterator[Turn] = iter(script)
        self.sampling_calls: list[tuple[SamplingParams, int]] = []
        super().__init__("chatml_tools", lambda tokenizer: self._next(tokenizer, ends))

    def _next(self, tokenizer: Any, ends: bool) -> tuple[list[int], bool]:
        turn = next(self.script)
        if isinstance(turn, Exception):
            raise turn
        return [*cut_up(tokenizer, turn, 1), *([tokenizer.eos_token_id] if ends else [])], ends

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        self.sampling_calls.append((sampling, max_tokens))
        sampled = await super().generate(request_id, tokens, sampling, max_tokens, images)
        return replace(sampled, versions=WeightVersions(len(self.calls), len(self.calls) + 1))


class Talk:
    """An agent that sends its whole history with every request, as agents do."""

    def __init__(self, episode: TokenEpisode, name: str = "agent"):
        self.episode, self.name = episode, name
        self.history: list[Message] = [QUESTION]

    async def ask(self, result: str = "4", **options: Any) -> Completion:
        completion = await self.episode.complete(self.name, ChatRequest(list(self.history), TOOLS, **options))
        self.history.append(completion.message)
        self.history += [Message("tool", result, call_id=call.call_id) for call in completion.tool_calls]
        if not completion.tool_calls:
            self.history.append(Message("user", "Go on."))
        return completion


def texts(model: ScriptedModel) -> list[str]:
    """What the model was given, as text."""
    return [model.tokenizer.decode(prompt) for prompt, _ in model.calls]


async def test_the_recipe_s_sampling_wins_over_what_an_agent_asks_for_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    episodes._note_ignored.cache_clear()
    model = Model("a", "b", "c")
    agent = Talk(TokenEpisode(model, LIMITS))
    await agent.ask(temperature=0.1, top_p=0.9, top_k=3)
    await agent.ask(temperature=0.1, top_p=0.2, stop=("END",))
    await agent.ask(temperature=0.7, top_logprobs=2)
    assert [sampling for sampling, _ in model.sampling_calls] == [
        SamplingParams(0.7, 0.9, 20),
        SamplingParams(0.7, 0.9, 20, ("END",)),
        SamplingParams(0.7, 0.9, 20, top_logprobs=2),
    ]
    ignored = [record.args for record in caplog.records if record.name == episodes.log.name]
    assert ignored == [("temperature", 0.7), ("top_k", 20), ("top_p", 0.9)]


async def test_each_turn_of_an_episode_has_random_numbers_of_its_own() -> None:
    model = Model(*"abcd")
    episode = TokenEpisode(model, replace(LIMITS, sampling=SamplingParams(0.7, 0.9, 20, seed=5)))
    talk = Talk(episode)
    await talk.ask()
    await asyncio.gather(*(Talk(episode, name).ask() for name in ("second", "third")))
    await talk.ask()
    assert [sampling.seed for sampling, _ in model.sampling_calls] == [5, 6, 7, 8]


async def test_an_agent_may_ask_for_fewer_tokens_than_there_is_room_for_and_not_for_more() -> None:
    model = Model("a", "b")
    episode = TokenEpisode(model, replace(LIMITS, max_response_tokens=50))
    talk = Talk(episode)
    await talk.ask(max_tokens=7)
    await talk.ask(max_tokens=1000)
    grown = len(model.calls[1][0]) - len(model.calls[0][0])
    assert [room for _, room in model.sampling_calls] == [7, 50 - grown]


async def test_turns_that_are_used_up_are_refused_to_every_agent_and_are_the_outcome() -> None:
    episode = TokenEpisode(Model(*"abc"), replace(LIMITS, max_turns=2))
    await Talk(episode, "another").ask()
    talk = Talk(episode)
    await talk.ask()
    assert episode.outcome is Outcome.answered
    with pytest.raises(RequestRefused, match="turns") as refused:
        await talk.ask()
    assert (refused.value.status, refused.value.code) == (400, "max_turns")
    assert episode.outcome is Outcome.max_turns
    for number in range(300):
        with pytest.raises(RequestRefused, match="turns"):
            await Talk(episode, f"agent {number}").ask()
    assert len(episode.rows()) == 2


async def test_a_first_prompt_that_is_too_long_is_refused_and_leaves_no_row() -> None:
    episode = TokenEpisode(Model(), replace(LIMITS, max_prompt_tokens=10))
    with pytest.raises(RequestRefused, match=r"\(limit 10\)") as refused:
        await Talk(episode).ask()
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert (episode.outcome, episode.rows()) == (Outcome.overlong, [])
    (length,) = re.findall(r"has (\d+) tokens", str(refused.value))
    fitting = TokenEpisode(Model("fine"), replace(LIMITS, max_prompt_tokens=int(length)))
    await Talk(fitting).ask()
    assert fitting.outcome is Outcome.answered


async def test_a_history_that_leaves_no_room_is_refused_and_a_shorter_one_goes_on() -> None:
    model = Model(CALL.format(1), "fine")
    episode = TokenEpisode(model, replace(LIMITS, max_response_tokens=120))
    talk = Talk(episode)
    await talk.ask(result="x" * 500)
    with pytest.raises(RequestRefused, match="context is used up"):
        await talk.ask()
    assert episode.outcome is Outcome.overlong
    talk.history[-1] = changed(talk.history[-1], content="short")
    await talk.ask()
    assert episode.outcome is Outcome.answered
    assert len(episode.rows()) == 1, "what was refused is no branch"


async def test_the_last_token_of_the_context_may_be_sampled_and_none_after_it() -> None:
    model = Model("a", "b")
    talk = Talk(TokenEpisode(model, LIMITS))
    for _ in range(2):
        await talk.ask()
    first, second = (len(prompt) for prompt, _ in model.calls)
    for room in (1, 0):
        model = Model("a", "b")
        talk = Talk(TokenEpisode(model, replace(LIMITS, max_response_tokens=second - first + room)))
        await talk.ask()
        if room:
            await talk.ask()
            assert model.sampling_calls[1][1] == 1
        else:
            limit = rf"has {second} tokens .* \(limit {LIMITS.max_prompt_tokens + second - first}\)"
            with pytest.raises(RequestRefused, match=limit):
                await talk.ask()


async def test_what_a_later_first_prompt_has_beyond_the_limit_is_part_of_the_response() -> None:
    model = Model("a", "b")
    limits = replace(LIMITS, max_prompt_tokens=200)
    talk = Talk(TokenEpisode(model, limits))
    await talk.ask()
    talk.history = [Message("user", "Sum up. " * 100)]
    await talk.ask()
    later, sampled = model.calls[1]
    assert model.sampling_calls[1][1] == limits.max_response_tokens - (len(later) - 200)
    assert [len(row.prompt) for _, row in talk.episode.rows()] == [len(model.calls[0][0]), 200]
    assert talk.episode.rows()[1][1].response == later[200:] + sampled.tokens


async def test_a_turn_that_was_cut_off_makes_the_episode_overlong_unless_it_goes_on() -> None:
    episode = TokenEpisode(Model("long", ends=False), LIMITS)
    assert (await Talk(episode).ask()).finish_reason == "length"
    assert episode.outcome is Outcome.overlong


async def test_a_call_that_cannot_be_read_is_text_to_the_agent_and_the_outcome_at_the_end() -> None:
    episode = TokenEpisode(Model("<tool_call>\n{broken\n</tool_call>"), LIMITS)
    completion = await Talk(episode).ask()
    assert (completion.tool_calls, completion.finish_reason) == ((), "stop")
    assert episode.outcome is Outcome.wrong_format


async def test_where_tools_are_forbidden_calls_are_not_read() -> None:
    completion = await Talk(TokenEpisode(Model(CALL.format(1)), LIMITS)).ask(use_tools=False)
    assert completion.tool_calls == ()


async def test_an_engine_that_fails_ends_the_episode_for_every_agent() -> None:
    episode = TokenEpisode(Model("a", EpisodeFailure("the engine failed: out of memory")), LIMITS)
    talk = Talk(episode)
    await talk.ask()
    for name in ("agent", "another"):
        with pytest.raises(RequestRefused, match="out of memory") as refused:
            await Talk(episode, name).ask() if name == "another" else await talk.ask()
        assert (refused.value.status, refused.value.code) == (403, "episode_over")
    assert episode.over.is_set() and episode.stopped
    assert episode.outcome is Outcome.provider
    with pytest.raises(RequestRefused, match="this episode is over: the engine failed: out of memory"):
        await episode.count_tokens("agent", ChatRequest([QUESTION], TOOLS))


async def test_a_model_call_that_breaks_leaves_its_turn_to_the_next_request() -> None:
    episode = TokenEpisode(Model(RuntimeError("a bug"), "fine"), replace(LIMITS, max_turns=1))
    with pytest.raises(RuntimeError, match="a bug"):
        await Talk(episode).ask()
    assert (await Talk(episode).ask()).content == "fine"
    assert (episode.branches, len(episode.rows())) == ({}, 1)


def test_a_late_failure_does_not_replace_the_first() -> None:
    episode = TokenEpisode(Model(), LIMITS)
    first = EpisodeFailure("the engine failed")
    episode.fail(first)
    episode.fail(ToolHelperFailed("all endpoints are gone"))
    assert (episode.failure, episode.outcome) == (first, Outcome.provider)


async def test_an_episode_that_is_over_keeps_its_outcome() -> None:
    answered, stopped = (TokenEpisode(Model("a"), LIMITS) for _ in range(2))
    await Talk(answered).ask()
    answered.over.set()
    stopped.stop(Outcome.repetition)
    for episode, outcome in ((answered, Outcome.answered), (stopped, Outcome.repetition)):
        episode.stop(Outcome.max_turns)
        episode.fail(EpisodeFailure("the engine failed"))
        assert (episode.outcome, episode.failure) == (outcome, None)


async def test_an_answer_under_way_does_not_change_the_outcome_of_an_episode_that_was_stopped() -> None:
    episode = TokenEpisode(Model("a"), LIMITS)
    late = asyncio.create_task(Talk(episode).ask())
    await asyncio.sleep(0)
    episode.stop(Outcome.repetition)
    assert (await late).content == "a"
    assert (episode.outcome, episode.turns) == (Outcome.repetition, 1)


async def test_a_turn_that_was_lost_answers_the_same_request_again() -> None:
    model = Model("a")
    episode = TokenEpisode(model, replace(LIMITS, max_turns=1))
    conversation = episode.conversation("agent")
    request = ChatRequest([QUESTION], TOOLS)
    completion = await conversation.complete(request)
    conversation.undelivered(Completion("of another episode"))
    episode.undelivered("nobody", completion)
    assert len(episode.rows()) == 1
    for _ in range(2):
        conversation.undelivered(completion)
    assert (episode.rows(), len(episode.agents["agent"].lost)) == ([], 1)
    with pytest.raises(RequestRefused):
        await conversation.complete(ChatRequest([QUESTION, QUESTION], TOOLS))
    assert episode.stopped
    assert await conversation.complete(request) is completion
    assert (episode.outcome, episode.stopped, len(episode.rows())) == (Outcome.answered, False, 1)
    with pytest.raises(RequestRefused):
        await conversation.complete(request)
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"use_tools": False},
            {"max_tokens": 5},
            {"stop": ("END",)},
            {"constraints": ResponseConstraints(must_call=True)},
        ),
        *({"logprobs": True}, {"top_logprobs": 1}, {"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 3}),
        {"messages": [QUESTION, QUESTION]},
    ],
    ids=str,
)
async def test_a_turn_that_was_lost_does_not_answer_another_request(options: dict[str, Any]) -> None:
    episode = TokenEpisode(Model("a", "b"), LIMITS)
    request = ChatRequest([QUESTION], TOOLS)
    episode.undelivered("agent", await episode.complete("agent", request))
    assert (await episode.complete("agent", replace(request, **options))).content == "b"
    assert episode.agents["agent"].graph.undelivered == 1


async def test_a_turn_that_was_sent_and_may_be_lost_is_trained_on_and_answers_the_same_request_again() -> (
    None
):
    model = Model("a")
    episode = TokenEpisode(model, LIMITS)
    request = ChatRequest([QUESTION], TOOLS)
    completion = await episode.complete("agent", request)
    for _ in range(2):
        episode.undelivered("agent", completion, was_sent=True)
        assert len(episode.rows()) == 1
        assert await episode.complete("agent", request) is completion
    assert (len(model.calls), episode.turns, len(episode.rows())) == (1, 1, 1)


async def test_a_turn_that_was_lost_and_yet_continued_answers_no_other_request() -> None:
    episode = TokenEpisode(Model("a", "b", "c"), LIMITS)
    talk = Talk(episode)
    episode.undelivered("agent", await talk.ask())
    await talk.ask()
    assert (await episode.complete("agent", ChatRequest([QUESTION], TOOLS))).content == "c"


async def test_the_tokens_of_a_request_are_counted_without_a_trace() -> None:
    model = Model("a", "b")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    conversation = episode.conversation("agent")
    counts = []
    for _ in range(2):
        request = ChatRequest(list(talk.history), TOOLS)
        counts.append(await conversation.count_tokens(request))
        assert episode.turns == len(model.calls)
        await talk.ask()
        counts.append(await conversation.count_tokens(request))
    first, second = (len(prompt) for prompt, _ in model.calls)
    assert counts == [first, first, second, second]
    assert episode.given_tokens == first + second


async def test_an_episode_in_which_nobody_asked_is_the_agents_failure() -> None:
    assert TokenEpisode(Model(), LIMITS).outcome is Outcome.agent


async def test_a_thought_without_an_end_is_no_answer_and_does_not_swallow_later_turns() -> None:
    model = Model("<think>so <answer>1</answer>", "<answer>2</answer>")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    completion = await talk.ask()
    assert (completion.content, completion.reasoning) == ("", "so <answer>1</answer>")
    assert episode.outcome is Outcome.wrong_format and episode.stopped
    assert episode.text_of("agent") == ""
    await talk.ask()
    assert episode.outcome is Outcome.answered and not episode.stopped
    assert episode.text_of("agent") == "<answer>2</answer>"


async def test_a_thought_that_is_cut_off_is_no_answer_and_the_agent_is_not_to_blame() -> None:
    episode = TokenEpisode(Model("<think>so <answer>1</answer>", ends=False), LIMITS)
    completion = await Talk(episode).ask()
    assert (completion.content, completion.finish_reason) == ("", "length")
    assert episode.outcome is Outcome.overlong and episode.stopped
    assert episode.text_of("agent") == ""


async def test_neither_calls_nor_thoughts_are_part_of_the_answer() -> None:
    call = CALL.format('"<answer>1</answer>"')
    model = Model(f"<think><answer>0</answer></think>I look.\n{call}", "It is <answer>2</answer>.")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    await talk.ask()
    await talk.ask()
    assert episode.text_of("agent") == "I look.\nIt is <answer>2</answer>."


@pytest.mark.parametrize("text", [CALL.format(1), "same"])
async def test_the_same_turn_again_and_again_ends_the_episode(text: str) -> None:
    model = Model(*[CALL.format(0), text, text, text, "never"])
    episode = TokenEpisode(model, replace(LIMITS, repetition=RepetitionLimits(turns=3)))
    talk = Talk(episode)
    for _ in range(3):
        await talk.ask()
    with pytest.raises(RequestRefused, match="repeated itself"):
        await talk.ask()
    assert episode.outcome is Outcome.repetition
    assert episode.turns == 4
    assert sum(sum(row.mask) for _, row in episode.rows()) == sum(len(s.tokens) for _, s in model.calls)


async def test_a_turn_that_ends_in_a_loop_ends_the_episode() -> None:
    limits = replace(LIMITS, repetition=RepetitionLimits(loops=8))
    episode = TokenEpisode(Model("fine", "so " * 100, ends=False), limits)
    talk = Talk(episode)
    await talk.ask()
    with pytest.raises(RequestRefused, match="this episode is over: the model repeated itself") as refused:
        await talk.ask()
    assert (refused.value.status, refused.value.code) == (403, "episode_over")
    assert episode.outcome is Outcome.repetition and episode.stopped


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([1, 2, 3] * 40, True),
        ([9, 8] + [7] * 200, True),
        ([7] * 60, False),
        (list(range(200)), False),
        ([1, 2, 3] * 40 + [4], False),
        ([], False),
    ],
)
def test_a_loop_is_a_period_that_goes_on_for_long(tokens: list[int], found: bool) -> None:
    assert ends_in_loop(tokens, 8) is found
    assert ends_in_loop(tokens, 0) is False


async def test_agents_have_conversations_of_their_own_and_only_the_trainable_ones_have_rows() -> None:
    model = Model(*"abcd")
    episode = TokenEpisode(model, LIMITS)
    planner, worker = Talk(episode, "planner"), Talk(episode, "worker")
    for talk in (planner, worker, planner, worker):
        await talk.ask()
    assert model.calls[0][0] == model.calls[1][0], "the same question, and yet two conversations"
    assert [name for name, _ in episode.rows()] == ["planner", "worker"]
    [(name, row)] = episode.rows(["worker"])
    assert name == "worker"
    sampled = [t for t, mask in zip(row.response, row.mask, strict=True) if mask]
    assert model.tokenizer.decode(sampled) == "b<|im_end|>d<|im_end|>"
    assert not episode.branches
    assert (episode.turns, episode.versions) == (4, (1, 5))


async def test_branches_and_misses_of_all_agents_are_counted() -> None:
    episode = TokenEpisode(Model(*"abcd"), LIMITS)
    assert episode.versions is None
    for name in ("planner", "worker"):
        talk = Talk(episode, name)
        await talk.ask(constraints=ResponseConstraints(must_call=True))
        talk.history[0] = Message("user", "Another question.")
        await talk.ask()
    assert (episode.branches, episode.misses) == ({"new": 2}, {"no_call": 2})
    assert (episode.text_of("worker"), episode.text_of("nobody")) == ("c\nd", "")


# Long histories


def shortened(policy: Any, budget: int, **options: Any) -> EpisodeLimits:
    return replace(LIMITS, context=ContextSettings(policy=policy, budget=budget, **options))


async def play(
    limits: EpisodeLimits, *script: Turn, result: Callable[[int], str]
) -> tuple[TokenEpisode, Model, Talk]:
    model = Model(*script)
    episode = TokenEpisode(model, limits)
    talk = Talk(episode)
    for number in range(len(script)):
        await talk.ask(result=result(number))
        if talk.episode.over.is_set():
            break
    return episode, model, talk


def numbered(number: int) -> str:
    return f"result {number} " + "x" * 300


async def test_discarding_tools_keeps_every_turn_and_the_newest_results() -> None:
    calls = [CALL.format(i) for i in range(5)]
    episode, model, _ = await play(shortened("discard_tools", 1200, keep=1), *calls, "done", result=numbered)
    resets = episode.branches["reset"]
    assert resets >= 1
    assert set(episode.branches) == {"reset"}, "after a reset the conversation simply goes on"
    assert all(len(prompt) <= 1200 for prompt, _ in model.calls)
    last = texts(model)[-1]
    assert last.count(contexts.DISCARDED) >= 1
    assert "result 4" in last
    assert "result 0" not in last
    rows = [row for _, row in episode.rows()]
    assert len(rows) == resets + 1
    assert sum(sum(row.mask) for row in rows) == sum(len(s.tokens) for _, s in model.calls)


async def test_equal_tools_in_another_order_continue_the_conversation() -> None:
    model = Model("a", "b", "c")
    episode = TokenEpisode(model, LIMITS)
    other = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    answer = await episode.complete("agent", ChatRequest([QUESTION], [*TOOLS, other]))
    history = [QUESTION, answer.message, Message("user", "Go on.")]
    reordered = [{"function": dict(reversed(tool["function"].items())), "type": "function"} for tool in TOOLS]
    await episode.complete("agent", ChatRequest(history, [other, *reordered]))
    assert not episode.branches
    assert len(episode.rows()) == 1
    await episode.complete("agent", ChatRequest(history, TOOLS))
    assert episode.branches == {"tools": 1}
    assert episode.agents["agent"].tools is TOOLS


async def test_an_episode_that_failed_before_its_first_turn_is_stopped() -> None:
    episode = TokenEpisode(Model(), LIMITS)
    assert not episode.stopped
    episode.fail(EpisodeFailure("the environment is gone"))
    assert episode.stopped


async def test_keeping_the_last_turns_forgets_the_others() -> None:
    calls = [CALL.format(i) for i in range(6)]
    episode, model, _ = await play(shortened("keep_last_k", 1200, keep=1), *calls, "done", result=numbered)
    last = texts(model)[-1]
    assert episode.branches["reset"] >= 1
    point = episode.agents["agent"].graph.branch_points[0]
    assert (point.cause, point.message, point.role) == ("reset", 1, "assistant")
    assert point.recorded and point.recorded != point.sent
    assert "What was asked?" in last
    assert "result 5" in last
    assert "result 0" not in last


async def test_the_model_sums_up_for_itself_and_is_trained_on_it() -> None:
    script = [
        CALL.format(0),
        CALL.format(1),
        CALL.format(2),
        f"I found two results.\n{CALL.format(3)}",
        "done",
    ]
    model = Model(*script)
    episode = TokenEpisode(model, shortened("summarize", 1200))
    talk = Talk(episode)
    for number in range(4):
        await talk.ask(
            result=numbered(number), stop=("two",), constraints=ResponseConstraints(must_call=True)
        )
    prompts = texts(model)
    assert contexts.ASK_FOR_SUMMARY in prompts[3]
    assert contexts.SUMMARY_FOLLOWS + "I found two results." in prompts[4]
    assert "result 0" not in prompts[4]
    assert talk.history[-2].content == "done"
    rows = [row for _, row in episode.rows()]
    trained = "".join(
        model.tokenizer.decode([t for t, mask in zip(row.response, row.mask, strict=True) if mask])
        for row in rows
    )
    assert "I found two results." in trained
    assert episode.branches == {"reset": 1}
    # The summary is no answer to the agent: what it wants of one does not hold for it.
    assert episode.agents["agent"].completions[3].tool_calls == ()
    assert episode.misses == {"no_call": 1}


async def test_a_history_is_shortened_when_it_is_over_the_budget_and_not_before() -> None:
    turn, more = Message("assistant", "Yes."), Message("user", "Go on.")
    request = ChatRequest([QUESTION, turn, more, turn, more], TOOLS)
    length = await TokenEpisode(Model(), LIMITS).count_tokens("agent", request)
    for budget, branches in ((length, []), (length - 1, [BranchPoint("reset", 3, "", 0, "", "")])):
        model = Model("a")
        episode = TokenEpisode(model, shortened("keep_last_k", budget))
        await episode.complete("agent", request)
        assert (len(model.calls[0][0]) < length) is bool(branches)
        assert episode.agents["agent"].graph.branch_points == branches


async def test_a_history_with_nothing_to_leave_out_stays_as_it_is() -> None:
    episode = TokenEpisode(Model("a"), shortened("keep_last_k", 1))
    await Talk(episode).ask()
    assert not episode.branches


async def test_another_model_sums_up_and_its_failure_ends_the_episode() -> None:
    async def sums_up(messages: list[Message]) -> str:
        assert messages[-1].content == contexts.ASK_FOR_SUMMARY
        return "All of it."

    async def fails(messages: list[Message]) -> str:
        raise EpisodeFailure("the endpoint is gone")

    script = [CALL.format(0), CALL.format(1), CALL.format(2), "done"]
    _, model, _ = await play(shortened("summarize", 900, summarizer=sums_up), *script, result=numbered)
    assert "All of it." in texts(model)[-1]
    with pytest.raises(RequestRefused, match="the endpoint is gone"):
        await play(shortened("summarize", 900, summarizer=fails), *script, result=numbered)


async def test_a_long_result_is_condensed_once_and_a_short_one_not_at_all() -> None:
    condenser_requests: list[list[Message]] = []

    async def condense(messages: list[Message]) -> str:
        condenser_requests.append(messages)
        return f"in short {len(condenser_requests)}"

    limits = replace(LIMITS, context=ContextSettings(condense_over=50, condenser=condense))
    results = ["short", "long " * 100, "other " * 100]
    episode, model, _ = await play(
        limits, *(CALL.format(i) for i in range(3)), "done", result=lambda i: results[min(i, 2)]
    )
    last = texts(model)[-1]
    assert len(condenser_requests) == 2
    assert "What was asked?" in condenser_requests[0][1].content
    assert "long long" in condenser_requests[0][1].content
    assert ("in short 1" in last, "in short 2" in last, "long long" in last) == (True, True, False)
    assert "short" in texts(model)[1]
    assert not episode.branches


async def test_a_result_that_cannot_be_condensed_ends_the_episode_and_is_not_the_models_fault() -> None:
    async def fails(messages: list[Message]) -> str:
        raise EpisodeFailure("all endpoints are gone")

    limits = replace(LIMITS, context=ContextSettings(condense_over=50, condenser=fails))
    model = Model(CALL.format(0), "never")
    episode = TokenEpisode(model, limits)
    talk = Talk(episode)
    await talk.ask(result="long " * 100)
    with pytest.raises(RequestRefused, match="all endpoints are gone"):
        await talk.ask()
    assert isinstance(episode.failure, ToolHelperFailed)
    assert episode.outcome is Outcome.tool


async def test_requests_of_one_agent_at_the_same_time_are_paths_of_their_own() -> None:
    model = Model(*"abc")
    episode = TokenEpisode(model, replace(LIMITS, max_turns=3))
    requests = [episode.complete("agent", ChatRequest([QUESTION], TOOLS)) for _ in range(4)]
    *_, refusal = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(refusal, RequestRefused) and refusal.code == "max_turns"
    assert len(episode.rows()) == 3
    assert {tuple(prompt) for prompt, _ in model.calls} == {tuple(model.calls[0][0])}
    points = [BranchPoint("resampled", 1, "", 0, "", "")] * 2
    assert episode.agents["agent"].graph.branch_points == points


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["system", "user", "user", "tool"], ["system", "user", "user, wish", "tool"]),
        (["user"], ["user, wish"]),
        (["tool"], ["tool", "wish"]),
    ],
)
def test_a_wish_is_in_the_users_last_message_or_one_of_its_own(before: list[Any], after: list[str]) -> None:
    messages = [Message(role, role) for role in before]
    assert with_wish(messages, "") is messages
    contents = [message.content.replace("\n\n", ", ") for message in with_wish(messages, "wish")]
    assert contents == after


async def test_the_outcome_is_that_of_the_turn_which_the_answer_comes_from() -> None:
    """After it an agent may ask for something else: for a word of its memory, or for more turns than it has."""
    model = Model("The sum is 42.", f"I look it up: 7.{CALL.format(1)}")
    episode = TokenEpisode(model, replace(LIMITS, max_turns=2))
    talk = Talk(episode)
    await talk.ask()
    assert episode.outcome_of("42\n") is Outcome.answered
    await talk.ask()
    with pytest.raises(RequestRefused):
        await talk.ask()
    assert episode.outcome is Outcome.max_turns
    assert episode.outcome_of(" 42") is Outcome.answered
    for other in ("7", "41", " ", ""):
        assert episode.outcome_of(other) is Outcome.max_turns, (
            "a turn that calls a tool is not taken for the answer"
        )
    episode.fail(EpisodeFailure("gone"))
    assert episode.outcome_of("42") is Outcome.provider
