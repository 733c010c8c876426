"""What is recorded of a turn is what was sampled, and the answer is what the client asked for of it."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout import token_episode
from aworld_train.rollout.episode import SampledTurn, request_options, with_wish
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model import ParsedTurn, SampledTokens
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, ResponseConstraints
from aworld_train.rollout.template import TemplateFailure
from aworld_train.rollout.token_episode import TokenEpisode
from tests.unit.rollout.test_episode import CALL, LIMITS, QUESTION, TOOLS, Model, Talk, texts
from tests.vision import image

TEXT = Message("user", "Once upon")


async def test_an_answer_holds_what_was_sampled_up_to_the_stop_text_and_what_was_asked_for() -> None:
    model = Model("<think>hm</think>one STOP two")
    episode = TokenEpisode(model, LIMITS)
    request = ChatRequest(
        [QUESTION],
        TOOLS,
        max_tokens=50,
        stop=("HALT", "STOP"),
        logprobs=True,
        top_logprobs=2,
        constraints=ResponseConstraints(must_call=True),
    )
    began_at, began = time.time(), time.monotonic()
    completion = await episode.complete("agent", request)
    ended_at, seconds = time.time(), time.monotonic() - began
    [(prompt, sampled)] = model.calls
    size = len(completion.tokens)
    tokens, logprobs = sampled.tokens[:size], sampled.logprobs[:size]
    assert model.text(tokens).rstrip() == "<think>hm</think>one STOP"
    assert completion == Completion(
        "one ",
        "hm",
        prompt_tokens=len(prompt),
        tokens=tokens,
        logprobs=logprobs,
        texts=[model.text([token]) for token in tokens],
        top_logprobs=[
            [(model.text([token]), logprob), (model.text([token + 1]), -9.0)]
            for token, logprob in zip(tokens, logprobs, strict=True)
        ],
        seconds=completion.seconds,
        stop="STOP",
        misses=("no_call",),
    )
    [turn] = episode.agents["agent"].turns
    sampling, _ = model.sampling_calls[0]
    assert turn == SampledTurn(
        completion, turn.node, request_options(request), TOOLS, sampling, 50, turn.began
    )
    node = turn.node
    assert (node.tokens, node.logprobs, node.stop, node.ended) == (tokens, logprobs, "STOP", False)
    assert began_at <= turn.began <= ended_at
    assert 0 < completion.seconds == episode.generate_seconds <= seconds


async def test_an_answer_holds_nothing_that_was_not_asked_for() -> None:
    model = Model(f"So.\n{CALL.format(1)}")
    episode = TokenEpisode(model, LIMITS)
    completion = await Talk(episode).ask()
    [(prompt, sampled)] = model.calls
    [call] = completion.tool_calls
    assert completion == Completion(
        "So.",
        tool_calls=(ToolCall("calc", '{"a": 1}', call.call_id),),
        finish_reason="tool_calls",
        prompt_tokens=len(prompt),
        tokens=sampled.tokens,
        logprobs=sampled.logprobs,
        seconds=completion.seconds,
    )
    assert (episode.turns, episode.given_tokens) == (1, len(prompt))


@pytest.mark.parametrize(
    ("stop", "content", "finish_reason"),
    [((), "a, b and c", "length"), (("END",), "a, b and c", "length"), (("and", "b"), "a, ", "stop")],
)
async def test_a_text_is_continued_without_template_tools_and_thoughts(
    stop: tuple[str, ...], content: str, finish_reason: str
) -> None:
    model = Model("a, b and c", ends=False)
    episode = TokenEpisode(model, LIMITS)
    completion = await episode.complete("agent", ChatRequest([TEXT], TOOLS, plain=True, stop=stop))
    assert texts(model) == [TEXT.content]
    assert (completion.content, completion.finish_reason) == (content, finish_reason)
    assert episode.agents["agent"].turns[0].tools == ()
    assert (await episode.count_tokens("agent", ChatRequest([TEXT], plain=True))) == len(model.calls[0][0])
    assert (await episode.count_tokens("agent", ChatRequest([TEXT]))) > len(model.calls[0][0])


@pytest.mark.parametrize(
    ("turn", "ends", "malformed"),
    [
        ("<tool_call>\n{broken\n</tool_call>", True, True),
        ("<think>never done", True, True),
        ("<tool_call>\n{broken\n</tool_call>", False, False),
        ("<think>never done", False, False),
        ("fine", True, False),
    ],
)
async def test_only_a_turn_that_was_not_cut_off_is_malformed(turn: str, ends: bool, malformed: bool) -> None:
    completion = await Talk(TokenEpisode(Model(turn, ends=ends), LIMITS)).ask()
    assert (completion.malformed, completion.finish_reason) == (malformed, "stop" if ends else "length")


async def test_a_turn_is_read_by_the_tools_that_it_may_call() -> None:
    class Reading(Model):
        tools: Any = None

        async def parse(self, tokens: Sequence[int], tools: Sequence[Any], prompt: Sequence[int]) -> Any:
            self.tools = tools
            return ParsedTurn("so", calls=[ToolCall("calc", "{}")])

    model = Reading("a", "b")
    talk = Talk(TokenEpisode(model, LIMITS))
    for use_tools, tools in ((True, TOOLS), (False, ())):
        completion = await talk.ask(use_tools=use_tools)
        assert model.tools == tools
        assert bool(completion.tool_calls) is use_tools


async def test_calls_of_an_agent_share_a_request_id_and_an_image_goes_with_its_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[tuple[str, Sequence[Image]]] = []

    class Named(Model):
        async def generate(self, request_id: str, *arguments: Any) -> SampledTokens:
            requests.append((request_id, arguments[-1]))
            return await super().generate(request_id, *arguments)

    model = Named(*"abcd")
    monkeypatch.setattr(model.template, "initial", lambda *arguments: [1])
    photo = image(0)
    request = ChatRequest([changed(QUESTION, images=(photo,))])
    first, second = (TokenEpisode(model, LIMITS) for _ in range(2))
    for episode, name in ((first, "planner"), (first, "planner"), (first, "worker"), (second, "planner")):
        await episode.complete(name, request)
    assert [images for _, images in requests] == [[photo]] * 4
    ids = [request_id for request_id, _ in requests]
    assert ids[0] == ids[1] and len(set(ids)) == 3


async def test_a_wish_that_comes_late_is_shown_with_the_new_messages() -> None:
    model = Model("a", "b")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    await talk.ask()
    await talk.ask(constraints=ResponseConstraints(output=OutputFormat()))
    assert texts(model)[1].count(OutputFormat().prompt) == 1
    assert f"Go on.\n\n{OutputFormat().prompt}" in texts(model)[1]
    assert (len(episode.rows()), episode.branches) == (1, {})


@pytest.mark.parametrize(
    ("message", "is_inline"),
    [
        (Message("user", "x" * 20_000), True),
        (Message("user", "x" * 20_001), False),
        (Message("user", "x", images=(image(0),)), False),
    ],
    ids=["short", "long", "image"],
)
async def test_what_takes_long_to_render_does_not_stop_the_event_loop(
    message: Message, is_inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    threads = []

    def initial(*arguments: Any) -> list[int]:
        threads.append(threading.current_thread())
        return [1]

    monkeypatch.setattr(model.template, "initial", initial)
    assert await TokenEpisode(model, LIMITS).count_tokens("agent", ChatRequest([message])) == 1
    assert (threads == [threading.current_thread()]) is is_inline


async def test_messages_that_the_template_refuses_are_refused_and_the_next_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model("a")
    episode = TokenEpisode(model, LIMITS)
    with monkeypatch.context() as patched:

        def initial(*arguments: Any) -> list[int]:
            raise TemplateFailure("no system")

        patched.setattr(model.template, "initial", initial)
        with pytest.raises(RequestRefused, match="refuses the messages: no system") as refused:
            await Talk(episode).ask()
    assert (refused.value.status, refused.value.parameter) == (400, "messages")
    assert (await Talk(episode).ask()).content == "a"


@pytest.mark.parametrize(
    ("more", "role"), [([Message("user", "Go on.")], "user"), ([], "")], ids=["template", "nothing new"]
)
async def test_a_turn_that_cannot_be_continued_is_rendered_with_all_before_it(
    more: list[Message], role: str
) -> None:
    wish = ResponseConstraints(output=OutputFormat())
    model = Model("a", "b")
    model.template.anew = {"user": "too long " * 100}
    episode = TokenEpisode(model, LIMITS)
    answer = await episode.complete("agent", ChatRequest([QUESTION], TOOLS, constraints=wish))
    history = [QUESTION, answer.message, *more]
    await episode.complete("agent", ChatRequest(history, TOOLS, constraints=wish))
    assert model.calls[1][0] == model.template.initial(with_wish(history, wish.prompt), TOOLS)
    reason = ("too long " * 100)[:200] if more else "no message follows the turn"
    assert episode.agents["agent"].graph.branch_points == [BranchPoint("template", 2, role, 0, "", reason)]
    assert len(episode.rows()) == 2


async def test_requests_are_taken_by_the_limits_and_the_models_template() -> None:
    model = Model()
    model.max_top_logprobs = 3
    model.template.options, model.template.no_images = {"enable_thinking": False}, "none"
    for strict in (True, False):
        rules = TokenEpisode(model, replace(LIMITS, strict_requests=strict)).rules
        most = LIMITS.max_text_bytes
        assert rules == RequestRules(strict, {"enable_thinking": False}, 3, "none", most)
    assert TokenEpisode(model, LIMITS).rules.strict is False


async def test_a_stop_text_ends_the_turn_where_it_stands_and_what_follows_was_never_said() -> None:
    model = Model("one two STOP three", "next")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    completion = await talk.ask(stop=("STOP",))
    assert (completion.content, completion.finish_reason) == ("one two ", "stop")
    await talk.ask()
    [(_, row)] = episode.rows()
    assert "three" not in model.tokenizer.decode(row.prompt + row.response)
    assert "one two STOP<|im_end|>\n<|im_start|>user\nGo on." in texts(model)[1]
    # What the template had to close the turn with was not sampled.
    sampled = [t for t, mask in zip(row.response, row.mask, strict=True) if mask]
    assert model.tokenizer.decode(sampled) == "one two STOPnext<|im_end|>"


@pytest.mark.parametrize("put_back", ["", "STOP", "STOP\n"])
async def test_a_history_with_or_without_the_stop_text_is_the_same_conversation(put_back: str) -> None:
    model = Model(*(f"step {number} STOP and more" for number in range(4)))
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    for _ in range(4):
        completion = await talk.ask(stop=("Never", "STOP"))
        talk.history[-2] = changed(completion.message, content=completion.content + put_back)
    assert [sampling.stop for sampling, _ in model.sampling_calls] == [("Never", "STOP")] * 4
    assert len(episode.rows()) == 1
    assert not episode.branches


async def test_a_text_that_only_looks_like_the_stop_text_is_another_history() -> None:
    model = Model("one STOP", "two")
    episode = TokenEpisode(model, LIMITS)
    talk = Talk(episode)
    completion = await talk.ask(stop=("STOP",))
    talk.history[-2] = changed(completion.message, content=completion.content + "HALT")
    await talk.ask()
    assert episode.branches == {"rewritten": 1}


async def test_identifiers_that_the_model_wrote_are_kept_unless_they_repeat() -> None:
    class Writing(Model):
        async def parse(self, *arguments: Any) -> ParsedTurn:
            ids = ("functions.calc:0", "functions.calc:0", "")
            return ParsedTurn("", calls=[ToolCall("calc", "{}", call_id) for call_id in ids])

    calls = (await Talk(TokenEpisode(Writing("a"), LIMITS)).ask()).tool_calls
    assert calls[0].call_id == "functions.calc:0"
    assert len({call.call_id for call in calls}) == 3
    assert all(call.call_id.isalnum() and len(call.call_id) == 9 for call in calls[1:])


async def test_identifiers_of_calls_are_drawn_from_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_episode, "_RANDOM", random.Random(1))
    ids = {token_episode._call_id() for _ in range(2000)}
    assert len(ids) == 2000 and {len(each) for each in ids} == {9}
