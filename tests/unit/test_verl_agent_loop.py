"""The agent loop inside VeRL, with real tools and a real tokenizer: what it returns is what was sampled."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from aworld_train import recipe
from aworld_train.adapter.verl import agent_loop
from aworld_train.adapter.verl.agent_loop import McpAgentLoop
from aworld_train.adapter.verl.record import RUN_DIR_VARIABLE, EpisodeSlot, open_slot
from aworld_train.adapter.verl.settings import settings_of
from aworld_train.model import tokenizer as tiny_tokenizer

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

CALCULATOR = Path(__file__).parents[1] / "calculator_over_http.py"
TOKEN = "secret"
TOKENIZER = tiny_tokenizer.build()
MESSAGES = [{"role": "user", "content": "What is 6*7?"}]
END = "<|im_end|>"


class CalculatorProcess:
    """The calculator, on a port of its own, that can be killed and started again."""

    def __init__(self) -> None:
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "MCP_SERVER_TOKEN": TOKEN, "PORT": str(self.port)}
        self.process = subprocess.Popen(
            [sys.executable, str(CALCULATOR)], env=environment, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise TimeoutError("the calculator did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def _shared() -> Iterator[CalculatorProcess]:
    server = CalculatorProcess()
    yield server
    server.kill()


@pytest.fixture
def calculator(_shared: CalculatorProcess, monkeypatch: pytest.MonkeyPatch) -> CalculatorProcess:
    return known_to_agents(_shared, monkeypatch)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[CalculatorProcess]:
    """A calculator for one test, which may kill it."""
    monkeypatch.setattr(agent_loop, "_SUPERVISOR_SECONDS", 0.0)
    server = CalculatorProcess()
    yield known_to_agents(server, monkeypatch)
    server.kill()


def known_to_agents(server: CalculatorProcess, monkeypatch: pytest.MonkeyPatch) -> CalculatorProcess:
    monkeypatch.setenv("MCP_SERVER_URL", f"http://127.0.0.1:{server.port}/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", TOKEN)
    return server


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "traces").mkdir()
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    return tmp_path


@dataclass
class ScriptedEngine:
    """In place of VeRL's server manager: samples ``turns`` in order and keeps what it was given."""

    turns: list[list[int] | Exception | Callable[[], Any]]
    prompts: list[list[int]] = field(default_factory=list)
    params: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[TokenOutput] = field(default_factory=list)
    request_ids: set[str] = field(default_factory=set)
    stop_reason: str = "completed"

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        self.request_ids.add(request_id)
        self.prompts.append(list(prompt_ids))
        self.params.append(dict(sampling_params))
        turn = self.turns[len(self.prompts) - 1]
        if callable(turn):
            turn = await turn()
        if isinstance(turn, Exception):
            raise turn
        tokens = turn[: sampling_params["max_tokens"]]
        logprobs = [-1.0 - len(self.prompts) - i / 1000 for i in range(len(tokens))]
        steps = {"global_steps": 10 + len(self.prompts)}
        self.outputs.append(
            TokenOutput(
                token_ids=tokens, log_probs=logprobs, stop_reason=self.stop_reason, extra_fields=steps
            )
        )
        return self.outputs[-1]


def sampled(text: str, seed: int | None = None) -> list[int]:
    """Token ids that a model could sample for ``text``; with a seed, cut up as no tokenizer would."""
    if seed is None:
        return list(TOKENIZER.encode(text))
    rng = random.Random(seed)
    ids: list[int] = []
    markers = (*tiny_tokenizer.SPECIAL, *tiny_tokenizer.MARKUP)
    while text:
        marker = next((m for m in markers if text.startswith(m)), None)
        size = len(marker) if marker else rng.randint(1, 2)
        # A piece does not run into a marker.
        size = next((i for i in range(1, size) if any(text[i:].startswith(m) for m in markers)), size)
        ids += TOKENIZER.encode(text[:size])
        text = text[size:]
    return ids


def call(expression: str) -> str:
    arguments = json.dumps({"name": "calculator", "arguments": {"expression": expression}})
    return f"<tool_call>\n{arguments}\n</tool_call>"


