"""A program that lets VeRL place recipes on a Ray cluster, and prints where each rank and each engine would be.

    RAY_ADDRESS=... python -m tests.placed_ranks RECIPE...

VeRL's own trainer makes the resource pools and placement groups, and its own replica picks the ranks of an engine; no
worker is started. One JSON object is printed: by recipe its ``ranks`` (the node of each), ``engines`` (the nodes of
each engine's ranks) and ``nodes_of_an_engine``, or the ``error`` of VeRL.
"""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from omegaconf import OmegaConf
from ray.util import placement_group_table, remove_placement_group
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.workers.rollout.replica import RolloutReplica

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import compose


class Replica(RolloutReplica):  # type: ignore[misc]
    """VeRL's engine as far as the choice of its ranks."""

    async def launch_servers(self) -> None:
        """Start none."""


def place(name: str) -> dict[str, Any]:
    """Where the ranks and engines of a recipe are placed."""
    config: Any = OmegaConf.create(
        compose(recipes.load(recipes.shipped().get(name, name)), Path("/run-folder"))
    )
    trainer = SimpleNamespace(config=config)
    PPOTrainer._init_resource_pool_mgr(trainer)
    manager = trainer.resource_pool_manager
    try:
        manager.create_resource_pool()
    except ValueError as error:
        return {"error": str(error)}
    (pool,) = manager.resource_pool_dict.values()
    pool.get_placement_groups(device_name=config.trainer.device)
    tables = [placement_group_table(group) for group in pool.pgs]
    ranks = [
        table["bundles_to_node_id"][place]
        for table in tables
        for place in sorted(table["bundles_to_node_id"])
    ]
    engines = []
    while sum(map(len, engines)) < len(ranks):
        replica = Replica(
            len(engines), config.actor_rollout_ref.rollout, None, gpus_per_node=config.trainer.n_gpus_per_node
        )
        asyncio.run(replica.init_hybrid(SimpleNamespace(workers=ranks)))
        engines.append(replica.workers)
    for group in pool.pgs:
        remove_placement_group(group)
    return {"ranks": ranks, "engines": engines, "nodes_of_an_engine": replica.nnodes}


def main() -> None:
    """Place the recipes of the command line, one after the other."""
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    sys.stdout.write(json.dumps({name: place(name) for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
