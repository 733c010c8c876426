"""Agents that are not ours inside VeRL: what they do is recorded, and however they fail, it has a name."""

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from aworld_train.adapter.episodes import external_agent
from aworld_train.adapter.episodes.external_agent import ExternalAgent
from aworld_train.adapter.episodes.record import EpisodeRecord, open_record
from aworld_train.episode.images import Image
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
from tests.tool_servers import TOKEN, ServerProcess
from tests.vision import data_url, png

pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.usefixtures("run_dir", "calculator"),
]

ANSWER = "<answer>42</answer>"
USES_TOOL = [sampled(call("6*7") + END, 1), sampled(ANSWER + END, 2)]


async def outside(
    engine: ScriptedEngine, builder: str = "plain", **settings: Any
) -> tuple[list[Any], EpisodeRecord]:
    if "command" not in settings:
        settings["builder"] = f"tests.outside_agents:{builder}"
    return await play(engine, kind=ExternalAgent, **{"episode_timeout": 30.0, **settings})


def trained(row: Any) -> list[int]:
    return [token for token, mask in zip(row.response_ids, row.response_mask, strict=True) if mask]


def assert_exact(rows: list[Any], engine: ScriptedEngine) -> None:
    """Every row is an input of the engine with its output; what it sampled is trained on once, with its logprobs."""
    exchanges = [g + o.token_ids for g, o in zip(engine.prompts, engine.outputs, strict=False)]
    for row in rows:
        assert row.prompt_ids + row.response_ids in exchanges
    found = [
        (token, logprob)
        for row in rows
        for token, mask, logprob in zip(
            row.response_ids, row.response_mask, row.response_logprobs, strict=True
        )
        if mask
    ]
    given = [pair for o in engine.outputs for pair in zip(o.token_ids, o.log_probs, strict=True)]
    assert sorted(found) == sorted(given)


async def test_a_plain_client_has_the_same_row_as_our_own_loop() -> None:
    client_engine, loop_engine = ScriptedEngine(list(USES_TOOL)), ScriptedEngine(list(USES_TOOL))
    [row], slot = await outside(client_engine, system_prompt="Use the tool.")
    [own], own_slot = await play(loop_engine, system_prompt="Use the tool.")
    assert (row.prompt_ids, row.response_ids, row.response_mask) == (
        own.prompt_ids,
        own.response_ids,
        own.response_mask,
    )
    assert row.response_logprobs == own.response_logprobs
    assert_exact([row], client_engine)
    assert row.extra_fields["assistant_text"] == ANSWER
    for key in ("outcome", "turns", "tool_calls", "tool_errors", "sampled_tokens", "branches"):
        assert getattr(slot.figures, key) == getattr(own_slot.figures, key), key
    assert (slot.figures.outcome, slot.figures.tool_calls) == ("answered", 1)
    assert slot.figures.tool_seconds > 0


async def test_an_agent_does_not_get_the_right_answers_of_its_task() -> None:
    engine = ScriptedEngine([sampled(ANSWER + END, 1)])
    await outside(engine, "showing_extra")
    prompt = TOKENIZER.decode(engine.prompts[0])
    assert '{"index": 7}' in prompt and "forty-two" not in prompt


async def test_an_agent_gets_the_images_of_its_task_in_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_agent, "_folder", external_agent._folder.__wrapped__)
    (tmp_path / "noting.py").write_text(NOTING.replace("task.index", "task.messages"))
    red = Image.read(png(), 0)
    extra = {"images": [data_url(red.file)], "level": 2}
    prompt = [{"role": "user", "content": f"{red.mark}What?"}]
    open_record(1, False, 0)
    await loop(ExternalAgent, ScriptedEngine([]), builder=f"{tmp_path}/noting.py:build").run(
        {"temperature": 1.0, "logprobs": True}, raw_prompt=prompt, extra_info=extra
    )
    *_, messages, known = json.loads((tmp_path / "noted").read_text())
    image = {"type": "image_url", "image_url": {"url": data_url(red.file)}}
    assert messages == [{"role": "user", "content": [image, {"type": "text", "text": "What?"}]}]
    assert known == {"level": 2}


NOTING = """
import dataclasses, json, pathlib
from tests.outside_agents import Chat
def build(context):
    async def answer(task):
        access = [context.llm_url(None), context.llm_key(None), context.mcp_url, context.mcp_token]
        given = [context.model, list(context.mcp_servers), str(context.folder), context.seconds]
        pathlib.Path(__file__).with_name("noted").write_text(json.dumps([access, given, task.index, task.extra]))
        chat = Chat(context)
        chat.messages = list(task.messages)
        return (await chat.ask([])).content
    return answer
"""


