"""What a start of VeRL keeps from other users is in folders and files of its own user alone."""

import os
from pathlib import Path

import pytest

from aworld_train.adapter.verl.private_folder import PrivateFolder


@pytest.fixture
def folder(tmp_path: Path) -> PrivateFolder:
    return PrivateFolder(tmp_path / "private")


def test_folders_and_secrets_are_their_owner_s_alone_whatever_its_mask(folder: PrivateFolder) -> None:
    mask = os.umask(0)
    try:
        folder.fill()
    finally:
        os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder.path, *folder.path.iterdir())}
    folders, files = ("private", "ray", "rendezvous", "tmp"), ("token", "queue-key")
    assert modes == {**dict.fromkeys(folders, 0o700), **dict.fromkeys(files, 0o600)}
    assert [path.name for path in (folder.ray, folder.rendezvous, folder.scratch)] == [
        "ray",
        "rendezvous",
        "tmp",
    ]
    assert folder.fork_server == folder.path / "forks"


def test_secrets_are_new_each_time_and_those_of_another_machine_replace_them(folder: PrivateFolder) -> None:
    seen = set()
    for _ in range(2):
        folder.fill()
        seen |= set(folder.secrets().values())
    assert len(seen) == 4 and {len(secret) for secret in seen} == {64}
    folder.receive({"token": "short", "queue-key": "other"})
    assert folder.secrets() == {"token": "short", "queue-key": "other"}


def test_a_secret_is_not_written_through_a_link(folder: PrivateFolder, tmp_path: Path) -> None:
    folder.fill()
    folder.token.unlink()
    folder.token.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        folder.fill()
    assert not (tmp_path / "elsewhere").exists()
