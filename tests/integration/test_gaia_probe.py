"""The check of gaia-mcp-server's tools: it fails for the servers whose main path is dead, and for no other."""

import shutil
from pathlib import Path

import pytest

from aworld_train.env import down, up
from aworld_train.env.directory import find_directory
from aworld_train.env.health import examine

pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")
BROKEN = {
    "documents-docx-server": "mammoth",
    "documents-pptx-server": "pptx",
    "documents-pdf-server": "pypdfium2",
    "readweb-server": "trafilatura",
}
"""Servers, and the package that each cannot do without."""
WHOLE = ("documents-txt-server", "documents-zip-server", "wiki-server")


@pytest.mark.timeout(600)
def test_the_check_fails_for_servers_without_their_packages_alone(
    state: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tools"
    shutil.copytree(find_directory("gaia-mcp-server").path, folder)
    for package in BROKEN.values():
        (folder / f"{package}.py").write_text("raise ImportError('broken')\n")
    servers = (*BROKEN, *WHOLE)
    # `up` would take it down again, since its check fails.
    monkeypatch.setattr("aworld_train.env.lifecycle.check_servers", lambda *_: None)
    connection = up(folder, name="gaia-probe", backend="process", servers=servers, workers=1)
    try:
        entries = find_directory(folder).manifest.servers
        calls = {name: entries[name].test for name in servers}
        check = examine(connection.mcp_url, connection.token, calls, 60)
    finally:
        down("gaia-probe")
    assert {one.server for one in check.servers if one.problem} == set(BROKEN)
