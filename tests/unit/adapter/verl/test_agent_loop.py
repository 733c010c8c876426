"""The agent loop inside VeRL, with real tools and a real tokenizer: what it returns is what was sampled."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from aworld_train.adapter.episodes.agent import McpAgent
from aworld_train.adapter.episodes.record import EpisodeRecord
from aworld_train.adapter.verl import agent_loop
from aworld_train.adapter.verl.cpu.sampling import MAX_TOP_LOGPROBS
from tests.agent_loops import (
    END,
    MESSAGES,
    TOKENIZER,
    ScriptedEngine,
    call,
    loop,
    play,
    sampled,
)
from tests.tool_servers import TOKEN, ServerProcess, server_of_settings

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.usefixtures("run_dir"),
]


async def run(
    engine: ScriptedEngine, messages: list[dict[str, Any]] = MESSAGES, **settings: Any
) -> tuple[Any, EpisodeRecord]:
    rows, slot = await play(engine, messages, **settings)
    assert len(rows) <= 1, "a history that only grows is one row"
    return rows[0] if rows else [], slot


async def schemas() -> list[dict[str, Any]]:
    return await server_of_settings().schemas()


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_a_row_is_what_was_sampled_and_what_was_given_token_by_token(
    calculator: ServerProcess, seed: int | None
) -> None:
    texts = [
        f"I will compute. {call('6*7')}",
        f"{call('1/0')}\n{call('42+1')}",
        "é 漢 done: <answer>42</answer>",
    ]
    turns = [sampled(text + END, seed) for text in texts]
    if seed is not None:
        assert turns[0] != sampled(texts[0] + END), "the point is that these are not the tokenizer's own ids"
    engine = ScriptedEngine(list(turns))
    output, slot = await run(engine, system_prompt="Use the tool.")

    assert isinstance(output, AgentLoopOutput)
    row = output.prompt_ids + output.response_ids
    # What the engine was given at each call is the row up to there, and what it sampled follows.
    for prompt, turn in zip(engine.prompts, turns, strict=True):
        assert row[: len(prompt)] == prompt
        assert row[len(prompt) : len(prompt) + len(turn)] == turn
    assert len(row) == len(engine.prompts[-1]) + len(turns[-1])
    trained = [t for t, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert trained == [token for turn in turns for token in turn]
    logprobs = [p for p, mask in zip(output.response_logprobs, output.response_mask, strict=True) if mask]
    assert logprobs == [p for o in engine.outputs for p in o.log_probs]

    # The row reads as the chat template writes the conversation.
    results = ["42", "Error: division by zero", "43"]
    conversation = [
        {"role": "system", "content": "Use the tool."},
        *MESSAGES,
        {"role": "assistant", "content": texts[0]},
        {"role": "tool", "content": results[0]},
        {"role": "assistant", "content": texts[1]},
        *({"role": "tool", "content": result} for result in results[1:]),
        {"role": "assistant", "content": texts[2]},
    ]
    rendered = TOKENIZER.apply_chat_template(conversation, tools=await schemas(), tokenize=False)
    assert TOKENIZER.decode(row) + "\n" == rendered

    assert output.num_turns == 6
    assert output.extra_fields["outcome"] == "answered"
    assert (output.extra_fields["tool_call_count"], output.extra_fields["tool_error_count"]) == (3, 1)
    assert "<answer>42</answer>" in output.extra_fields["assistant_text"]
    assert "division by zero" not in output.extra_fields["assistant_text"]
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (11, 13)
    assert slot.figures.sampled_tokens == len(trained)
    assert slot.figures.response_tokens == len(output.response_ids)


async def test_each_turn_may_use_the_room_that_is_left_and_all_are_one_request(
    calculator: ServerProcess,
) -> None:
    engine = ScriptedEngine([sampled(call("6*7") + END), sampled("42" + END)])
    output, _ = await run(engine, response_length=300)
    given = len(engine.prompts[1]) - len(engine.prompts[0])
    assert [p["max_tokens"] for p in engine.params] == [300, 300 - given]
    assert all(p["temperature"] == 1.0 for p in engine.params)
    assert (
        len(engine.request_ids) == 1
    )  # VeRL sends the turns of one request to one server, which remembers them
    assert isinstance(output, AgentLoopOutput)


async def test_a_turn_that_fills_the_room_is_trained_on_as_far_as_it_came(
    calculator: ServerProcess,
) -> None:
    engine = ScriptedEngine([sampled("a long thought " * 30)])
    output, slot = await run(engine, response_length=20)
    assert len(output.response_ids) == 20
    assert output.response_mask == [1] * 20
    assert slot.figures.outcome == "overlong"


async def test_a_prompt_that_is_too_long_is_left_out_and_never_cut(calculator: ServerProcess) -> None:
    engine = ScriptedEngine([])
    whole = TOKENIZER.apply_chat_template(
        MESSAGES, tools=await schemas(), add_generation_prompt=True, return_dict=False
    )
    output, slot = await run(engine, prompt_length=len(whole) - 1)
    assert output == []
    assert engine.prompts == []
    assert slot.figures.outcome == "overlong"
    assert f"{len(whole)} tokens" in slot.figures.cause
    output, _ = await run(ScriptedEngine([sampled("42" + END)]), prompt_length=len(whole))
    assert output.prompt_ids == list(whole)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n{not json}\n</tool_call>",
        '<tool_call>\n{"name": "calculator"}\n</tool_call>',
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1"}}',
        f"{call('1+1')}<tool_call>",
        "<tool_call>" * 3,
        "<tool_call>" + '{"a": ' * 5000 + "</tool_call>",
    ],
    ids=["no json", "no arguments", "not closed", "one good, one not", "only opened", "nested"],
)
async def test_a_call_that_cannot_be_read_ends_the_episode_and_is_trained_on(
    calculator: ServerProcess, text: str
) -> None:
    engine = ScriptedEngine([sampled(text + END)])
    output, slot = await run(engine, response_length=50_000)
    assert slot.figures.outcome == "format"
    assert output.response_ids == sampled(text + END)
    assert set(output.response_mask) == {1}


async def test_a_tool_that_does_not_exist_is_an_error_the_model_can_react_to(
    calculator: ServerProcess,
) -> None:
    wrong = call("1+1").replace("calculator", "search")
    engine = ScriptedEngine([sampled(wrong + END), sampled("sorry" + END)])
    output, slot = await run(engine)
    assert (slot.figures.tool_calls, slot.figures.tool_errors) == (1, 1)
    assert slot.figures.outcome == "answered"
    assert "unknown tool" in TOKENIZER.decode(output.response_ids)


async def test_arguments_that_no_tool_could_be_sent_do_not_look_like_a_lost_environment(
    calculator: ServerProcess,
) -> None:
    text = '<tool_call>\n{"name": "calculator", "arguments": {"expression": 1e999}}\n</tool_call>'
    engine = ScriptedEngine([sampled(text + END), sampled(call("6*7") + END), sampled("42" + END)])
    _, slot = await run(engine)
    assert slot.figures.outcome == "answered"
    assert (slot.figures.tool_calls, slot.figures.tool_errors) == (2, 1)


async def test_a_long_tool_result_is_shortened_with_a_note(calculator: ServerProcess) -> None:
    engine = ScriptedEngine([sampled(call("2**600") + END), sampled("ok" + END)])
    output, _ = await run(engine, max_tool_result_chars=40)
    text = TOKENIZER.decode(output.response_ids)
    number = str(2**600)
    assert f"{number[:20]}\n[... {len(number) - 40} characters left out ...]\n{number[-20:]}" in text


async def test_too_many_turns_end_the_episode_after_the_last_turn(calculator: ServerProcess) -> None:
    engine = ScriptedEngine([sampled(call("1+1") + END)] * 5)
    output, slot = await run(engine, max_turns=2)
    assert (len(engine.prompts), slot.figures.turns, slot.figures.outcome) == (2, 2, "max_turns")
    assert output.response_ids[-len(sampled(call("1+1") + END)) :] == sampled(call("1+1") + END)


async def test_an_engine_that_fails_is_not_the_agents_fault(calculator: ServerProcess) -> None:
    engine = ScriptedEngine([sampled(call("6*7") + END), RuntimeError("out of memory")])
    output, slot = await run(engine)
    assert output == []
    assert (slot.figures.outcome, slot.figures.treatment) == ("provider", "dropped")
    assert "out of memory" in slot.figures.cause
    assert (slot.figures.turns, slot.figures.tool_calls) == (1, 1)


async def test_a_request_that_the_engine_gave_up_is_not_trained_on(calculator: ServerProcess) -> None:
    output, slot = await run(ScriptedEngine([sampled("half of")], stop_reason="aborted"))
    assert output == []
    assert slot.figures.outcome == "provider"


async def test_an_episode_whose_engine_takes_all_of_its_time_is_left_out(calculator: ServerProcess) -> None:
    async def never() -> Any:
        await asyncio.sleep(600)

    began = time.monotonic()
    output, slot = await run(ScriptedEngine([sampled(call("6*7") + END), never]), episode_timeout=5.0)
    assert output == []
    assert (slot.figures.outcome, slot.figures.turns) == ("provider", 1)
    assert time.monotonic() - began < 30


async def test_a_lost_environment_is_not_the_agents_fault_and_is_recorded(
    mortal: ServerProcess, run_dir: Path
) -> None:
    async def killed() -> list[int]:
        mortal.kill()
        return sampled(call("6*7") + END)

    output, slot = await run(ScriptedEngine([sampled(call("1+1") + END), killed]))
    assert output == []
    assert (slot.figures.outcome, slot.figures.treatment) == ("environment", "dropped")
    assert slot.figures.cause
    [lost] = (run_dir / "traces" / "episodes.jsonl").read_text().splitlines()
    assert json.loads(lost)["outcome"] == "environment"


async def test_an_environment_that_is_not_there_is_no_episode_at_all(mortal: ServerProcess) -> None:
    mortal.kill()
    engine = ScriptedEngine([])
    output, slot = await run(engine)
    assert output == []
    assert slot.figures.outcome == "environment"
    assert engine.prompts == []


async def test_an_episode_is_played_again_from_the_start_if_the_environment_comes_back(
    mortal: ServerProcess,
) -> None:
    async def killed() -> list[int]:
        mortal.kill()
        asyncio.get_running_loop().run_in_executor(None, mortal.start)
        return sampled(call("6*7") + END)

    turns = [sampled(call("1+1") + END), killed, sampled(call("6*7") + END), sampled("42" + END)]
    engine = ScriptedEngine(turns)
    output, slot = await run(engine, recovery_timeout=60.0)
    assert isinstance(output, AgentLoopOutput)
    assert engine.prompts[2] == engine.prompts[0] == output.prompt_ids
    trained = [t for t, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert trained == turns[2] + turns[3]
    assert (slot.figures.outcome, slot.figures.turns) == ("answered", 2)


async def test_the_servers_of_a_recipe_and_the_token_go_into_the_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", TOKEN)
    server = server_of_settings(["calculator", "browser"])
    assert server.headers == {"Authorization": f"Bearer {TOKEN}", "MCP_SERVERS": "calculator,browser"}
    monkeypatch.delenv("MCP_SERVER_TOKEN")
    assert server_of_settings().headers == {}


async def test_many_episodes_at_once_keep_their_tokens_apart(calculator: ServerProcess) -> None:
    engines = [
        ScriptedEngine([sampled(call(f"{i}*2") + END, i), sampled(f"{i * 2}{END}", i)]) for i in range(24)
    ]
    rows = await asyncio.gather(*(asyncio.create_task(run(engine)) for engine in engines))
    for number, (engine, (output, slot)) in enumerate(zip(engines, rows, strict=True)):
        trained = [t for t, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
        assert trained == engine.turns[0] + engine.turns[1]
        assert f"<tool_response>\n{number * 2}\n</tool_response>" in TOKENIZER.decode(output.response_ids)
        assert slot.figures.outcome == "answered"


@pytest.mark.parametrize(
    ("engine", "stops", "max_top_logprobs"),
    [("transformers", True, MAX_TOP_LOGPROBS), ("vllm", True, 0), ("sglang", False, 0)],
)
async def test_an_episode_is_played_with_what_its_engine_can_do(
    engine: str, stops: bool, max_top_logprobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Any] = []

    async def play(*arguments: Any, **options: Any) -> str:
        played.append((*arguments, options))
        return "finished"

    monkeypatch.setattr(agent_loop, "VerlModel", lambda *arguments, **options: (*arguments, options))
    monkeypatch.setattr(agent_loop, "image_tokens", lambda *arguments: arguments)
    monkeypatch.setattr(agent_loop, "output_rows", lambda finished: (finished,))
    made: Any = loop(McpAgent, "server")
    made.player = SimpleNamespace(settings=made.player.settings, play=play)
    made.config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": "/models/small"}}})
    made.rollout_config = OmegaConf.create({"name": engine, "prompt_length": 7, "response_length": 9})
    made.mm_processor_kwargs = {"max_pixels": 4}
    assert await made.run({"temperature": 0.5}, raw_prompt=MESSAGES) == ["finished"]
    options = {
        "engine_stops": stops,
        "seed_parameter": "sampling_seed" if engine == "sglang" else "seed",
        "max_top_logprobs": max_top_logprobs,
        "images": (None, engine, '{"max_pixels": 4}'),
    }
    model = ("server", TOKENIZER, made.player.settings.agent["tool_parser"], {}, (), options)
    limits = {"model_name": "small", "max_prompt_tokens": 7, "max_response_tokens": 9}
    assert played == [(model, {"raw_prompt": MESSAGES}, {"temperature": 0.5}, limits)]