@pytest.mark.parametrize(("extra", "index"), [({"index": 7, "level": 2}, 7), (None, 0)])
async def test_an_agent_has_its_task_and_its_means_and_no_access_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any] | None, index: int
) -> None:
    monkeypatch.setattr(external_agent, "_folder", external_agent._folder.__wrapped__)
    (tmp_path / "noting.py").write_text(NOTING)
    engine = ScriptedEngine([sampled(ANSWER + END, 1)])
    open_record(1, False, 0)
    settings: dict[str, Any] = {"builder": f"{tmp_path}/noting.py:build"}
    settings["recipe"] = {"env": {"servers": ["calculator"]}}
    [row] = await loop(ExternalAgent, engine, **settings).run(
        {"temperature": 1.0, "logprobs": True}, raw_prompt=MESSAGES, extra_info=extra
    )
    assert row.extra_fields["assistant_text"] == ANSWER
    access, given, *task = json.loads((tmp_path / "noted").read_text())
    folder = f"{tmp_path}/logs/agents/{os.getpid()}"
    assert given[1:] == [["calculator"], folder, 60.0]
    assert task == [index, extra or {}]
    llm_url, llm_key, mcp_url, mcp_token = access
    async with httpx.AsyncClient(trust_env=False) as client:
        body = {"model": given[0], "messages": MESSAGES}
        for url, key, status, reason in (
            (f"{llm_url}/chat/completions", llm_key, 410, "the rollout that this key was for has ended"),
            (mcp_url, mcp_token, 404, "no such episode: it is over"),
        ):
            response = await client.post(url, json=body, headers={"Authorization": f"Bearer {key}"})
            assert response.status_code == status and reason in response.text


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_an_agent_that_fails_when_it_is_stopped_or_ends_first_leaves_no_task(is_stopped: bool) -> None:
    class Stubborn:
        async def run(self, task: Any, context: Any) -> str:
            if not is_stopped:
                return "42"
            try:
                return await asyncio.Future()
            except asyncio.CancelledError:
                raise ValueError("stopped") from None

    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    before = asyncio.all_tasks()
    over, nothing = asyncio.Event(), cast(Any, None)
    result, tools = cast(Any, SimpleNamespace(episode=SimpleNamespace(over=over))), SimpleNamespace(lost=None)
    running = ExternalAgent(nothing)._run(cast(Any, Stubborn()), nothing, nothing, result, cast(Any, tools))
    if is_stopped:
        asyncio.get_running_loop().call_soon(over.set)
    assert await running == ("" if is_stopped else "42")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    gc.collect()
    assert complaints == []


async def test_each_agent_of_a_swarm_has_rows_of_its_own() -> None:
    engine = ScriptedEngine([sampled("Multiply." + END), *USES_TOOL])
    rows, slot = await outside(engine, "swarm")
    assert [row.extra_fields["agent"] for row in rows] == ["planner", "worker"]
    assert_exact(rows, engine)
    assert slot.figures.agents == {"planner": 1, "worker": 2}
    assert not slot.figures.branches


async def test_only_the_trainable_agents_of_a_swarm_are_trained() -> None:
    engine = ScriptedEngine([sampled("Multiply." + END), *USES_TOOL])
    [row], _ = await outside(engine, "swarm", trainable=["worker"])
    assert trained(row) == USES_TOOL[0] + USES_TOOL[1]
    assert row.extra_fields["agent"] == "worker"


async def test_an_edited_history_is_a_second_row_and_nothing_is_trained_on_twice() -> None:
    turns = [sampled(call("1+1") + END, 1), sampled(call("2+2") + END, 2), sampled(call("3+3") + END, 3)]
    engine = ScriptedEngine([*turns, sampled(ANSWER + END, 4)])
    rows, slot = await outside(engine, "editing", max_turns=8)
    assert_exact(rows, engine)
    assert len(rows) == 3
    assert slot.figures.branches == {"edited": 2}
    first, second = slot.figures.branch_points
    assert (first.agent, first.cause, first.role, first.position) == (
        "agent",
        "edited",
        "tool",
        0,
    )
    assert first.message < second.message
    assert (first.recorded, first.sent) == ("2", "[removed]")
    assert (slot.figures.format_misses, slot.figures.undelivered) == ({}, 0)
    assert slot.figures.outcome == "answered"