def loop(
    engine: ScriptedEngine, prompt_length: int = 400, response_length: int = 900, **settings: Any
) -> McpAgentLoop:
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "rollout": {"prompt_length": prompt_length, "response_length": response_length}
            }
        }
    )
    return McpAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=engine,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type="qwen3",
        settings=str(settings_file(**settings)),
    )


def settings_file(**settings: Any) -> Path:
    """``episodes.yaml`` of a recipe with such agent settings; ``recovery_timeout`` is the environment's."""
    env = {"recovery_timeout": settings.pop("recovery_timeout", 1.0)}
    agent = {
        "max_turns": 4,
        "max_tool_result_chars": 500,
        "tool_timeout": 30.0,
        "episode_timeout": 60.0,
        **settings,
    }
    file = Path(os.environ[RUN_DIR_VARIABLE]) / f"{time.monotonic_ns()}.yaml"
    file.write_text(yaml.safe_dump(settings_of(recipe.load({"agent": agent, "env": env}))))
    return file


async def run(
    engine: ScriptedEngine, messages: list[dict[str, Any]] = MESSAGES, **settings: Any
) -> tuple[Any, EpisodeSlot]:
    slot = open_slot(step=1, validate=False, index=0)
    rows = await loop(engine, **settings).run({"temperature": 1.0, "logprobs": True}, raw_prompt=messages)
    assert len(rows) <= 1, "a history that only grows is one row"
    return rows[0] if rows else [], slot


async def schemas() -> list[dict[str, Any]]:
    return await agent_loop._tool_server(30.0, 30.0, []).schemas()


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_a_row_is_what_was_sampled_and_what_was_given_token_by_token(
    calculator: CalculatorProcess, seed: int | None
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
    assert slot.line["sampled_tokens"] == len(trained)
    assert slot.line["response_tokens"] == len(output.response_ids)


async def test_each_turn_may_use_the_room_that_is_left_and_all_are_one_request(
    calculator: CalculatorProcess,
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
    calculator: CalculatorProcess,
) -> None:
    engine = ScriptedEngine([sampled("a long thought " * 30)])
    output, slot = await run(engine, response_length=20)
    assert len(output.response_ids) == 20
    assert output.response_mask == [1] * 20
    assert slot.line["outcome"] == "overlong"


async def test_a_prompt_that_is_too_long_is_left_out_and_never_cut(calculator: CalculatorProcess) -> None:
    engine = ScriptedEngine([])
    whole = TOKENIZER.apply_chat_template(
        MESSAGES, tools=await schemas(), add_generation_prompt=True, return_dict=False
    )
    output, slot = await run(engine, prompt_length=len(whole) - 1)
    assert output == []
    assert engine.prompts == []
    assert slot.line["outcome"] == "overlong"
    assert f"{len(whole)} tokens" in slot.line["cause"]
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
    calculator: CalculatorProcess, text: str
) -> None:
    engine = ScriptedEngine([sampled(text + END)])
    output, slot = await run(engine, response_length=50_000)
    assert slot.line["outcome"] == "format"
    assert output.response_ids == sampled(text + END)
    assert set(output.response_mask) == {1}


async def test_a_tool_that_does_not_exist_is_an_error_the_model_can_react_to(
    calculator: CalculatorProcess,
) -> None:
    wrong = call("1+1").replace("calculator", "search")
    engine = ScriptedEngine([sampled(wrong + END), sampled("sorry" + END)])
    output, slot = await run(engine)
    assert (slot.line["tool_calls"], slot.line["tool_errors"]) == (1, 1)
    assert slot.line["outcome"] == "answered"
    assert "unknown tool" in TOKENIZER.decode(output.response_ids)


async def test_arguments_that_no_tool_could_be_sent_do_not_look_like_a_lost_environment(
    calculator: CalculatorProcess,
) -> None:
    text = '<tool_call>\n{"name": "calculator", "arguments": {"expression": 1e999}}\n</tool_call>'
    engine = ScriptedEngine([sampled(text + END), sampled(call("6*7") + END), sampled("42" + END)])
    _, slot = await run(engine)
    assert slot.line["outcome"] == "answered"
    assert (slot.line["tool_calls"], slot.line["tool_errors"]) == (2, 1)


