"""On a cluster that is there already VeRL sends no sizes of its own, and workers get the run's variables sealed."""

import os
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.base import StartFiles
from aworld_train.adapter.verl import forwarding
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.adapter.verl.transfer_queue import QUEUE_SECRET_VARIABLE, queue_secret
from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE

TOKEN = "f" * 64
LAUNCHERS = ["ray", "kubernetes"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test changes in the environment is undone."""
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"RAY_AUTH_TOKEN": TOKEN})


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ray_gets_an_address_and_no_size_of_a_cluster(launcher: str, tmp_path: Path) -> None:
    init = compose(recipes.load({"cluster": {"launcher": launcher, "nodes": 2}}), tmp_path)["ray_kwargs"][
        "ray_init"
    ]
    sent = {key: value for key, value in init.items() if value is not None}
    assert set(sent) == {"address", "log_to_driver", "runtime_env"}
    assert sent["address"] == "auto"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_start_on_a_cluster_sets_nothing_of_rays_and_no_file_holds_its_key(
    launcher: str, tmp_path: Path
) -> None:
    recipe = recipes.load({"cluster": {"launcher": launcher}})
    folder, private = tmp_path / "run", tmp_path / "private"
    for path in (folder, private):
        path.mkdir()
    plan = VerlFramework().compile(recipe, folder)
    variables = plan.environment(StartFiles(private, folder / "metrics.jsonl"))
    of_ray = {name for name in variables if name.startswith(("RAY_", "GLOO_", "NCCL_", "TMPDIR", "PATH"))}
    assert of_ray == set()
    assert list(private.iterdir()) == []
    assert list((folder / "rendezvous").iterdir()) == []
    assert (folder / "rendezvous").stat().st_mode & 0o777 == 0o700
    names = variables[forwarding.FORWARDED_VARIABLE].split(",")
    assert set(variables) <= set(names)
    os.environ |= variables
    assert queue_secret() == bytes.fromhex(variables[QUEUE_SECRET_VARIABLE])
    second = plan.environment(StartFiles(private, folder / "metrics.jsonl"))
    assert second[QUEUE_SECRET_VARIABLE] != variables[QUEUE_SECRET_VARIABLE]


def test_workers_open_what_the_run_has_sealed_and_see_it_nowhere_else() -> None:
    at_start = {"PYTHONPATH": "/code", "PYTHONUNBUFFERED": "1"}
    own = {**at_start, "VERL_PLATFORM": "cpu"}
    start = {
        "AWORLD_TRAIN_RUN_DIR": "/canary",
        "MCP_SERVER_URL": "http://canary",
        "MCP_SERVER_TOKEN": "canary-tools",
        "HF_TOKEN": "canary $HOME",
    }
    os.environ |= {**own, **start, "UNRELATED": "canary", JOB_VARIABLES_VARIABLE: "HF_TOKEN"}
    os.environ[forwarding.FORWARDED_VARIABLE] = forwarding.forwarded_names(own)
    sent = forwarding.variables_for_workers()
    assert at_start.items() <= sent.items()
    assert "canary" not in str(sent)
    for name in (*own, *start, "UNRELATED", forwarding.FORWARDED_VARIABLE):
        os.environ.pop(name)
    assert not forwarding.is_forwarding()
    os.environ |= sent
    forwarding.open_variables()
    assert {**own, **start}.items() <= os.environ.items()
    assert "UNRELATED" not in os.environ
    assert forwarding.is_forwarding()


def test_a_worker_to_which_nothing_is_sent_keeps_its_variables() -> None:
    before = dict(os.environ)
    forwarding.open_variables()
    assert os.environ == before


def test_without_a_token_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.environ |= {forwarding.FORWARDED_VARIABLE: "HOME", "HOME": str(tmp_path)}
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        os.environ.pop(name, None)
    with pytest.raises(RuntimeError, match="no token"):
        forwarding.variables_for_workers()