async def test_a_context_reset_is_a_second_row() -> None:
    engine = ScriptedEngine(list(USES_TOOL))
    rows, slot = await outside(engine, "resetting")
    assert len(rows) == 2
    assert_exact(rows, engine)
    assert sum(slot.figures.branches.values()) == 1


async def test_an_agent_that_is_told_that_its_history_is_too_long_may_shorten_it() -> None:
    engine = ScriptedEngine([sampled(call("2**2000") + END), sampled(ANSWER + END)])
    rows, slot = await outside(engine, "shortening", response_length=300)
    assert slot.figures.outcome == "answered"
    assert_exact(rows, engine)


async def test_an_agent_that_answers_without_tools_is_trained_on_as_it_is() -> None:
    engine = ScriptedEngine([sampled(ANSWER + END)])
    [row], slot = await outside(engine, "without_tools")
    assert (slot.figures.outcome, slot.figures.tool_calls) == ("answered", 0)
    assert_exact([row], engine)


async def test_broken_tool_json_is_the_models_own_doing() -> None:
    engine = ScriptedEngine([sampled("<tool_call>\n{not json}\n</tool_call>" + END)])
    rows, slot = await outside(engine)
    assert slot.figures.outcome == "format"
    assert_exact(rows, engine)


@pytest.mark.parametrize(
    ("builder", "seconds", "outcome", "cause"),
    [
        ("crashing", 60.0, "agent", "a bug of mine"),
        ("silent", 60.0, "agent", None),
        ("hanging", 2.0, "timeout", "2 seconds"),
    ],
)
async def test_an_agent_that_fails_is_not_trained_on_unless_it_used_up_its_time(
    builder: str, seconds: float, outcome: str, cause: str | None
) -> None:
    began = time.monotonic()
    rows, slot = await outside(ScriptedEngine([sampled(ANSWER + END)]), builder, episode_timeout=seconds)
    use = "trained" if outcome == "timeout" else "dropped"
    assert len(rows) == (use == "trained")
    assert (slot.figures.outcome, slot.figures.treatment) == (outcome, use)
    assert cause is None or cause in slot.figures.cause
    assert time.monotonic() - began < 50


async def test_an_agent_that_asks_without_end_uses_up_its_turns() -> None:
    engine = ScriptedEngine([sampled(ANSWER + END, i) for i in range(9)])
    rows, slot = await outside(engine, "flooding", max_turns=3)
    assert (slot.figures.outcome, slot.figures.turns) == ("max_turns", 3)
    assert_exact(rows, engine)


async def test_the_same_turn_without_end_is_a_repetition() -> None:
    engine = ScriptedEngine([sampled(call("6*7") + END, i) for i in range(9)])
    rows, slot = await outside(engine, "forgiving", max_turns=9, repetition={"turns": 3})
    assert (slot.figures.outcome, slot.figures.turns) == ("repetition", 3)
    assert_exact(rows, engine)


@pytest.mark.parametrize("builder", ["plain", "forgiving"])
async def test_an_engine_that_fails_a_call_is_not_the_agents_fault_whatever_it_makes_of_it(
    builder: str,
) -> None:
    engine = ScriptedEngine([USES_TOOL[0], RuntimeError("out of memory")])
    rows, slot = await outside(engine, builder)
    assert rows == []
    assert (slot.figures.outcome, slot.figures.treatment) == ("provider", "dropped")
    assert "out of memory" in slot.figures.cause


@pytest.mark.parametrize("builder", ["plain", "forgiving"])
async def test_a_tool_server_that_dies_is_not_the_agents_fault_whatever_it_makes_of_it(
    mortal: ServerProcess, builder: str
) -> None:
    async def killed() -> list[int]:
        mortal.kill()
        return USES_TOOL[0]

    began = time.monotonic()
    rows, slot = await outside(ScriptedEngine([killed, USES_TOOL[1]]), builder)
    assert rows == []
    assert (slot.figures.outcome, slot.figures.treatment) == ("environment", "dropped")
    assert time.monotonic() - began < 30


