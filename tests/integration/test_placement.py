"""The ready GPU recipes are placed by VeRL on machines with the GPUs that they say; Ray only counts the GPUs."""

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import logical_cpus
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Recipe
from tests.golden_recipes import READY
from tests.locations import REPOSITORY
from tests.ray_cluster import ray_cluster

pytestmark = [
    pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu"),
    pytest.mark.timeout(900),
]
LOADED = {name: recipes.load(recipes.shipped()[name]) for name in READY}
ON_GPUS = [name for name, recipe in LOADED.items() if not on_cpu(recipe)]
NODES = max(recipe.cluster.nodes for recipe in LOADED.values())
GPUS = max(recipe.cluster.gpus_per_node for recipe in LOADED.values())
SECONDS = 400


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Where the recipes are placed, and one that takes a machine more than there are."""
    more = tmp_path_factory.mktemp("more") / "more.yaml"
    more.write_text(
        f"name: more\nextends: base/multinode\nmodel: {{path: org/model}}\ncluster: {{nodes: {NODES + 1}}}\n"
        "dataset: {train: t.parquet, val: v.parquet}\ntrainer: {batch_size: 40}\n"
    )
    with ray_cluster(NODES, gpus=GPUS, cpus=logical_cpus(LOADED["gaia/qwen3-32b-multinode"])) as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "tests.placed_ranks", *ON_GPUS, str(more)],
            env={
                **os.environ,
                **cluster.variables(),
                "RAY_ADDRESS": cluster.head,
                "RAY_AUTH_MODE": "token",
                "VERL_PLATFORM": "nvidia",
                "PYTHONPATH": str(REPOSITORY),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=tmp_path_factory.mktemp("driver"),
        )
    assert done.returncode == 0, done.stderr[-4000:]
    places: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"more" if name == str(more) else name: place for name, place in places.items()}


def test_there_are_ready_recipes_for_one_gpu_several_and_several_machines() -> None:
    sizes = {(LOADED[name].cluster.nodes, LOADED[name].cluster.gpus_per_node) for name in ON_GPUS}
    assert sizes >= {(1, 1), (1, 8), (4, 8)}
    assert all(LOADED[name].cluster.device.value == "cuda" for name in ON_GPUS)


@pytest.mark.parametrize("name", ON_GPUS)
def test_ranks_and_engines_are_where_the_recipe_says(name: str, placed: dict[str, Any]) -> None:
    recipe, place = LOADED[name], placed[name]
    assert "error" not in place, place
    cluster, parallel = recipe.cluster, recipe.rollout.tensor_parallel
    # Ranks of one machine follow each other, as VeRL's engines and sequence parallelism need it.
    assert list(Counter(place["ranks"]).values()) == [cluster.gpus_per_node] * cluster.nodes
    assert [
        rank for node in dict.fromkeys(place["ranks"]) for rank in [node] * cluster.gpus_per_node
    ] == place["ranks"]
    assert [len(engine) for engine in place["engines"]] == [parallel] * (cluster.ranks // parallel)
    assert all(len(set(engine)) == place["nodes_of_an_engine"] for engine in place["engines"])


def test_more_gpus_than_there_are_is_an_error_of_verl_and_no_wait(placed: dict[str, Any]) -> None:
    assert f"less than total desired GPUs {(NODES + 1) * GPUS}" in placed["more"]["error"]


def test_a_machine_has_the_processors_that_verl_reserves_beside_each_gpu() -> None:
    """VeRL waits without end for processors that Ray does not have."""
    recipe = Recipe()
    for gpus in (1, 8, 16, 64):
        recipe.cluster.gpus_per_node = gpus
        assert logical_cpus(recipe) >= 3 * gpus + 3
