"""The samplers beside the trainer: all get new weights, and one that dies is replaced while training continues.

A sampler is a replica of VeRL's, with a process of its own for its weights. A thread holds a call to its server, which
Ray ends with an error when the process dies: the sampler leaves VeRL's balancer, and another is started in its place.
That one gets the weights that were sent last, as they were sent, for which they stay in Ray's object store. So it never
has weights between two versions, and neither the trainer nor its processes are interrupted for it.
"""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from verl.checkpoint_engine import CheckpointEngineManager
from verl.utils.ray_utils import auto_await

from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.log import error_line

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 10.0  # after a replacement that did not start
LOST_SAMPLERS = "training/lost_samplers"


class Samplers(CheckpointEngineManager):  # type: ignore[misc]
    """``servers`` is VeRL's manager of the replicas; ``max_wait`` are the seconds for which a run waits without any."""

    def __init__(self, config: Any, trainer: Any, servers: Any, max_wait: float, request: Path):
        super().__init__(config, trainer, servers.get_replicas())
        self._balancer = servers.global_load_balancer
        self._wanted = len(self.replicas)
        first = servers.start_rank + self._wanted
        self._new_replica = partial(
            servers.rollout_replica_class,
            config=servers.rollout_config,
            model_config=servers.model_config,
            gpus_per_node=servers.rollout_config.n_gpus_per_node,
        )
        self._ranks = itertools.count(first)
        self._max_wait = max_wait
        self._request = request
        request.unlink(missing_ok=True)
        self._weights: list[Any] = []
        self._version: int | None = None
        self._delivery = threading.Lock()
        self._starters: list[threading.Thread] = []
        self._lost = self._reported = 0
        self._last_error = ""
        self._last_served = time.monotonic()

    @auto_await  # type: ignore[untyped-decorator]
    async def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        """Send the trainer's weights to every sampler; returns how many samplers were lost since the last time."""
        with self._delivery:
            self._weights = []
            ray.get(self.actor_wg.update_weights(global_steps=global_steps, mode=self.backend))
            sent = ray.get(self.actor_wg.execute_checkpoint_engine(["sent"] * self.actor_wg.world_size))
            self._weights, self._version = list(itertools.chain(*sent)), global_steps
            await asyncio.gather(*map(self._deliver_or_end, list(self.replicas)))
        before, self._reported = self._reported, self._lost
        return {LOST_SAMPLERS: self._reported - before}

    def watch(self) -> None:
        threading.Thread(target=self._watch, name="samplers", daemon=True).start()

    async def _deliver_or_end(self, replica: Any) -> None:
        try:
            await self._deliver(replica)
        except ray.exceptions.RayActorError as error:
            _log.warning("%s gets no weights: %s", replica.server_address, error_line(error))
            _end_processes(replica)  # one of its processes may be alive, with old weights

    async def _deliver(self, replica: Any) -> None:
        (worker,) = replica.workers
        await replica.abort_all_requests()
        await replica.release_kv_cache()
        loaded = worker.update_weights.remote(global_steps=self._version)
        for part in self._weights:
            await worker.execute_checkpoint_engine.remote("take", part)
        await loaded
        await replica.resume_generation()

    def _watch(self) -> None:
        alive: dict[Any, Any] = {}
        while not liveness.is_over():
            for replica in self.replicas:
                if replica not in alive.values():
                    alive[replica.server_handle.until_the_end.remote()] = replica
            ended, _ = ray.wait(list(alive), num_returns=len(alive), timeout=0) if alive else ([], [])
            for call in ended:
                self._remove(alive.pop(call), call)
            self._read_request()
            self._end_surplus()
            self._start_missing()
            self._limit_wait()
            time.sleep(_LOOK_SECONDS)

    def _read_request(self) -> None:
        with suppress(FileNotFoundError):
            self._wanted = int(self._request.read_text())

    def _end_surplus(self) -> None:
        """End samplers that nobody wants any more; their turns continue on the others."""
        for replica in self.replicas[self._wanted :]:
            _log.warning("%s ends: %s samplers were asked for.", replica.server_address, self._wanted)
            with self._delivery, suppress(ray.exceptions.RayActorError):
                self.replicas.remove(replica)
                ray.get(self._balancer.remove_servers.remote([replica.server_address]))
                asyncio.run(replica.abort_all_requests())
            time.sleep(_LOOK_SECONDS)  # for the tokens that it has sampled to arrive
            _end(replica)

    def _remove(self, replica: Any, call: Any) -> None:
        if replica not in self.replicas:
            return
        try:
            ray.get(call)
        except ray.exceptions.RayError as error:
            self._last_error = f"the sampler {replica.replica_rank} died: {liveness.reason(error)}"
        if liveness.is_over():
            return
        _log.warning("%s. Another is started in its place.", self._last_error)
        self._lost += 1
        self.replicas.remove(replica)
        ray.get(self._balancer.remove_servers.remote([replica.server_address]))
        _end(replica)

    def _start_missing(self) -> None:
        self._starters = [starter for starter in self._starters if starter.is_alive()]
        for _ in range(self._wanted - len(self.replicas) - len(self._starters)):
            self._starters.append(threading.Thread(target=self._start, name="new sampler", daemon=True))
            self._starters[-1].start()

    def _start(self) -> None:
        replica = self._new_replica(replica_rank=next(self._ranks))
        try:
            asyncio.run(replica.init_standalone())
            with self._delivery:
                asyncio.run(self._deliver(replica))
                self.replicas.append(replica)
            ray.get(self._balancer.add_servers.remote({replica.server_address: replica.server_handle}))
            _log.warning("%s samples, with the weights of step %s.", replica.server_address, self._version)
        except Exception as error:
            if not liveness.is_over():
                self._last_error = (
                    f"the sampler {replica.replica_rank} could not be started: {error_line(error)}"
                )
                _log.warning("%s", self._last_error)
                _end(replica)
                time.sleep(_RETRY_SECONDS)

    def _limit_wait(self) -> None:
        now = time.monotonic()
        if self.replicas:
            self._last_served = now
        elif now - self._last_served > self._max_wait:
            liveness.report_death(
                f"{self._last_error.rstrip('.')}. The run has waited {self._max_wait:g} seconds for another sampler "
                "(trainer.async.recovery_timeout)"
            )


def _end(replica: Any) -> None:
    """End what is left of a sampler, and give its place on the machine back."""
    _end_processes(replica)
    for group in getattr(replica.resource_pool, "pgs", None) or ():
        ray.util.remove_placement_group(group)


def _end_processes(replica: Any) -> None:
    processes: Sequence[Any] = [*replica.servers, *replica.workers]
    for process in processes:
        ray.kill(process)
