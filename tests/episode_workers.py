"""VeRL's agent-loop worker with our record of episodes, outside Ray: a scripted engine, a queue that can be read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.player import EpisodePlayer
from aworld_train.adapter.verl.agent_loop import EpisodeLoop
from aworld_train.adapter.verl.worker import EpisodeWorker
from aworld_train.episode.message import Message
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest
from tests.agent_loops import MESSAGES, TOKENIZER, ScriptedEngine, settings_file

WITHIN = 120.0


class OneAnswer(EpisodeAgent):
    """An agent that asks the model once."""

    async def play(self, messages: list[Message], task: Any, result: EpisodeResult, model_name: str) -> str:
        conversation = result.episode.conversation("agent")
        return (await conversation.complete(ChatRequest(messages))).content


class OneAnswerLoop(EpisodeLoop):
    """VeRL's loop around that agent."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.player = EpisodePlayer(self.player.settings, OneAnswer(self.player.settings))


class TwoRows(OneAnswerLoop):
    """A loop whose episodes have two rows."""

    async def run(self, sampling_params: dict[str, Any], **task: Any) -> list[Any]:
        rows = await super().run(sampling_params, **task)
        return [row.model_copy(deep=True) for row in rows] + rows


class Client:
    """VeRL's client of the engine; Hydra, which makes the loops, would take a dataclass for a configuration."""

    def __init__(self, engine: ScriptedEngine):
        self.generate = engine.generate


class Queue:
    """In place of VeRL's transfer queue, which is an actor of Ray's: which rows there are, and how prompts ended."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.status: dict[str, str] = {}

    async def put(self, *, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.status[key] = tag["status"]

    async def put_rows(self, *, keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        self.rows += keys

    def sessions(self, uid: str) -> list[str]:
        return sorted(key.split("_")[1] for key in self.rows if key.startswith(f"{uid}_"))


def queue_in_place(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue that VeRL's worker puts rows into from now on."""
    made = Queue()
    monkeypatch.setattr("verl.trainer.ppo.v1.agent_loop_tq.tq.async_kv_put", made.put)
    monkeypatch.setattr("verl.trainer.ppo.v1.agent_loop_tq.tq.async_kv_batch_put", made.put_rows)
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:9/mcp")
    return made


def worker(episodes: list[Any], *, n: int, min_healthy: int, loop: type[EpisodeLoop] = OneAnswerLoop) -> Any:
    """Our worker as VeRL makes it, but in this process: its base asks Ray for a queue and loads a model."""
    made = object.__new__(EpisodeWorker.__ray_metadata__.modified_class)
    rollout = {"n": n, "val_kwargs": {"n": n}, "prompt_length": 200, "response_length": 200}
    made.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    made.llm_client = Client(ScriptedEngine(list(episodes)))
    made.tokenizer = TOKENIZER
    made.processor = made.hf_model_type = made.dataset_cls = made.reward_loop_worker_handles = None
    made.mm_processor_kwargs = None
    made.distillation_enabled = False
    made.tools = []
    settings = settings_file(
        recipe={"rollout": {"min_group": min_healthy, "n": max(n, 2), "small_group": "resample"}}
    )
    _agent_loop_registry["groups"] = {
        "_target_": f"{loop.__module__}.{loop.__name__}",
        "settings": str(settings),
    }
    made.watch_groups(str(settings))
    return made


async def play(worker: Any, uid: str = "task", *, validate: bool = False, **prompt: Any) -> None:
    """One task, as often as the worker's groups are large."""
    row = {"uid": uid, "agent_name": "groups", "raw_prompt": MESSAGES, "global_steps": 1, **prompt}
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
    await asyncio.wait_for(worker._run_prompt(row, {"temperature": 1.0}, trajectory=trajectory), WITHIN)


def lines(folder: Path) -> list[dict[str, Any]]:
    """What the episodes of a run left in its record."""
    return [json.loads(line) for line in (folder / "traces" / "episodes.jsonl").read_text().splitlines()]
