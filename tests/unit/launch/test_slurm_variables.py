"""What the variables of a job or a wrapper mean for a recipe that says nothing, and what of a job stays unused."""

import pytest

from aworld_train.launch.slurm_variables import cluster_defaults, unused_resources
from aworld_train.recipe import load, read
from aworld_train.recipe.schema import LauncherName

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_ON_NODE": "4",
}


def cluster(environment: dict[str, str], **named: object) -> object:
    return read({"cluster": named}, defaults=cluster_defaults(environment)).recipe.cluster


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"])
def test_variables_of_a_job_that_has_ended_mean_nothing(missing: str) -> None:
    stale = {name: value for name, value in JOB.items() if name != missing}
    assert cluster_defaults(stale).data == {}
    assert unused_resources(load({}), stale) is None


def test_without_variables_a_run_is_on_this_machine() -> None:
    assert cluster_defaults({}).data == {}
    assert cluster_defaults({"NNODES": "", "GPUS_PER_NODE": "all", "SLURM_JOB_NUM_NODES": "0"}).data == {}


def test_a_run_inside_a_job_of_several_nodes_uses_them_all() -> None:
    section = cluster(JOB)
    assert (section.launcher, section.nodes, section.gpus_per_node) == (LauncherName.slurm, 2, 4)  # type: ignore[attr-defined]


def test_a_job_of_one_node_needs_no_launcher() -> None:
    section = cluster({**JOB, "SLURM_JOB_NUM_NODES": "1"})
    assert (section.launcher, section.nodes) == (LauncherName.local, 1)  # type: ignore[attr-defined]


def test_a_wrappers_own_variables_go_before_those_of_its_job() -> None:
    section = cluster({**JOB, "NNODES": "1", "GPUS_PER_NODE": "2"})
    assert (section.launcher, section.nodes, section.gpus_per_node) == (LauncherName.local, 1, 2)  # type: ignore[attr-defined]


def test_what_the_recipe_names_stays() -> None:
    section = cluster(JOB, launcher="local", nodes=1, gpus_per_node=1)
    assert (section.launcher, section.nodes, section.gpus_per_node) == (LauncherName.local, 1, 1)  # type: ignore[attr-defined]


def test_a_job_that_is_larger_than_its_run_is_remarked_on() -> None:
    remark = unused_resources(load({}), JOB)
    assert remark is not None
    assert "SLURM job 7" in remark
    assert "1 of 2 nodes" in remark
    assert "cluster.nodes" in remark


@pytest.mark.parametrize(
    ("used", "sentence"), [(1, "1 of 4 GPUs per node"), (4, None)], ids=["some GPUs", "all GPUs"]
)
def test_gpus_that_a_run_leaves_idle_are_remarked_on(used: int, sentence: str | None) -> None:
    recipe = load(
        {
            "rollout": {"engine": "vllm"},
            "cluster": {"launcher": "slurm", "nodes": 2, "gpus_per_node": used},
        }
    )
    remark = unused_resources(recipe, JOB)
    assert (remark is None) == (sentence is None)
    assert sentence is None or sentence in (remark or "")


def test_outside_a_job_nothing_is_unused() -> None:
    assert unused_resources(load({}), {}) is None
