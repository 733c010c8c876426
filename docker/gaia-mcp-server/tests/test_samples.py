"""The environment's check: each server's test call goes through the main path, and fails where that is broken."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CallToolRequest, CallToolResult, ClientRequest

from gaia_tools import samples
from tests.conftest import text
from tests.test_manifest import SERVERS, server_of

PROGRAMS = {
    "media-audio-server": "ffmpeg",
    "media-image-server": "tesseract",
    "media-video-server": "ffmpeg",
    "browseruse-server": "chromium",
}
"""Servers whose tests need a program."""
MODULES = {
    "documents-docx-server": "mammoth",
    "documents-pptx-server": "pptx",
    "documents-pdf-server": "pypdfium2",
    "documents-html-server": "bs4",
    "documents-epub-server": "bs4",
    "readweb-server": "trafilatura",
    "wiki-server": "bs4",
    "wayback-server": "trafilatura",
    "parxiv-server": "defusedxml",
}
"""Servers whose tests need a package."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers are on; where their services are, nothing answers."""
    for entry in SERVERS.values():
        for key in entry.get("keys", []):
            monkeypatch.setenv(key, "http://nowhere.invalid/v1" if key.endswith("_URL") else "a-key")


async def probed(name: str) -> CallToolResult:
    """The result of a server's test call, marked as the environment marks it."""
    call = SERVERS[name]["test"]
    params = {"name": call["tool"], "arguments": call["arguments"], "_meta": {samples.MARK: True}}
    request = ClientRequest(CallToolRequest.model_validate({"method": "tools/call", "params": params}))
    samples._runner.cache_clear()  # of another test's event loop
    async with create_connected_server_and_client_session(server_of(name)._mcp_server) as session:
        return await session.send_request(request, CallToolResult)


@pytest.mark.parametrize("name", SERVERS)
async def test_the_test_call_gives_what_is_expected_without_the_internet(name: str) -> None:
    if (program := PROGRAMS.get(name)) and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    result = await probed(name)
    assert not result.isError, text(result)
    assert SERVERS[name]["test"]["expect"] in text(result)


@pytest.mark.parametrize("name", MODULES)
async def test_the_test_call_fails_without_its_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = MODULES[name]
    for module in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    result = await probed(name)
    assert result.isError
    assert not re.search(r"ModuleNotFoundError|pip install|Traceback", text(result))


@pytest.mark.parametrize("name", PROGRAMS)
async def test_the_test_call_fails_without_its_program(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (await probed(name)).isError
