"""``model tiny``: what it refuses, when it does nothing, and that it never leaves half a model."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aworld_train.cli.model import app
from aworld_train.errors import ModelError, UsageError
from aworld_train.model import tiny


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_model_that_comes_with_the_package_is_copied_whole_once(tmp_path: Path) -> None:
    assert not tiny.copy(tmp_path / "m").reused
    assert contents(tmp_path / "m") == contents(tiny.SHIPPED)
    (tmp_path / "m" / "notes.txt").touch()
    assert tiny.copy(tmp_path / "m").reused
    (tmp_path / "m" / "model.safetensors").unlink()
    assert not tiny.copy(tmp_path / "m").reused
    assert contents(tmp_path / "m") == contents(tiny.SHIPPED)


def test_another_tiny_model_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / tiny.MARKER).write_text(json.dumps({"made_by": tiny.MADE_BY, "report": {"seed": 1}}))
    (tmp_path / "m" / "old").touch()
    assert not tiny.copy(tmp_path / "m").reused
    assert contents(tmp_path / "m") == contents(tiny.SHIPPED)


def test_a_copy_that_fails_leaves_the_earlier_model_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    tiny.copy(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    before = contents(tmp_path)
    monkeypatch.setattr(shutil, "copytree", fail)
    with pytest.raises(ModelError, match="No space left on device"):
        tiny.copy(tmp_path / "m")
    assert {name for name in contents(tmp_path) if not name.endswith(".lock")} == set(before)


@pytest.mark.parametrize("name", ["notes.txt", "tiny.json", "config.json"])
def test_a_directory_of_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="other than a tiny model; name"):
        tiny.copy(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(UsageError, match="cannot be used as a directory"):
        tiny.copy(tmp_path / "m")


def test_the_command_reports_an_unchanged_model_as_one_json_object(tmp_path: Path) -> None:
    command = ["tiny", "--out", str(tmp_path / "m"), "--json"]
    CliRunner().invoke(app, command, catch_exceptions=False)
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["reused"] is True
    assert report["out"] == str(tmp_path / "m")
    assert "already" in done.stderr


def test_the_command_shows_a_table_without_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tiny", "--out", str(tmp_path / "m")], catch_exceptions=False)
    assert "groups of 8" in done.stdout


def test_the_help_shows_an_example() -> None:
    done = CliRunner().invoke(app, ["tiny", "--help"], catch_exceptions=False)
    assert "aworld-train model tiny --out models/tiny" in done.stdout
