"""The first training rank keeps the weights for every replica, as they are gathered, and all ranks gather them."""

import asyncio
from typing import Any

import pytest
import ray
import torch

from aworld_train.adapter.verl.cpu import rollout
from aworld_train.adapter.verl.cpu.checkpoint_engine import ObjectCheckpointEngine

WEIGHTS = {name: torch.full((3,), float(value)) for value, name in enumerate("abc")}


async def test_every_replica_gets_all_weights_and_every_rank_gathers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout, "_PART_BYTES", 20)
    monkeypatch.setattr(ray, "put", lambda part: part)
    ranks = [ObjectCheckpointEngine(1, is_master=rank == 0) for rank in range(2)]
    replicas = [ObjectCheckpointEngine(1) for _ in range(2)]
    gathered: list[str] = []

    def gather() -> Any:
        for name, weight in WEIGHTS.items():
            gathered.append(name)
            yield name, weight

    async def receive(engine: ObjectCheckpointEngine) -> dict[str, torch.Tensor]:
        return {name: weight async for name, weight in engine.receive_weights()}

    await asyncio.gather(*(rank.send_weights(gather()) for rank in ranks))
    assert len(ranks[0].sent()) == 2 and ranks[1].sent() == []
    for replica in replicas:
        for part in ranks[0].sent():
            replica.take(part)
    first, second = await asyncio.gather(*map(receive, replicas))
    assert sorted(gathered) == sorted([*WEIGHTS, *WEIGHTS])
    for received in (first, second):
        assert received.keys() == WEIGHTS.keys()
        assert all(torch.equal(received[name], weight) for name, weight in WEIGHTS.items())
