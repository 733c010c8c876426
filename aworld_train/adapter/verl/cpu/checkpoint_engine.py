"""How weights reach rollout servers beside the trainer on CPU: as objects of Ray, without a process group.

All training ranks take part in the gathering of each weight; the first puts them into Ray's object store, in parts, of
which ``samplers`` gives the references to each replica's worker, which passes the parts to its server as they come.
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
    """VeRL asks for methods that make and end a group of processes, which have nothing to do here."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._sent: list[Any] = []
        self._parts: asyncio.Queue[Part] = asyncio.Queue()

    def prepare(self) -> None: ...

    init_process_group = finalize = prepare

    @classmethod
    def build_topology(cls, *_: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return {}, {}

    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> None:
        self._sent = []
        async for part in parts_of(weights):
            if self._is_master:
                self._sent.append(ray.put(part))

    def sent(self) -> list[Any]:
        """References to the parts that were put last, which live while this process does; of other ranks none."""
        return self._sent

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
