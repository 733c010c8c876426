"""Agent loops outside Ray: a scripted engine in VeRL's place, real tools, a real tokenizer."""

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.agent import EpisodeAgent, McpAgent
from aworld_train.adapter.episodes.player import EpisodePlayer
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, EpisodeRecord, open_record
from aworld_train.adapter.episodes.settings import episode_settings
from aworld_train.adapter.verl.agent_loop import EpisodeLoop
from aworld_train.recipe.tree import merge
from tests.models import shipped_tokenizer
from tests.tool_servers import TOKEN, ServerProcess

TOKENIZER = shipped_tokenizer()
MESSAGES = [{"role": "user", "content": "What is 6*7?"}]
END = "<|im_end|>"


def known_to_agents(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """Agents in this process find ``server`` from now on."""
    monkeypatch.setenv("MCP_SERVER_URL", server.url)
    monkeypatch.setenv("MCP_SERVER_TOKEN", TOKEN)
    return server


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
        steps = dict.fromkeys(("min_global_steps", "max_global_steps"), 10 + len(self.prompts))
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
    markers = TOKENIZER.get_added_vocab()
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
    kind: type[EpisodeAgent],
    engine: Any,
    prompt_length: int = 400,
    response_length: int = 900,
    **settings: Any,
) -> EpisodeLoop:
    """An agent loop as VeRL would make it; what is left of ``settings`` is the recipe's."""
    rollout = {"prompt_length": prompt_length, "response_length": response_length}
    made = EpisodeLoop(
        trainer_config=DictConfigWrap(OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})),
        server_manager=engine,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type="qwen3",
        settings=str(settings_file(**settings)),
    )
    made.player = EpisodePlayer(made.player.settings, kind(made.player.settings))
    return made


def settings_file(recipe: dict[str, Any] | None = None, **settings: Any) -> Path:
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
    read = recipes.load(merge({"agent": agent, "env": env}, recipe or {}))
    file.write_text(yaml.safe_dump(episode_settings(read)))
    return file


async def play(
    engine: Any,
    messages: list[dict[str, Any]] = MESSAGES,
    kind: type[EpisodeAgent] = McpAgent,
    validate: bool = False,
    **settings: Any,
) -> tuple[list[Any], EpisodeRecord]:
    """One episode: its rows, and the line that it leaves."""
    slot = open_record(step=1, validate=validate, index=0)
    sampling = {"temperature": 0.0 if validate else 1.0, "logprobs": True}
    extra_info = {"index": 7, "ground_truths": ["forty-two", "42"]}
    rows = await loop(kind, engine, **settings).run(sampling, raw_prompt=messages, extra_info=extra_info)
    return rows, slot
