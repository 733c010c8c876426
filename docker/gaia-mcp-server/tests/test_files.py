"""Files are read in the workspace and among the attachments, and written in the workspace; nowhere else."""

import os
from pathlib import Path

import pytest
from gaia_tools.files import SAMPLES, readable, writable
from mcp.server.fastmcp.exceptions import ToolError


def test_names_are_found_in_both_places(workspace: Path, attachments: Path) -> None:
    (workspace / "a.txt").write_text("a")
    (attachments / "b.txt").write_text("b")
    assert readable("a.txt") == readable(str(workspace / "a.txt")) == workspace / "a.txt"
    assert readable(str(attachments / "b.txt")) == attachments / "b.txt"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../../etc/passwd", "link", "folder/../../x", "\0", "x" * 5000]
)
def test_what_leads_elsewhere_is_refused(workspace: Path, name: str) -> None:
    (workspace / "link").symlink_to("/etc/passwd")
    for check in (readable, writable):
        with pytest.raises(ToolError):
            check(name)


def test_a_missing_file_names_those_that_are_there(workspace: Path, attachments: Path) -> None:
    (workspace / "notes").mkdir()
    (workspace / "notes" / "a.txt").write_text("a")
    (attachments / "b.txt").write_text("b")
    with pytest.raises(
        ToolError, match=f"There is no file c.txt. There is: notes/a.txt, {attachments}/b.txt"
    ):
        readable("c.txt")


def test_the_samples_can_be_read_and_are_named_to_nobody(workspace: Path, attachments: Path) -> None:
    assert readable(str(SAMPLES / "note.txt")) == SAMPLES / "note.txt"
    with pytest.raises(ToolError, match="is outside"):
        writable(str(SAMPLES / "new.txt"))
    for name in ("missing.txt", "/etc/passwd", str(SAMPLES / "missing.txt")):
        with pytest.raises(ToolError) as refusal:
            readable(name)
        assert str(SAMPLES) not in str(refusal.value).replace(name, "")


def test_empty_large_and_special_files_are_refused(workspace: Path) -> None:
    (workspace / "empty").touch()
    os.mkfifo(workspace / "pipe")
    with (workspace / "large").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(ToolError, match="0 bytes"):
        readable("empty")
    with pytest.raises(ToolError, match="no file pipe"):
        readable("pipe")
    with pytest.raises(ToolError, match="2048 MB"):
        readable("large")


def test_attachments_are_not_written_and_nothing_is_overwritten_unasked(
    workspace: Path, attachments: Path
) -> None:
    with pytest.raises(ToolError, match="can be written"):
        writable(str(attachments / "new.txt"))
    assert writable("deep/er/new.txt") == workspace / "deep" / "er" / "new.txt"
    (workspace / "old").touch()
    with pytest.raises(ToolError, match="already"):
        writable("old")
    assert writable("old", overwrite=True) == workspace / "old"
