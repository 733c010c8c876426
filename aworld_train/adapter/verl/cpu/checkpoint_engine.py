"""How weights reach rollout servers beside the trainer on CPU: as objects of Ray, without a process group.

All training ranks take part in the gathering of each weight; the first sends parts to the worker of each replica, which
passes them to its server as they come.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from aworld_train.adapter.verl.cpu import OBJECTS, registration  # noqa: F401  also in workers that load no model
from aworld_train.adapter.verl.cpu.rollout import Part, Weights, parts_of


@CheckpointEngineRegistry.register(OBJECTS)
class ObjectCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._receivers: list[Any] = []
        self._parts: asyncio.Queue[Part] = asyncio.Queue()

    def prepare(self) -> Any:
        return ray.get_runtime_context().current_actor

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        receivers = metadata[actor_wg_world_size:]
        return {"receivers": [receivers] * actor_wg_world_size}, {"receivers": [[]] * rollout_world_size}

    def init_process_group(self, receivers: list[Any]) -> None:
        self._receivers = receivers

    def finalize(self) -> None:
        self._receivers = []

    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> None:
        async for part in parts_of(weights):
            if self._is_master:
                reference = ray.put(part)
                calls = [each.execute_checkpoint_engine.remote("take", reference) for each in self._receivers]
                await asyncio.gather(*calls)

    def take(self, part: Part) -> None:
        self._parts.put_nowait(part)

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        is_last = False
        while not is_last:
            names, arrays, is_last = await self._parts.get()
            for name, array in zip(names, arrays, strict=True):
                yield name, torch.tensor(array)  # Ray's arrays are read-only
