"""The check of gaia-mcp-server's tools: it fails for the servers whose main path is dead, and for no other."""

from pathlib import Path

import pytest

from aworld_train.env import down, up
from aworld_train.env.directory import find_directory
from aworld_train.env.health import examine

pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")
DOCUMENTS = "documents-docx-server", "documents-pptx-server", "documents-pdf-server"


@pytest.mark.timeout(600)
def test_servers_without_their_packages_fail_the_check_and_the_others_pass(
    state: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = find_directory("gaia-mcp-server")
    servers = (*DOCUMENTS, "documents-txt-server", "documents-zip-server", "readweb-server", "wiki-server")
    up("gaia-mcp-server", name="gaia-probe", backend="process", servers=servers, workers=1)
    down("gaia-probe")
    for package in ("mammoth", "pptx", "pypdfium2", "trafilatura"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('broken')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("aworld_train.env.lifecycle.check_servers", lambda *_: None)
    connection = up("gaia-mcp-server", name="gaia-probe", backend="process", servers=servers, workers=1)
    try:
        calls = {name: directory.manifest.servers[name].test for name in servers}
        check = examine(connection.mcp_url, connection.token, calls, 60)
    finally:
        down("gaia-probe")
    failed = {one.server for one in check.servers if one.problem}
    assert failed == {*DOCUMENTS, "readweb-server"}
