"""A folder of attachments is taken where tools can read all of it, and refused with what to do where they cannot."""

import os
from pathlib import Path

import pytest

from aworld_train import env
from aworld_train import recipe as recipes
from aworld_train.env.attachments import find_data, identity
from aworld_train.env.connection import EnvConnection
from aworld_train.errors import UsageError
from aworld_train.training.environment import run_environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "data" / "validation"
    inner.mkdir(parents=True)
    (inner / "sheet.xlsx").write_bytes(b"x")
    return tmp_path / "data"


@pytest.mark.parametrize("for_containers", [True, False])
def test_a_folder_is_found_wherever_it_is_named_from(
    folder: Path, for_containers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "same.xlsx").symlink_to("validation/sheet.xlsx")
    monkeypatch.chdir(folder.parent)
    assert find_data(Path("data"), for_containers) == folder
    assert find_data(None, for_containers) is None
    monkeypatch.setenv("HOME", str(folder.parent))
    assert find_data(Path("~/data"), for_containers) == folder


def test_what_is_no_folder_is_refused_with_where_tools_would_read_it(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere \(--data\) does not exist.*at /attachments"):
        find_data(folder / "nowhere", for_containers=True)
    with pytest.raises(UsageError, match=r"sheet.xlsx \(--data\) is not a folder.*ATTACHMENTS"):
        find_data(folder / "validation" / "sheet.xlsx", for_containers=False)


@pytest.mark.parametrize("target", ["../../outside.txt", "/etc/passwd"])
def test_a_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "outside.txt").write_text("x")
    (folder / "validation" / "link").symlink_to(target)
    with pytest.raises(UsageError, match=r"link \(--data\) is a link to .*`cp -rL"):
        find_data(folder, for_containers=False)


def test_what_is_closed_to_others_is_refused_for_containers_alone(folder: Path) -> None:
    (folder / "validation" / "sheet.xlsx").chmod(0o600)
    with pytest.raises(UsageError, match=r"sheet.xlsx \(--data\) is closed to other users.*chmod -R o\+rX"):
        find_data(folder, for_containers=True)
    assert find_data(folder, for_containers=False) == folder
    folder.chmod(0o700)
    with pytest.raises(UsageError, match=rf"{folder} \(--data\) is closed"):
        find_data(folder, for_containers=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_at_all_is_refused(folder: Path) -> None:
    (folder / "validation").chmod(0)
    try:
        with pytest.raises(UsageError, match="cannot be read"):
            find_data(folder, for_containers=False)
    finally:
        (folder / "validation").chmod(0o755)


def test_a_folder_in_the_place_of_another_is_another(folder: Path) -> None:
    before = identity(folder)
    (folder / "more.txt").write_text("x")
    assert identity(folder) == before
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    assert identity(folder) != before
    assert identity(None) == []


def test_a_recipe_gives_its_folder_to_the_environment_that_it_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[env.EnvSettings] = []

    def started(docker_dir: str, settings: env.EnvSettings, **_: object) -> EnvConnection:
        used.append(settings)
        return EnvConnection("x", "", 1, "", "http://127.0.0.1:1/mcp", None, None, 1, "process", "", "")

    monkeypatch.setattr(env, "up", started)
    monkeypatch.setattr(env, "down", lambda name: True)
    recipe = {"env": {"docker_dir": "gaia-mcp-server", "data": str(folder)}}
    with run_environment(recipes.load(recipe)):
        assert used[0].data == folder
