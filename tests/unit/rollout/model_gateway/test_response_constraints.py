"""What a client wants of an answer is shown to the model once, forced on it never, and counted where it is missed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.model_gateway import ModelGatewaySession
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, schema_fault
from aworld_train.rollout.token_episode import TokenEpisode
from tests.gateways import MODEL, serving
from tests.templates import ENDS, ScriptedModel, cut_up

LIMITS = EpisodeLimits(1000, 10_000, 100_000, SamplingParams(1.0, 1.0, -1))
USER: Any = {"role": "user", "content": "1+1?"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
ADD: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}
SAY: Any = {
    "type": "function",
    "function": {"name": "say", "parameters": {"type": "object", "properties": {}}},
}
CALL = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
FORCED = {"type": "function", "function": {"name": "add"}}


@asynccontextmanager
async def playing(
    *turns: str, family: str = "chatml_tools", max_top_logprobs: int = 0
) -> AsyncIterator[tuple[ScriptedModel, TokenEpisode, ModelGatewaySession]]:
    """An episode whose model says ``turns``, behind a gateway."""
    script = iter(turns)

    def draw(tokenizer: Any) -> tuple[list[int], bool]:
        return [*cut_up(tokenizer, next(script), 1), tokenizer.eos_token_id], True

    model = ScriptedModel(family, draw, max_top_logprobs=max_top_logprobs)
    episode = TokenEpisode(model, LIMITS)
    async with serving() as gateway:
        yield model, episode, gateway.open_session(MODEL, episode.conversation, episode.rules)


def client(session: ModelGatewaySession) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=session.address(), api_key="k", timeout=120)


async def post(url: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("wish", "turn", "misses"),
    [
        ({"tool_choice": "required"}, "No.", {"no_call": 1}),
        ({"tool_choice": "required"}, CALL, {}),
        ({"tool_choice": FORCED}, "No.", {"no_call": 1}),
        ({"tool_choice": FORCED}, CALL, {}),
        ({"tool_choice": FORCED}, CALL.replace("add", "say"), {"other_tool": 1}),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [{"type": "function", "function": {"name": "say"}}],
                    },
                }
            },
            CALL,
            {"other_tool": 1},
        ),
        ({"parallel_tool_calls": False}, f"{CALL}\n{CALL}", {"several_calls": 1}),
        ({"parallel_tool_calls": False}, CALL, {}),
        ({"response_format": FORMAT}, "two", {"schema": 1}),
        ({"response_format": FORMAT}, '{"n": "2"}', {"schema": 1}),
        ({"response_format": FORMAT}, '{"n": 2}', {}),
        ({"response_format": FORMAT}, CALL, {}),
        ({"response_format": {"type": "json_object"}}, "[2]", {"schema": 1}),
        ({"response_format": {"type": "json_object"}}, "{}", {}),
    ],
)
async def test_what_is_missed_is_counted_and_the_answer_is_an_ordinary_one(
    wish: Any, turn: str, misses: dict[str, int]
) -> None:
    async with playing(turn) as (model, episode, session), client(session) as ai:
        got = await ai.chat.completions.create(model="m", messages=[USER], tools=[ADD, SAY], **wish)
        assert episode.misses == misses
        [(_, row)] = episode.rows()
        assert model.text(row.response).strip() == turn
        message = got.choices[0].message
        assert (message.content or "") == ("" if CALL in turn or "say" in turn else turn)


async def test_a_schema_is_shown_once_and_the_loop_stays_one_row() -> None:
    async with playing(CALL, CALL, "no", '{"n": 3}') as (model, episode, session), client(session) as ai:
        history: list[Any] = [{"role": "system", "content": "Be brief."}, USER]
        for _ in range(4):
            got = await ai.chat.completions.create(
                model="m", messages=history, tools=[ADD], response_format=FORMAT
            )
            message = got.choices[0].message
            history.append(message.model_dump(exclude_none=True))
            calls = message.tool_calls or []
            history += [{"role": "tool", "tool_call_id": call.id, "content": "2"} for call in calls]
            if not calls:
                history.append({"role": "user", "content": "Once more."})
        prompts = [model.tokenizer.decode(prompt) for prompt, _ in model.calls]
        assert f"1+1?\n\n{OutputFormat(json.dumps(SCHEMA)).prompt}" in prompts[0]
        assert [prompt.count("JSON schema") for prompt in prompts] == [1] * 4
        assert len(episode.rows()) == 1
        assert (episode.branches, episode.misses) == ({}, {"schema": 1})


@pytest.mark.parametrize("family", ENDS)
async def test_a_schema_that_begins_in_the_middle_is_shown_there(family: str) -> None:
    async with playing(CALL, '{"n": 3}', family=family) as (model, episode, session), client(session) as ai:
        got = await ai.chat.completions.create(model="m", messages=[USER], tools=[ADD])
        message: Any = got.choices[0].message
        result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"}
        await ai.chat.completions.create(
            model="m", messages=[USER, message, result], tools=[ADD], response_format=FORMAT
        )
        prompt = model.tokenizer.decode(model.calls[1][0])
        assert prompt.count("JSON schema") == 1
        if family != "strict":  # whose turns must alternate, so it cannot go on with a user's message
            assert len(episode.rows()) == 1
            assert prompt.index("JSON schema") > prompt.index("tool_call")


async def test_the_same_history_with_and_without_a_schema_is_two_conversations() -> None:
    async with playing("two", '{"n": 2}') as (model, episode, session), client(session) as ai:
        await ai.chat.completions.create(model="m", messages=[USER])
        await ai.chat.completions.create(model="m", messages=[USER], response_format=FORMAT)
        assert [model.tokenizer.decode(prompt).count("JSON schema") for prompt, _ in model.calls] == [0, 1]
        assert len(episode.rows()) == 2


async def test_wishes_are_taken_in_every_dialect() -> None:
    async with playing("a", "b", "c") as (model, episode, session):
        async with client(session) as ai:
            text: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}
            function: Any = {"type": "function", "name": "add", "parameters": None, "strict": True}
            choice: Any = {"type": "function", "name": "add"}
            await ai.responses.create(
                model="m", input="1+1?", text=text, tools=[function], tool_choice=choice
            )
        tool: Any = {"name": "add", "input_schema": {"type": "object"}}
        for tool_choice in (
            {"type": "any", "disable_parallel_tool_use": True},
            {"type": "tool", "name": "add"},
        ):
            body: Any = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
            body |= {"tools": [tool], "tool_choice": tool_choice, "messages": [USER], "max_tokens": 9}
            assert (await post(f"{session.root()}/v1/messages", body))[0] == 200
        assert episode.misses == {"no_call": 3, "schema": 3}
        assert all("JSON schema" in model.tokenizer.decode(prompt) for prompt, _ in model.calls)
        assert len({tuple(prompt) for prompt, _ in model.calls[1:]}) == 1


@pytest.mark.parametrize(
    ("body", "parameter", "reason"),
    [
        ({"tool_choice": FORCED, "tools": [SAY]}, "tool_choice", "no tool 'add' among"),
        ({"tool_choice": "required"}, "tool_choice", "no tools among"),
        ({"tool_choice": {"type": "custom"}, "tools": [ADD]}, "tool_choice", "only a function"),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "only text"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "number of"}}}},
            "response_format.json_schema.schema",
            "not a JSON schema: $.type",
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": True}},
            "chat_template_kwargs.enable_thinking",
            "not among",
        ),
        ({"n": 0}, "n", "from 1 on"),
        ({"n": 1000}, "n", "from 1 to 128"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", "of the sampled token alone"),
        ({"min_p": 0.1}, "min_p", "how tokens are sampled"),
        ({"continue_final_message": True}, "continue_final_message", "how the prompt is written"),
    ],
)
async def test_what_is_still_refused_is_refused_with_its_reason(
    body: Any, parameter: str, reason: str
) -> None:
    async with playing() as (_, __, session):
        status, got = await post(f"{session.address()}/chat/completions", {"messages": [USER], **body})
    assert (status, got["error"]["param"]) == (400, parameter)
    assert reason in got["error"]["message"]


@pytest.mark.parametrize(
    ("options", "status"), [({"thinking": False}, 200), ({"thinking": 0}, 200), ({"thinking": True}, 400)]
)
async def test_arguments_of_the_template_may_be_those_of_the_recipe(options: Any, status: int) -> None:
    async with playing("a") as (model, _, __), serving() as gateway:
        episode = TokenEpisode(model, LIMITS)
        rules = RequestRules(template_options={"thinking": False})
        session = gateway.open_session(MODEL, episode.conversation, rules)
        body = {"messages": [USER], "chat_template_kwargs": options}
        assert (await post(f"{session.address()}/chat/completions", body))[0] == status


async def test_several_choices_are_branches_of_one_prompt() -> None:
    async with playing("a", "b", "c", "d") as (model, episode, session), client(session) as ai:
        got = await ai.chat.completions.create(model="m", messages=[USER], n=3)
        answers = [choice.message for choice in got.choices]
        assert [(choice.index, choice.message.content) for choice in got.choices] == [
            (0, "a"),
            (1, "b"),
            (2, "c"),
        ]
        assert got.usage is not None
        assert got.usage.completion_tokens == sum(len(s.tokens) for _, s in model.calls)
        assert got.usage.prompt_tokens == len(model.calls[0][0])
        await ai.chat.completions.create(
            model="m", messages=[USER, answers[1], {"role": "user", "content": "And?"}]
        )
        rows = [row for _, row in episode.rows()]
        assert [len(row.turns) for row in rows] == [1, 2, 1]
        assert len({tuple(row.prompt) for row in rows}) == 1
        assert model.text(rows[1].response).startswith("b")
        assert episode.branches["resampled"] >= 2


async def test_a_stream_of_several_choices_has_their_indices() -> None:
    async with playing("a", "b") as (_, __, session), client(session) as ai:
        stream = await ai.chat.completions.create(model="m", messages=[USER], n=2, stream=True)
        texts = {0: "", 1: ""}
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == {0: "a", 1: "b"}


async def test_more_choices_than_turns_are_refused_and_leave_no_row() -> None:
    script = iter("abc")
    model = ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, next(script), 0), True))
    episode = TokenEpisode(model, EpisodeLimits(2, 1000, 1000, SamplingParams(1.0, 1.0, -1)))
    async with serving() as gateway, client(gateway.open_session(MODEL, episode.conversation)) as ai:
        with pytest.raises(openai.BadRequestError) as refused:
            await ai.chat.completions.create(model="m", messages=[USER], n=3)
    assert refused.value.code == "max_turns"
    assert episode.rows() == []


async def test_tokens_are_counted_as_the_model_would_be_given_them() -> None:
    async with playing("a", "b") as (model, episode, session):
        async with anthropic.AsyncAnthropic(base_url=session.root(), api_key="k") as ai:
            tool: Any = {"name": "add", "input_schema": {"type": "object"}}
            counted = await ai.messages.count_tokens(
                model="m", messages=[USER], system="Be brief.", tools=[tool]
            )
            assert episode.turns == 0
            got = await ai.messages.create(
                model="m", max_tokens=9, messages=[USER], system="Be brief.", tools=[tool]
            )
            history = [USER, {"role": "assistant", "content": got.content}, USER]
            more = await ai.messages.count_tokens(
                model="m", messages=history, system="Be brief.", tools=[tool]
            )
            await ai.messages.create(
                model="m", max_tokens=9, messages=history, system="Be brief.", tools=[tool]
            )
        assert [counted.input_tokens, more.input_tokens] == [len(prompt) for prompt, _ in model.calls]
        assert len(episode.rows()) == 1


async def test_a_plain_text_is_continued_without_a_template_and_is_a_row_of_its_own() -> None:
    async with playing("two STOP", "four", "six") as (model, episode, session), client(session) as ai:
        got = await ai.completions.create(model="m", prompt="1+1=", stop=[" STOP"], logprobs=0)
        (choice,) = got.choices
        assert (choice.text, choice.finish_reason) == ("two", "stop")
        assert choice.logprobs is not None and choice.logprobs.tokens is not None
        assert "".join(choice.logprobs.tokens).startswith("two")
        got = await ai.completions.create(model="m", prompt=["1+1=two, 2+2="], n=2)
        assert [each.text for each in got.choices] == ["four", "six"]
        rows = [row for _, row in episode.rows()]
        assert [model.tokenizer.decode(row.prompt) for row in rows] == [
            "1+1=",
            "1+1=two, 2+2=",
            "1+1=two, 2+2=",
        ]
        whole = [prompt + sampled.tokens for prompt, sampled in model.calls]
        assert [row.prompt + row.response for row in rows[1:]] == whole[1:]
        assert rows[0].prompt + rows[0].response == whole[0][:-1], "cut after the stop text"


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logprobs": 5}, "logprobs"),
    ],
)
async def test_plain_texts_that_cannot_be_trained_on_are_refused(body: Any, parameter: str) -> None:
    async with playing() as (_, __, session):
        status, got = await post(f"{session.address()}/completions", body)
    assert (status, got["error"]["param"]) == (400, parameter)


async def test_a_response_goes_on_from_an_earlier_one_of_the_same_agent_alone() -> None:
    async with playing(f"<think>\nhm\n</think>\n\n{CALL}", "2") as (_, episode, session):
        function: Any = {"type": "function", "name": "add", "parameters": None, "strict": True}
        async with client(session) as ai:
            first = await ai.responses.create(
                model="m", input="1+1?", instructions="Be brief.", tools=[function]
            )
            call: Any = first.output[-1]
            result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "2"}]
            for other in ("resp_unknown", first.id):
                with pytest.raises(openai.BadRequestError) as refused:
                    async with openai.AsyncOpenAI(base_url=session.address("other"), api_key="k") as another:
                        await another.responses.create(model="m", input=result, previous_response_id=other)
                assert refused.value.code == "previous_response_not_found"
            second = await ai.responses.create(
                model="m",
                input=result,
                previous_response_id=first.id,
                instructions="Be brief.",
                tools=[function],
            )
        assert (second.output_text, second.previous_response_id) == ("2", first.id)
        assert len(episode.rows()) == 1


async def test_thinking_comes_back_with_its_signature_and_continues_its_turn() -> None:
    thinking = f"<think>\nhm\n</think>\n\n{CALL}"
    async with playing(thinking, "2", "3") as (_, episode, session):
        tool: Any = {"name": "add", "input_schema": {"type": "object"}}
        async with anthropic.AsyncAnthropic(base_url=session.root(), api_key="k") as ai:
            first = await ai.messages.create(model="m", max_tokens=99, messages=[USER], tools=[tool])
            thought: Any = first.content[0]
            assert (thought.type, thought.thinking) == ("thinking", "hm")
            assert len(thought.signature) > 32
            result: Any = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "2"}  # type: ignore[union-attr]
            history: list[Any] = [
                USER,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result]},
            ]
            await ai.messages.create(model="m", max_tokens=99, messages=history, tools=[tool])
            assert len(episode.rows()) == 1
            changed = [{**thought.model_dump(), "thinking": "ho"}, first.content[1]]
            history[1] = {"role": "assistant", "content": changed}
            await ai.messages.create(model="m", max_tokens=99, messages=history, tools=[tool])
        assert episode.branches == {"rewritten": 1}
        [point] = episode.agents["agent"].graph.branch_points
        assert (point.message, point.role, point.position) == (1, "assistant", 1)
        assert point.recorded.startswith("hm") and point.sent.startswith("ho")


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"type": "object", "additionalProperties": False}, '{"a": 1}', False),
        ({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 40 + '!"', True),
        (
            {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
            '{"' + "a" * 40 + '!": 1}',
            True,
        ),
        ({"$ref": "http://127.0.0.1:9/schema"}, "1", False),
        ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}, "1", True),
        ({"type": "integer"}, "[" * 100_000, False),
        ({"type": "integer"}, "9" * 10_000, False),
        ({"type": "integer"}, "", False),
    ],
)
def test_a_form_is_checked_without_the_network_and_without_patterns(
    schema: Any, text: str, fits: bool
) -> None:
    written = json.dumps(schema)
    assert schema_fault(written) == ""
    assert OutputFormat(written).fits(text) is fits


async def test_the_most_likely_tokens_come_from_an_engine_that_has_them() -> None:
    async with playing("2 or 3", "2 or 3", "2 or 3", max_top_logprobs=2) as (model, _, session):
        ai = client(session)
        chat = await ai.chat.completions.create(
            model="m", messages=[USER], logprobs=True, top_logprobs=2, stop=["or"]
        )
        response = await ai.responses.create(
            model="m", input="1+1?", include=["message.output_text.logprobs"], top_logprobs=1
        )
        text = await ai.completions.create(model="m", prompt="1+1=", logprobs=2)
        for body in ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 1}):
            status, got = await post(f"{session.address()}/chat/completions", {"messages": [USER], **body})
            assert (status, got["error"]["param"]) == (400, "top_logprobs")
    (_, sampled), (_, of_response), (_, of_text) = model.calls
    content = chat.choices[0].logprobs.content  # type: ignore[union-attr]
    assert content and len(content) < len(sampled.tokens)
    for one, likely in zip(content, sampled.top_logprobs, strict=False):
        assert [(each.token, each.logprob) for each in one.top_logprobs] == [
            (model.text([token]), logprob) for token, logprob in likely
        ]
        assert (one.token, one.logprob) == (one.top_logprobs[0].token, one.top_logprobs[0].logprob)
    shown = response.output[0].content[0].logprobs  # type: ignore[union-attr]
    assert [[each.logprob for each in one.top_logprobs] for one in shown] == [
        [logprob] for logprob in of_response.logprobs
    ]
    listed = text.choices[0].logprobs.top_logprobs  # type: ignore[union-attr]
    assert [max(each.values()) for each in listed or []] == of_text.logprobs
