"""The folder of a run: made once, locked while in use, and resumed only for the recipe and data it was made with."""

import fcntl
import hashlib
import json
import os
import platform
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from aworld_train import __version__
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import UsageError
from aworld_train.training import run_files, run_folder
from aworld_train.training.run_files import has_run, holder_of, is_in_use, lock_folder
from aworld_train.training.run_folder import (
    RunFolder,
    check_run_folder,
    file_hashes,
    open_run_folder,
    refuse_changes,
    write_manifest,
)

RECIPE = {"name": "r", "trainer": {"lr": 1}}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without looks at the machine and at the source code."""
    monkeypatch.setattr(run_files, "_LOCK_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(run_folder, "hardware", lambda: {"gpus": ["one"]})
    monkeypatch.setattr(run_folder, "model_identity", lambda model: {"name": model})
    monkeypatch.setattr(run_folder, "source_code", lambda folder: ({"commit": "abc"}, "the diff"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(b"rows")
    return tmp_path / "data.bin"


def opened(data: Path, recipe: dict[str, Any] = RECIPE, *, resume: bool = False, **more: Any) -> RunFolder:
    return open_run_folder(data.parent / "run", VerlFramework(), recipe, [data], resume=resume, **more)


def manifest_of(folder: RunFolder) -> dict[str, Any]:
    text = (folder.path / "manifest.json").read_text()
    content: dict[str, Any] = json.loads(text)
    assert text == json.dumps(content, indent=2) + "\n"
    return content


def checkpoint(folder: RunFolder, step: int) -> None:
    model = folder.checkpoints / f"global_step_{step}" / "actor" / "huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    with zipfile.ZipFile(folder.checkpoints / f"global_step_{step}" / "data.pt", "w") as file:
        file.writestr("data.pkl", b"")


def test_a_new_folder_has_the_recipe_and_a_manifest_of_the_attempt(data: Path) -> None:
    folder = opened(data, environment={"A": "b"}, model="org/model", seed=7)
    path = data.parent / "run"
    assert yaml.safe_load((path / "recipe.yaml").read_text()) == RECIPE
    assert (path / "source.diff").read_text() == "the diff"
    assert all((path / part).is_dir() for part in ("logs", "checkpoints", "traces/validation"))
    manifest = manifest_of(folder)
    (attempt,) = manifest.pop("attempts")
    assert {"mcp", "omegaconf"} <= manifest.pop("packages").keys()
    assert manifest == {
        "aworld_train": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "data_sha256": {str(data): hashlib.sha256(b"rows").hexdigest()},
        "model": {"name": "org/model"},
        "seed": 7,
        "source": {"commit": "abc"},
        "environment": {"A": "b"},
    }
    time.strptime(attempt.pop("started"), "%Y-%m-%dT%H:%M:%SZ")
    assert attempt.pop("command")
    assert attempt == {"from_step": 0, "python": sys.executable, "gpus": ["one"]}
    assert (folder.path, folder.metrics, folder.log.parent) == (path, path / "metrics.jsonl", path / "logs")
    traces = path / "traces"
    assert (folder.episodes, folder.superseded) == (traces / "episodes.jsonl", traces / "superseded.jsonl")


def test_an_attempt_is_added_with_its_checkpoint_and_its_environment(data: Path) -> None:
    folder = opened(data)
    checkpoint(folder, 3)
    (folder.checkpoints / "global_step_4" / "actor").mkdir(parents=True)  # was not finished
    last = folder.last_checkpoint()
    assert last is not None and last.step == 3
    folder.close()
    folder = opened(data, resume=True)
    folder.note_environment({"image": "abc", "commit": None})
    attempts = manifest_of(folder)["attempts"]
    assert [(attempt["from_step"], attempt.get("environment")) for attempt in attempts] == [
        (0, None),
        (3, {"image": "abc", "commit": None}),
    ]


def test_a_manifest_that_can_be_read_stays_and_another_is_written_anew(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"hashes": {}, "environment": {}, "model": None, "seed": None}
    file = tmp_path / "manifest.json"
    write_manifest(
        tmp_path, packages=["pytest", "no such package", "pyyaml"], more={"kind": "x"}, **arguments
    )
    manifest = json.loads(file.read_text())
    assert (manifest["kind"], list(manifest["packages"])) == ("x", ["pytest", "pyyaml", "mcp", "omegaconf"])
    file.write_text('{"mine": 1}')
    write_manifest(tmp_path, packages=[], **arguments)
    assert json.loads(file.read_text()) == {"mine": 1}
    file.write_text('{"cut o')
    write_manifest(tmp_path, packages=[], **arguments)
    assert json.loads(file.read_text())["attempts"] == []


def test_without_a_change_of_the_code_there_is_no_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "source_code", lambda folder: ({}, ""))
    write_manifest(tmp_path, packages=[], hashes={}, environment={}, model=None, seed=None)
    assert not (tmp_path / "source.diff").exists()


# What is refused


def trained(folder: RunFolder, steps: int) -> None:
    """What a run leaves that has trained some steps and was ended."""
    folder.metrics.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(steps + 1)))
    checkpoint(folder, steps)
    folder.close()


def test_a_run_that_has_trained_is_only_resumed(data: Path) -> None:
    trained(opened(data), 2)
    with pytest.raises(UsageError, match=r"holds a run that has trained.* Continue it with --resume"):
        opened(data)
    opened(data, resume=True).close()
    (data.parent / "run" / "recipe.yaml").unlink()
    with pytest.raises(UsageError, match=r"cannot be resumed: its recipe\.yaml is missing"):
        opened(data, resume=True)


def test_a_run_that_is_not_there_cannot_be_resumed(data: Path) -> None:
    with pytest.raises(UsageError, match=r"No run to resume: .*/run does not exist\. Start"):
        opened(data, resume=True)
    assert not (data.parent / "run").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_start_that_trained_nothing_is_in_nobodys_way(data: Path, resume: bool) -> None:
    failed = opened(data, {"name": "r", "env": {"docker_dir": "a typo"}})
    failed.metrics.write_text('{"step": 0}\n')
    failed.episodes.write_text('{"step": 0}\n')
    failed.close()
    data.write_bytes(b"other rows")
    folder = opened(data, resume=resume)
    assert yaml.safe_load((folder.path / "recipe.yaml").read_text()) == RECIPE
    manifest = manifest_of(folder)
    assert manifest["data_sha256"] == file_hashes([data])
    assert [attempt.get("changes") for attempt in manifest["attempts"]] == [None, None]
    folder.close()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("files", "others"),
    [
        ({}, None),
        ({"run.lock": "", "launch.json": "{}", "launch": ""}, None),
        ({"verl.yaml": "", "reward.yaml": ""}, None),  # a dry run of an earlier version
        ({"manifest.json": '{"data_sha256": {}}', "logs": "", "anything": ""}, None),
        ({"run.lock": "", "notes": "", "verl.yaml": ""}, "notes"),
        ({"recipe.yaml": "name: mine", "data": ""}, "data, recipe.yaml"),
        ({"manifest.json": '{"data_sha256": {}, "eval": {}}', "traces": ""}, "manifest.json, traces"),
        ({"manifest.json": '{"attempts": []}'}, "manifest.json"),  # of single rollouts
    ],
)
def test_only_what_a_start_leaves_is_written_over(
    tmp_path: Path, files: dict[str, str], others: str | None, resume: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert not has_run(tmp_path)
    if others is None:
        check_run_folder(tmp_path, ["verl.yaml", "reward.yaml"], resume=resume)
    else:
        with pytest.raises(UsageError, match=rf"no run has left what is in it \({others}\)"):
            check_run_folder(tmp_path, ["verl.yaml", "reward.yaml"], resume=resume)


def test_a_run_goes_on_for_more_steps_and_its_record_says_so(data: Path) -> None:
    def recipe(**trainer: Any) -> dict[str, Any]:
        return {"name": "r", "trainer": {"lr": 1, "steps": 2, "val_every": 2, **trainer}}

    trained(opened(data, recipe()), 2)
    longer = recipe(steps=5, val_every=1, save_every=3, keep_checkpoints=4, loggers=["wandb"])
    folder = opened(data, longer, resume=True, steps=5)
    assert yaml.safe_load((folder.path / "recipe.yaml").read_text()) == longer
    assert manifest_of(folder)["attempts"][-1]["changes"] == {
        "trainer.steps": [2, 5],
        "trainer.val_every": [2, 1],
        "trainer.save_every": [None, 3],
        "trainer.keep_checkpoints": [None, 4],
        "trainer.loggers": [None, ["wandb"]],
    }
    trained(folder, 4)
    with pytest.raises(
        UsageError, match=r"has trained 4 steps, more than the 2 of this recipe \(trainer\.steps"
    ):
        opened(data, recipe(), resume=True, steps=2)


def test_a_changed_recipe_or_changed_data_is_not_resumed(data: Path) -> None:
    trained(opened(data), 1)
    with pytest.raises(UsageError, match=r"with this one, because .* Changed: trainer\.lr\. Undo"):
        opened(data, {"name": "r", "trainer": {"lr": 2}}, resume=True)
    data.write_bytes(b"other rows")
    with pytest.raises(UsageError, match=rf"its data changed since it began: {data}\. Restore"):
        opened(data, resume=True)
    assert not is_in_use(data.parent / "run"), "what was refused locks nothing"
    (data.parent / "run" / "manifest.json").write_text(
        '{"attempts": []}'
    )  # there is nothing to compare the data with
    opened(data, resume=True).close()


@pytest.mark.parametrize(
    "key",
    [
        *("cluster.launcher", "cluster.slurm", "trainer.max_restarts", "trainer.stall_timeout"),
        *("store.keep", "store.redact", "store.max_gb", "store.otlp"),
    ],
)
def test_where_a_run_runs_and_what_it_keeps_may_change(tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "r", section: {name: 1}}))
    refuse_changes(tmp_path, {"name": "r", section: {name: 2}}, {})
    with pytest.raises(UsageError, match=f"Changed: {key}"):
        refuse_changes(tmp_path, {"name": "r", section: {name: 2}}, {}, free=())
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "r", section: {f"{name}_more": 1}}))
    with pytest.raises(UsageError, match=f"Changed: {key}_more"):
        refuse_changes(tmp_path, {"name": "r", section: {f"{name}_more": 2}}, {})


# The lock


def test_two_processes_do_not_share_a_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = opened(data)
    run = held.path
    assert is_in_use(run)
    with pytest.raises(UsageError, match=f"`aworld-train runs attach {run}`"):
        check_run_folder(run, resume=False)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(
        UsageError, match=rf"The run in {run} is running: process {os.getpid()} on .*, since 20\d\d-"
    ):
        lock_folder(run)
    assert len(pauses) == 5
    held.close()
    assert not is_in_use(run)


def test_a_lock_that_is_held_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = (tmp_path / "run.lock").open("a")
    fcntl.flock(looking, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _: looking.close())
    with lock_folder(tmp_path):
        assert looking.closed and is_in_use(tmp_path)


def test_the_lock_says_which_process_works_on_the_run_or_did_last(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None and not is_in_use(tmp_path)
    (tmp_path / "run.lock").write_text("what an earlier process wrote, which was longer than this one's" * 9)
    assert holder_of(tmp_path) is None
    before_identities = {"pid": os.getpid(), "started": psutil.Process().create_time(), "host": "h"}
    (tmp_path / "run.lock").write_text(json.dumps(before_identities))
    assert holder_of(tmp_path) is None
    lock = lock_folder(tmp_path)
    holder = holder_of(tmp_path)
    assert holder is not None
    assert (holder.process.pid, holder.host) == (os.getpid(), platform.node())
    assert holder_of(tmp_path) == holder and is_in_use(tmp_path)
    lock.close()
    assert holder_of(tmp_path) == holder and not is_in_use(tmp_path)


def test_files_are_known_by_their_hash_and_name(data: Path) -> None:
    assert file_hashes([data, str(data)]) == {str(data): hashlib.sha256(b"rows").hexdigest()}
