"""``model tiny`` around the training: what it refuses, when it does nothing, and that it never leaves half a model."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from aworld_train.cli.model import app
from aworld_train.errors import ModelError, UsageError
from aworld_train.model import storage, tiny

SEED = tiny.SHIPPED_SEED + 2
"""Of a model that does not come with the package."""


def pretend(out: Path, seed: int = SEED) -> None:
    """A directory that looks as if an earlier build had made it from the generated data."""
    report = {
        "seed": seed,
        "accuracy": 0.4,
        "tool_use": 0.4,
        "mixed_groups": 0.8,
        "sampled_accuracy": 0.4,
        "sampled_tool_use": 0.4,
        "val_tasks": 256,
        "parameters": 1,
        "vocab_size": 1,
        "prompt_tokens": 1,
        "episode_tokens": 1,
        "attempts": 1,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "fingerprint": tiny.fingerprint(seed),
        "history": [],
    }
    out.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (out / name).touch()
    storage.write_marker(out, {"version": "0", "report": report})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def no_training(*_: Any) -> Any:
    raise AssertionError("it trained")


def test_the_model_that_comes_with_the_package_is_copied_whole_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "_make", no_training)
    report = tiny.build(tmp_path / "m")
    assert report.shipped and not report.reused
    assert contents(tmp_path / "m") == contents(tiny.SHIPPED)
    (tmp_path / "m" / "notes.txt").touch()
    assert tiny.build(tmp_path / "m").reused
    (tmp_path / "m" / "model.safetensors").unlink()
    assert not tiny.build(tmp_path / "m").reused
    assert contents(tmp_path / "m") == contents(tiny.SHIPPED)


@pytest.mark.parametrize("options", [{"anew": True}, {"seed": SEED}], ids=str)
def test_any_other_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(tiny, "_make", no_training)
    tiny.build(tmp_path / "m")
    with pytest.raises(AssertionError, match="it trained"):
        tiny.build(tmp_path / "m", **options)


def test_the_same_model_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "_make", no_training)
    pretend(tmp_path / "m")
    before = contents(tmp_path)
    report = tiny.build(tmp_path / "m", seed=SEED)
    assert report.reused
    assert report.accuracy == 0.4
    assert contents(tmp_path) == before


@pytest.mark.parametrize("change", ["another seed", "a file is gone", "another val file"])
def test_another_seed_other_data_or_a_damaged_directory_make_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(tiny, "_make", no_training)
    pretend(tmp_path / "m")
    seed, val = SEED, None
    if change == "another seed":
        seed = SEED + 1
    elif change == "a file is gone":
        (tmp_path / "m" / "model.safetensors").unlink()
    else:
        from aworld_train import dataset

        dataset.build("arithmetic", tmp_path / "d", limit=400, splits={"val": 1.0})
        val = tmp_path / "d" / "val.parquet"
    with pytest.raises(AssertionError, match="it trained"):
        tiny.build(tmp_path / "m", seed=seed, val=val)


def test_what_misses_the_gate_is_not_written_and_the_error_says_what_was_measured(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"greedy accuracy 0\.3-0\.52.* in 1 attempts .*nothing yet"):
        tiny.build(tmp_path / "models" / "m", anew=True, max_cpu_seconds=0.0)
    assert contents(tmp_path) == {}


def test_a_failed_build_leaves_the_earlier_model_as_it_was(tmp_path: Path) -> None:
    pretend(tmp_path / "m", seed=1)
    before = contents(tmp_path)
    with pytest.raises(ModelError):
        tiny.build(tmp_path / "m", seed=SEED, max_cpu_seconds=0.0)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["notes.txt", "tiny.json", "config.json"])
def test_a_directory_that_is_no_tiny_model_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tiny, "_make", no_training)
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="other than a tiny model; name"):
        tiny.build(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(UsageError, match="cannot be used as a directory"):
        tiny.build(tmp_path / "m")


def test_a_missing_dataset_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.parquet is not a file"):
        tiny.build(tmp_path / "m", val=tmp_path / "gone.parquet")


def test_replacing_takes_the_place_of_an_earlier_model_whole(tmp_path: Path) -> None:
    pretend(tmp_path / "m")
    with storage.replacing(tmp_path / "m") as folder:
        (folder / "new").write_text("new")
    assert contents(tmp_path) == {"m/new": b"new"}


def test_replacing_changes_nothing_when_the_block_fails(tmp_path: Path) -> None:
    pretend(tmp_path / "m")
    before = contents(tmp_path)
    with pytest.raises(RuntimeError), storage.replacing(tmp_path / "m") as folder:
        (folder / "new").write_text("new")
        raise RuntimeError
    assert contents(tmp_path) == before


def test_replacing_refuses_what_appeared_in_the_meantime(tmp_path: Path) -> None:
    with pytest.raises(UsageError), storage.replacing(tmp_path / "m"):
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "notes.txt").write_text("mine")
    assert contents(tmp_path) == {"m/notes.txt": b"mine"}


def test_the_command_reports_an_unchanged_model_as_one_json_object(tmp_path: Path) -> None:
    pretend(tmp_path / "m")
    command = ["tiny", "--out", str(tmp_path / "m"), "--seed", str(SEED)]
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["reused"] is True
    assert report["out"] == str(tmp_path / "m")
    assert "already" in done.stderr


def test_the_command_shows_a_table_without_json(tmp_path: Path) -> None:
    pretend(tmp_path / "m")
    done = CliRunner().invoke(
        app, ["tiny", "--out", str(tmp_path / "m"), "--seed", str(SEED)], catch_exceptions=False
    )
    assert "0.400" in done.stdout
    assert "groups of 8" in done.stdout


def test_the_help_shows_an_example() -> None:
    done = CliRunner().invoke(app, ["tiny", "--help"], catch_exceptions=False)
    assert "aworld-train model tiny --out models/tiny" in done.stdout