async def test_a_long_tool_result_is_shortened_with_a_note(calculator: CalculatorProcess) -> None:
    engine = ScriptedEngine([sampled(call("2**600") + END), sampled("ok" + END)])
    output, _ = await run(engine, max_tool_result_chars=40)
    text = TOKENIZER.decode(output.response_ids)
    number = str(2**600)
    assert f"{number[:20]}\n[... {len(number) - 40} characters left out ...]\n{number[-20:]}" in text


async def test_too_many_turns_end_the_episode_after_the_last_turn(calculator: CalculatorProcess) -> None:
    engine = ScriptedEngine([sampled(call("1+1") + END)] * 5)
    output, slot = await run(engine, max_turns=2)
    assert (len(engine.prompts), slot.line["turns"], slot.line["outcome"]) == (2, 2, "max_turns")
    assert output.response_ids[-len(sampled(call("1+1") + END)) :] == sampled(call("1+1") + END)


async def test_an_engine_that_fails_is_not_the_agents_fault(calculator: CalculatorProcess) -> None:
    engine = ScriptedEngine([sampled(call("6*7") + END), RuntimeError("out of memory")])
    output, slot = await run(engine)
    assert output == []
    assert (slot.line["outcome"], slot.line["treatment"]) == ("provider", "dropped")
    assert "out of memory" in slot.line["cause"]
    assert (slot.line["turns"], slot.line["tool_calls"]) == (1, 1)


async def test_a_request_that_the_engine_gave_up_is_not_trained_on(calculator: CalculatorProcess) -> None:
    output, slot = await run(ScriptedEngine([sampled("half of")], stop_reason="aborted"))
    assert output == []
    assert slot.line["outcome"] == "provider"


async def test_an_episode_that_takes_too_long_is_left_out(calculator: CalculatorProcess) -> None:
    async def never() -> Any:
        await asyncio.sleep(600)

    began = time.monotonic()
    output, slot = await run(ScriptedEngine([sampled(call("6*7") + END), never]), episode_timeout=10.0)
    assert output == []
    assert (slot.line["outcome"], slot.line["turns"]) == ("timeout", 1)
    assert time.monotonic() - began < 30


async def test_a_lost_environment_is_not_the_agents_fault_and_is_recorded(
    mortal: CalculatorProcess, run_dir: Path
) -> None:
    async def killed() -> list[int]:
        mortal.kill()
        return sampled(call("6*7") + END)

    output, slot = await run(ScriptedEngine([sampled(call("1+1") + END), killed]))
    assert output == []
    assert (slot.line["outcome"], slot.line["treatment"]) == ("environment", "dropped")
    assert slot.line["cause"]
    [lost] = (run_dir / "traces" / "episodes.jsonl").read_text().splitlines()
    assert json.loads(lost)["outcome"] == "environment"


async def test_an_environment_that_is_not_there_is_no_episode_at_all(mortal: CalculatorProcess) -> None:
    mortal.kill()
    engine = ScriptedEngine([])
    output, slot = await run(engine)
    assert output == []
    assert slot.line["outcome"] == "environment"
    assert engine.prompts == []


async def test_an_episode_is_played_again_from_the_start_if_the_environment_comes_back(
    mortal: CalculatorProcess,
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
    assert (slot.line["outcome"], slot.line["turns"]) == ("answered", 2)


async def test_the_servers_of_a_recipe_and_the_token_go_into_the_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:1/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", TOKEN)
    server = agent_loop._tool_server(5.0, 5.0, ["calculator", "browser"])
    assert server.headers == {"Authorization": f"Bearer {TOKEN}", "MCP_SERVERS": "calculator,browser"}
    monkeypatch.delenv("MCP_SERVER_TOKEN")
    assert agent_loop._tool_server(5.0, 5.0, []).headers == {}


async def test_many_episodes_at_once_keep_their_tokens_apart(calculator: CalculatorProcess) -> None:
    engines = [
        ScriptedEngine([sampled(call(f"{i}*2") + END, i), sampled(f"{i * 2}{END}", i)]) for i in range(24)
    ]
    rows = await asyncio.gather(*(asyncio.create_task(run(engine)) for engine in engines))
    for number, (engine, (output, slot)) in enumerate(zip(engines, rows, strict=True)):
        trained = [t for t, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
        assert trained == engine.turns[0] + engine.turns[1]
        assert f"<tool_response>\n{number * 2}\n</tool_response>" in TOKENIZER.decode(output.response_ids)
        assert slot.line["outcome"] == "answered"
