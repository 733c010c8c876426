"""The two classes of the ``transformers`` rollout that VeRL uses: one starts servers, one sends them weights."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

from aworld_train.adapter.verl.cpu.server import TransformersServer

_PART_BYTES = 64 << 20  # weights travel in parts of this size through Ray's object store
Weights = Iterable[tuple[str, torch.Tensor]] | AsyncIterable[tuple[str, torch.Tensor]]
Part = tuple[list[str], list[Any], bool]
"""The names of some weights, these as arrays of NumPy, and whether they are the last."""


def server_name(replica_rank: int, *, is_teacher: bool = False) -> str:
    return f"transformers_{'teacher' if is_teacher else 'server'}_{replica_rank}"


class TransformersReplica(RolloutReplica):  # type: ignore[misc]
    """One rollout server, on the machine of the trainer rank that feeds it weights."""

    async def launch_servers(self) -> None:
        if self.world_size != 1:
            raise ValueError(
                "the transformers engine keeps each replica in one process: "
                "tensor, data and pipeline parallel sizes of the rollout must be 1"
            )
        name = server_name(self.replica_rank, is_teacher=self.is_teacher_model)
        node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = (
            ray.remote(TransformersServer)
            .options(
                name=name,
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                    node, soft=False
                ),
            )
            .remote(self.config, self.model_config, self.replica_rank, self.gpus_per_node)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = name


class TransformersRollout(BaseRollout):  # type: ignore[misc]
    """Sends weights to the server of its replica, by default the one of the same rank."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **unused: Any
    ):
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = replica_rank
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """The server keeps its memory."""

    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Weights,
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **unused: Any,
    ) -> None:
        """Send all weights; every rank iterates over them, because the iteration gathers shards."""
        if wire_format != "named_tensors":
            raise ValueError(f"the transformers engine takes whole named tensors, not {wire_format!r}")
        if self._server is None:
            number = self.replica_rank
            if number < 0:
                number = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            self._server = ray.get_actor(server_name(number))
        async for part in parts_of(weights):
            await self._server.update_weights.remote(*part, global_steps if part[-1] else None)


async def parts_of(weights: Weights) -> AsyncIterator[Part]:
    names: list[str] = []
    arrays: list[Any] = []
    size = 0
    async for name, tensor in ensure_async_iterator(weights):
        names.append(name)
        arrays.append(tensor.detach().float().contiguous().numpy())
        size += arrays[-1].nbytes
        if size >= _PART_BYTES:
            yield names, arrays, False
            names, arrays, size = [], [], 0
    yield names, arrays, True
