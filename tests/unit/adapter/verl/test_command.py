"""VeRL's processes listen on loopback, find the user's modules, and take no library from where the user is."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.command import cluster_environment, verl_command, verl_environment
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE
from aworld_train.adapter.verl.forwarding import FORWARDED_VARIABLE
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.worker_setup import WORKER_SETUP
from aworld_train.user_code import load_user_code, user_variables
from tests.locations import REPOSITORY

SECONDS = 120
LIBRARIES = ("yaml", "numpy", "json")
PROGRAM = """
import json, os, sys
from aworld_train.user_code import find_user_modules
find_user_modules()
import numpy, yaml
import beside
print(json.dumps([module.__file__ for module in (numpy, yaml, json, beside)]))
"""


@pytest.fixture
def private(tmp_path: Path) -> PrivateFolder:
    folder = PrivateFolder(tmp_path / "private")
    folder.fill()
    return folder


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory, with files named like libraries and one of the user's own."""
    directory = tmp_path / "user"
    directory.mkdir()
    for library in LIBRARIES:
        (directory / f"{library}.py").write_text("raise SystemExit('the wrong module')")
    (directory / "beside.py").write_text("def function(): return 7\n")
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.parametrize("inherited", [None, "", ":/nowhere", "/nowhere:"])
def test_files_named_like_libraries_beside_the_user_are_not_imported(
    tmp_path: Path,
    user: Path,
    private: PrivateFolder,
    monkeypatch: pytest.MonkeyPatch,
    inherited: str | None,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if inherited is not None:
        monkeypatch.setenv("PYTHONPATH", inherited)
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables["PYTHONPATH"], str(REPOSITORY)]))
    run = tmp_path / "run"
    run.mkdir()
    python = verl_command(run)[: verl_command(run).index("-m")]
    done = subprocess.run(
        [*python, "-c", PROGRAM],
        cwd=run,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(user)) == 1
    assert str(user / "beside.py") in done.stdout


def test_a_path_in_pythonpath_means_what_it_meant_to_the_user(
    tmp_path: Path, user: Path, private: PrivateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "lib::/opt/lib")
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    assert variables["PYTHONPATH"] == f"{user / 'lib'}:/opt/lib"


def test_a_module_beside_the_user_is_found_and_one_that_is_installed_comes_first(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(user))])
    assert load_user_code("beside:function", "reward")() == 7
    assert sys.path[-1] == str(user)
    assert load_user_code("yaml:safe_load", "reward")("a: 1") == {"a": 1}