async def test_a_recipe_may_mask_what_it_would_drop_and_drop_what_it_would_train() -> None:
    treatments = {"rollout": {"treatment": {"agent": "masked", "answered": "dropped"}}}
    engine = ScriptedEngine([sampled(ANSWER + END)])
    [row], slot = await outside(engine, "crashing", recipe=treatments)
    assert slot.figures.treatment == "masked"
    assert row.response_ids == sampled(ANSWER + END)
    assert set(row.response_mask) == {0}
    rows, slot = await outside(ScriptedEngine([sampled(ANSWER + END)]), "without_tools", recipe=treatments)
    assert (rows, slot.figures.treatment) == ([], "dropped")


async def test_an_agent_s_own_temperature_counts_for_nothing(tmp_path: Path) -> None:
    agent = tmp_path / "warm.py"
    agent.write_text(
        "from tests.outside_agents import Chat\n"
        "def build(context):\n"
        "    async def answer(task):\n"
        "        chat = Chat(context)\n"
        "        chat.messages = list(task.messages)\n"
        "        return (await chat.ask([], temperature=0.3)).content\n"
        "    return answer\n"
    )
    engine = ScriptedEngine([sampled(ANSWER + END)] * 3)
    for validate in (True, False):
        await play(engine, kind=ExternalAgent, builder=f"{agent}:build", validate=validate)
    assert [params["temperature"] for params in engine.params] == [0.0, 1.0]


SCRIPT = """
import json, os, sys
from openai import OpenAI
task = json.loads(sys.stdin.read())
client = OpenAI()
response = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=task["messages"])
print("thinking aloud")
print(response.choices[0].message.content)
"""


async def test_a_program_is_an_agent_too(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT)
    engine = ScriptedEngine([sampled(ANSWER + END, 3)])
    [row], slot = await outside(engine, command=[sys.executable, str(script)])
    assert slot.figures.outcome == "answered"
    assert row.extra_fields["assistant_text"] == ANSWER
    assert_exact([row], engine)


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    import psutil

    script = tmp_path / "agent.py"
    pid_file = tmp_path / "pid"
    script.write_text(
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    rows, slot = await outside(ScriptedEngine([]), command=[sys.executable, str(script)], episode_timeout=8.0)
    assert rows == []
    assert slot.figures.outcome == "timeout"
    pid = int(pid_file.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_many_episodes_at_once_keep_their_tokens_apart() -> None:
    engines = [
        ScriptedEngine([sampled(call(f"{i}*2") + END, i), sampled(f"{i * 2}{END}", i)]) for i in range(16)
    ]
    played = await asyncio.gather(
        *(asyncio.create_task(outside(engine, episode_timeout=120.0)) for engine in engines)
    )
    for number, (engine, (rows, slot)) in enumerate(zip(engines, played, strict=True)):
        assert_exact(rows, engine)
        assert f"<tool_response>\n{number * 2}\n</tool_response>" in TOKENIZER.decode(rows[0].response_ids)
        assert slot.figures.outcome == "answered"


async def test_what_was_recorded_is_replayed_with_the_server_switched_off(
    mortal: ServerProcess, tmp_path: Path
) -> None:
    cassette = {"path": str(tmp_path / "tools.jsonl")}
    for mode in ("record", "replay"):
        if mode == "replay":
            mortal.kill()
        recipe = {"env": {"cassette": {**cassette, "mode": mode}}}
        for kind in ("ours", "theirs"):
            engine = ScriptedEngine(
                [sampled(call("6*7") + END), sampled(call("1/0") + END), sampled(ANSWER + END)]
            )
            if kind == "ours":
                [row], slot = await play(engine, recipe=recipe)
            else:
                [row], slot = await outside(engine, recipe=recipe)
            text = TOKENIZER.decode(row.response_ids)
            assert "<tool_response>\n42\n</tool_response>" in text
            assert "division by zero" in text
            assert (slot.figures.tool_calls, slot.figures.tool_errors) == (2, 1), (mode, kind)
    assert TOKEN not in (tmp_path / "tools.jsonl").read_text()


async def test_the_agent_never_sees_the_environments_own_token(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, os\n"
        "from openai import OpenAI\n"
        "OpenAI().chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'hi'}])\n"
        "print(json.dumps(dict(os.environ)))\n"
    )
    [row], _ = await outside(ScriptedEngine([sampled("hi" + END)]), command=[sys.executable, str(script)])
    found = json.loads(row.extra_fields["assistant_text"])
    assert found["MCP_SERVER_TOKEN"]
    assert TOKEN not in found.values()
    assert MESSAGES[0]["content"]
