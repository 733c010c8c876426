"""Whatever agents do with their histories, what is trained on is what the engine was given and returned."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.messages import ChatRequest, RequestRefused
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.token_episode import TokenEpisode
from tests import templates
from tests.properties import examples
from tests.templates import ScriptedModel, cut_up

FAMILIES = list(templates.ENDS)
TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}]
MORE_TOOLS = [*TOOLS, {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
NO_LIMITS = EpisodeLimits(1000, 10_000, 100_000, SamplingParams(1.0, 1.0, -1))


words = st.sampled_from(["the answer", "tool", " said", "é 漢", "\n\n", "42", "<think>", "  ", "was asked"])
texts = st.lists(words, max_size=4).map("".join)
thoughts = st.sampled_from(["", "", "<think>\nhm\n</think>\n\n", "<think>never done"])
written_calls = st.lists(
    st.sampled_from(
        [
            '\n<tool_call>\n{"name": "calc", "arguments": {"b": 1, "a":2}}\n</tool_call>',
            '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
            "<tool_call>\n{broken\n</tool_call>",
        ]
    ),
    max_size=2,
).map("".join)


@st.composite
def turns(draw: st.DrawFn) -> tuple[str, bool, int]:
    """A text that the model samples, whether it ends the turn itself, and a seed for how it cuts the text up."""
    return (
        draw(thoughts) + draw(texts) + draw(written_calls),
        draw(st.sampled_from([True] * 6 + [False])),
        draw(st.integers(0, 3)),
    )


def results_of(message: Message, text: str) -> list[Message]:
    return [Message("tool", text, call_id=call.call_id, name=call.name) for call in message.tool_calls]


def as_programs_send_it_back(message: Message) -> Message:
    """Reasoning dropped, arguments spaced and ordered otherwise, white space around the text."""
    calls = []
    for call in message.tool_calls:
        arguments = json.dumps(dict(reversed(json.loads(call.arguments).items())), indent=1)
        calls.append(ToolCall(call.name, arguments, call.call_id))
    return Message(message.role, f"\n{message.content} ", tuple(calls))


actions = st.sampled_from(
    ["go on"] * 6 + ["ask again", "edit", "rewrite", "cut", "fresh", "tools", "drop results"]
)


@dataclass
class Agent:
    """An agent that may do anything with its history before it asks again."""

    name: str
    history: list[Message]
    tools: list[dict[str, Any]]

    async def step(self, episode: TokenEpisode, action: str, text: str, back: bool) -> None:
        history = list(self.history)
        spoken = [i for i, m in enumerate(history) if m.role == "assistant"]
        if action == "edit" and len(history) > 1:
            history[1] = replace(history[1], content=f"{history[1].content} {text}!")
        elif action == "rewrite" and spoken:
            history[spoken[0]] = Message("assistant", f"rewritten {text}")
        elif action == "cut" and len(spoken) > 1:
            history = history[: spoken[-1]]
        elif action == "fresh":
            history = [Message("system", f"Another job. {text}"), Message("user", "Sum up.")]
        elif action == "drop results":
            history = [replace(m, content="[removed]") if m.role == "tool" else m for m in history]
        elif action == "tools":
            self.tools = MORE_TOOLS if self.tools is TOOLS else TOOLS
        try:
            completion = await episode.complete(self.name, ChatRequest(history, self.tools))
        except RequestRefused:
            return  # a template that does not take such a history
        if action == "ask again":
            return
        answer = as_programs_send_it_back(completion.message) if back else completion.message
        self.history = [*history, answer, *results_of(completion.message, text)]
        if not completion.tool_calls:
            self.history.append(Message("user", f"And then? {text}"))


@pytest.mark.parametrize("family", FAMILIES)
@examples(120)
@given(data=st.data())
def test_rows_hold_what_the_engine_was_given_and_returned(family: str, data: st.DataObject) -> None:
    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        text, ended, seed = data.draw(turns())
        tokens = cut_up(tokenizer, text, seed)
        if ended or not tokens:
            tokens.append(tokenizer.eos_token_id)
        return tokens, tokens[-1] == tokenizer.eos_token_id

    engine = ScriptedModel(family, draw)
    episode = TokenEpisode(engine, NO_LIMITS)
    start = [Message("system", "Be brief."), Message("user", "What was asked?")]
    agents = [Agent(name, list(start), TOOLS) for name in ("first", "second")]

    async def play() -> None:
        for who in data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=9)):
            step = agents[who].step(
                episode, data.draw(actions), data.draw(texts), back=data.draw(st.booleans())
            )
            await step

    asyncio.run(play())
    assert engine.calls
    check(episode, engine)


@pytest.mark.parametrize("family", FAMILIES)
@examples(25)
@given(data=st.data())
def test_agents_that_ask_at_the_same_time_keep_their_tokens_apart(family: str, data: st.DataObject) -> None:
    seeds = iter(range(10_000))

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, f"turn {next(seeds)} ", 1), tokenizer.eos_token_id], True

    engine = ScriptedModel(family, draw)
    episode = TokenEpisode(engine, NO_LIMITS)
    plans = data.draw(st.lists(st.lists(actions, min_size=1, max_size=6), min_size=2, max_size=5))

    async def work(name: str, plan: list[str]) -> None:
        agent = Agent(name, [Message("user", f"I am {name[0]}.")], TOOLS)
        for action in plan:
            await agent.step(episode, action, "text", back=True)

    async def play() -> None:
        await asyncio.gather(*(work(f"{i}", plan) for i, plan in enumerate(plans)))

    asyncio.run(play())
    assert engine.calls
    check(episode, engine)


def check(episode: TokenEpisode, engine: ScriptedModel) -> None:
    """All that has to hold, whatever happened."""
    rows = [row for _, row in episode.rows()]

    # Each row is the input of a model call and its output, with nothing in between or after.
    exchanges = [prompt + sampled.tokens for prompt, sampled in engine.calls]
    for row in rows:
        assert row.prompt + row.response in exchanges
        assert len(row.response) == len(row.mask) == len(row.logprobs)

    # Every sampled token is trained on in exactly one place, with its own log-probability, and nothing else is.
    trained = [
        (token, logprob)
        for row in rows
        for token, mask, logprob in zip(row.response, row.mask, row.logprobs, strict=True)
        if mask
    ]
    sampled = [pair for _, s in engine.calls for pair in zip(s.tokens, s.logprobs, strict=True)]
    assert Counter(trained) == Counter(sampled)
    assert max(Counter(trained).values(), default=1) == 1
    for row in rows:
        assert all(p == 0.0 for p, mask in zip(row.logprobs, row.mask, strict=True) if not mask)
        # A sampled token was drawn after exactly what stands before it in its row.
        for begin, end in row.turns:
            before = row.prompt + row.response[:begin]
            assert (before, row.response[begin:end]) in [(g, s.tokens) for g, s in engine.calls]

    # Every input is a path of the graph, and no token of it is held twice along the way.
    for record in episode.agents.values():
        for node in record.graph.nodes():
            assert node.length == len(node.path_tokens)
            if node.sampled:
                assert node.parent is not None
                assert (node.parent.path_tokens, node.tokens) in [(g, s.tokens) for g, s in engine.calls]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("turns_of_tools", [0, 1, 20])
def test_a_history_that_only_grows_is_one_row_rendered_once(family: str, turns_of_tools: int) -> None:
    call = '<tool_call>\n{"name": "calc", "arguments": {"a": 2}}\n</tool_call>'
    script = iter([call] * turns_of_tools + ["done"])

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, next(script), 2), tokenizer.eos_token_id], True

    engine = ScriptedModel(family, draw)
    episode = TokenEpisode(engine, NO_LIMITS)
    agent = Agent("agent", [Message("system", "Be brief."), Message("user", "What was asked?")], TOOLS)
    for _ in range(turns_of_tools + 1):
        asyncio.run(agent.step(episode, "go on", "4", back=True))
    [(_, row)] = episode.rows()
    assert not episode.branches
    assert len(row.turns) == turns_of_tools + 1
    length = len(row.prompt) + len(row.response)
    sampled = sum(row.mask)
    assert engine.template.rendered_tokens + sampled <= 1.05 * length
    assert episode.agents["agent"].graph.unique_tokens == length


@pytest.mark.parametrize("family", ["chatml_tools", "chatml_thinking"])
def test_a_row_reads_as_the_template_writes_the_conversation(family: str) -> None:
    """Where the model writes as the template does, recording turn by turn and rendering at once give the same text."""
    call = '<tool_call>\n{"name": "calc", "arguments": {"a": 2}}\n</tool_call>'
    script = iter([call, f"Again.\n{call}\n{call}", "done"])
    if family == "chatml_thinking":
        script = iter(f"<think>\nhm\n</think>\n\n{text}" for text in list(script))

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, next(script), 0), tokenizer.eos_token_id], True

    engine = ScriptedModel(family, draw)
    episode = TokenEpisode(engine, NO_LIMITS)
    agent = Agent("agent", [Message("system", "Be brief."), Message("user", "What was asked?")], TOOLS)
    for _ in range(3):
        asyncio.run(agent.step(episode, "go on", "4", back=False))
    [(_, row)] = episode.rows()
    conversation = [message.for_template() for message in agent.history[:-1]]
    whole = engine.tokenizer.apply_chat_template(conversation, tools=TOOLS, tokenize=False)
    assert engine.tokenizer.decode(row.prompt + row.response) + "\n" == whole


def test_causes_of_branches_are_told_apart() -> None:
    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        text = '<tool_call>\n{"name": "calc", "arguments": {}}\n</tool_call>'
        return [*cut_up(tokenizer, text, 0), tokenizer.eos_token_id], True

    episode = TokenEpisode(ScriptedModel("chatml_tools", draw), NO_LIMITS)
    agent = Agent("agent", [Message("system", "Be brief."), Message("user", "What?")], TOOLS)

    async def play(actions: list[str]) -> None:
        for action in actions:
            await agent.step(episode, action, "text", back=True)

    asyncio.run(play(["go on", "go on", "ask again", "edit", "go on", "rewrite", "tools", "go on", "fresh"]))
    assert episode.branches == {"edited": 1, "rewritten": 1, "tools": 1, "new": 1}


def test_a_result_carries_the_identifier_that_the_model_was_shown() -> None:
    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        text = '<tool_call>\n{"name": "calc", "arguments": {}}\n</tool_call>'
        return [*cut_up(tokenizer, text, 0), tokenizer.eos_token_id], True

    engine = ScriptedModel("strict", draw)
    episode = TokenEpisode(engine, NO_LIMITS)
    history = [Message("user", "What?")]
    for _ in range(3):
        completion = asyncio.run(episode.complete("agent", ChatRequest(history, TOOLS)))
        (call,) = completion.tool_calls
        answer = Message("assistant", completion.content, (replace(call, call_id="of-the-client"),))
        history += [answer, Message("tool", "4", call_id="of-the-client", name="calc")]
        prompt = engine.text(engine.calls[-1][0])
        assert "of-the-client" not in prompt
    assert not episode.branches
    assert engine.text(engine.calls[-1][0]).count('"call_id"') == 2