@pytest.mark.parametrize("chosen", [None, "ACTIVE"])
def test_threads_do_not_spin_unless_the_user_says_so(
    tmp_path: Path, private: PrivateFolder, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    assert variables["OMP_WAIT_POLICY"] == (chosen or "PASSIVE")


def test_every_worker_of_ray_is_set_up(tmp_path: Path) -> None:
    from aworld_train.adapter.verl.compose import compose

    for engine in ("transformers", "vllm"):
        recipe = recipes.load(
            {"model": {"path": "m"}, "dataset": {"train": "t", "val": "v"}, "rollout": {"engine": engine}}
        )
        init = compose(recipe, tmp_path)["ray_kwargs"]["ray_init"]
        assert init["runtime_env"]["worker_process_setup_hook"] == WORKER_SETUP


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_ray_takes_loopback_for_the_machines_address(
    tmp_path: Path, private: PrivateFolder, engine: str
) -> None:
    """Pinned: the variable is Ray's for macOS and Windows; `_node_ip_address` is not heeded."""
    variables = verl_environment(recipes.load({"rollout": {"engine": engine}}), tmp_path / "m.jsonl", private)
    program = "import ray; print(ray.util.get_node_ip_address())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert done.stdout.split() == ["127.0.0.1"]


def test_no_secret_is_in_the_command_or_its_variables(tmp_path: Path, private: PrivateFolder) -> None:
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    for secret in (private.token, private.queue_key):
        assert len(secret.read_text()) == 64
        assert secret.read_text() not in str(variables) + str(verl_command(tmp_path))
        assert str(secret) in variables.values()


def test_secrets_and_temporary_files_lie_outside_what_ray_opens_to_everyone(
    private: PrivateFolder, tmp_path: Path
) -> None:
    assert stat.S_IMODE(private.path.stat().st_mode) == 0o700
    for secret in (private.token, private.queue_key):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    for path in (private.token, private.queue_key, private.scratch, private.rendezvous):
        assert path.exists()
        assert not path.is_relative_to(private.ray)
    assert private.token.read_text() != private.queue_key.read_text()
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    assert Path(variables["RAY_TMPDIR"]) / "ray" == private.ray
    # The longest socket in Ray's folder, with the largest process id, fits into the 107 characters of an address.
    session = "session_2026-11-22_15-23-54_982380_4194304/sockets/plasma_store"
    assert len(f"/tmp/aworld-{'x' * 16}/ray/{session}") <= 107


def test_ray_keeps_its_files_in_the_private_folder(private: PrivateFolder, tmp_path: Path) -> None:
    """Pinned: where Ray looks for the variable."""
    variables = verl_environment(recipes.load({}), tmp_path / "m.jsonl", private)
    program = "from ray._common.utils import get_default_ray_temp_dir as folder; print(folder())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.strip() == str(private.ray)


TRACKED = {"TENSORBOARD_DIR": "/tb"}


def test_a_start_on_a_cluster_has_a_key_and_an_empty_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    rendezvous, keys = tmp_path / "rendezvous", set()
    recipe = recipes.load({"cluster": {"launcher": "ray", "device": "cuda"}, "rollout": {"engine": "vllm"}})
    for _ in range(2):
        variables = cluster_environment(recipe, tmp_path / "m.jsonl", rendezvous, trackers=TRACKED)
        assert rendezvous.stat().st_mode & 0o777 == 0o700
        assert list(rendezvous.iterdir()) == []
        (rendezvous / "of this start").touch()
        keys.add(variables.pop("AWORLD_TRAIN_QUEUE_SECRET"))
        forwarded = set(variables.pop(FORWARDED_VARIABLE).split(","))
        assert forwarded >= {*variables, "AWORLD_TRAIN_QUEUE_SECRET"}
        assert variables == {
            "AWORLD_TRAIN_RENDEZVOUS": str(rendezvous),
            "PYTHONPATH": "",
            **user_variables(),
            "PYTHONUNBUFFERED": "1",
            "VERL_FILE_LOGGER_PATH": str(tmp_path / "m.jsonl"),
            "TOKENIZERS_PARALLELISM": "false",
            **TRACKED,
        }
    assert len(keys) == 2 and {len(key) for key in keys} == {64}


def test_a_run_of_forks_has_their_server_and_the_recipe_s_variables_from_the_start(
    tmp_path: Path, private: PrivateFolder
) -> None:
    cluster = {"environment": {"MODE": "fast"}}
    on_cpu = recipes.load({"cluster": cluster, "model": {"path": str(tmp_path)}})
    on_gpu = recipes.load({"cluster": {**cluster, "device": "cuda"}, "rollout": {"engine": "vllm"}})
    cpu = verl_environment(on_cpu, tmp_path / "m.jsonl", private, trackers=TRACKED)
    gpu = verl_environment(on_gpu, tmp_path / "m.jsonl", private)
    only_on_cpu = {
        "MODE": "fast",
        ADDRESS_VARIABLE: str(private.fork_server),
        "VERL_PLATFORM": "cpu",
        "HF_HUB_OFFLINE": "1",
        **TRACKED,
    }
    assert cpu.items() >= only_on_cpu.items()
    assert not set(only_on_cpu) & set(gpu)
    assert gpu["VERL_FILE_LOGGER_PATH"] == str(tmp_path / "m.jsonl")
