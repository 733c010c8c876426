"""Files that nobody here made are read as others read them."""

import hashlib
import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.memory import create_connected_server_and_client_session as connect
from mcp.types import CallToolResult

from tests.conftest import needs, text
from tests.strangers import packages
from tests.strangers.files import FILES, PART, TRY_ALL, Stranger
from tests.strangers.packages import Package, UnreachableError
from tests.strangers.table import VARIABLE, table
from tests.test_manifest import SERVERS, server_of

_MAX_PARTS = 40
_NEXT = {"next_start": "start", "next_pages": "pages", "next_start_row": "start_row"}


@pytest.mark.parametrize("stranger", FILES[:: 1 if TRY_ALL in os.environ else PART], ids=lambda one: one.name)
async def test_a_file_from_elsewhere_is_read_as_others_read_it(stranger: Stranger, workspace: Path) -> None:
    for program in sorted(stranger.needs):
        needs(program)
    try:
        path = stranger.package.copy(stranger.member, workspace)
    except UnreachableError as error:
        if os.environ.get("GAIA_TOOLS_TESTS_NEED_ALL"):
            raise
        pytest.skip(str(error))
    began = time.monotonic()
    found = await _read(stranger, path)
    seconds = time.monotonic() - began
    difference = stranger.check.difference(found, path)
    _record(stranger, seconds, not difference)
    assert not difference, difference


async def _read(stranger: Stranger, path: Path) -> dict[str, Any]:
    """All that a result says, its later parts put behind the first."""
    server = server_of(stranger.server)
    (parameters,) = [
        one.inputSchema["properties"] for one in await server.list_tools() if one.name == stranger.tool
    ]
    places = {one: path.name for one in ("file_path", "video_path") if one in parameters}
    texts = {
        one: value.format(name=path.name)
        for one, value in stranger.arguments.items()
        if isinstance(value, str)
    }
    arguments = {**places, **stranger.arguments, **texts}
    if "output_format" in parameters:
        arguments["output_format"] = "json"
    async with connect(server._mcp_server) as session:
        found: dict[str, Any] = {}
        for _ in range(_MAX_PARTS):
            result = await session.call_tool(stranger.tool, arguments)
            if stranger.check.refuses:
                assert result.isError, text(result)
                return {"message": text(result)}
            assert not result.isError, text(result)
            part = _facts(result)
            found = _joined(found, part)
            following = [(_NEXT[name], part[name]) for name in _NEXT if part.get(name)]
            if not following or not stranger.whole:
                return found
            arguments |= dict(following)
    raise AssertionError(f"{path.name} has more than {_MAX_PARTS} parts")


def _facts(result: CallToolResult) -> dict[str, Any]:
    shown = text(result)
    found = result.structuredContent or json.loads(shown)
    return found if "content" in found or "text" in found else {**found, "content": shown}


def _joined(before: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A result and its next part as one, without the notes on what follows."""
    content = part.get("content")
    if isinstance(content, str) and part.get("next_start"):
        content = content.rpartition("\n[... ")[0]
    if before and isinstance(content, str):
        content = before["content"] + ("\n\n" if "pages" in part else "") + content
    elif before:
        content = before["content"] + content
    return {**part, "content": content} if content is not None else part


def _record(stranger: Stranger, seconds: float, agrees: bool) -> None:
    if VARIABLE in os.environ:
        line = {"name": stranger.name, "seconds": round(seconds, 3), "agrees": agrees}
        with Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def test_the_readme_counts_what_agrees_by_kind() -> None:
    pages = [one for one in FILES if one.kind in (".epub", ".tsv")]
    results = [{"name": one.name, "seconds": 1.0, "agrees": one.kind == ".epub"} for one in pages]
    rows = table(tuple(pages), results).splitlines()[2:]
    assert [row.split(" | ")[:2] + row.split(" | ")[5:6] for row in rows] == [
        ["| .tsv", "2", "0 of 2"],
        ["| .epub", "1", "1 of 1"],
        ["| all", "3", "1 of 3"],
    ]
    assert "| `extract_epub_content` |" in rows[1] and "| debian-policy |" in rows[1]


def test_a_package_is_fetched_once_and_refused_with_another_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "made-1.tar.gz", tmp_path / "to"
    target.mkdir()
    (tmp_path / "member").write_text("within")
    with tarfile.open(source, "w:gz") as file:
        file.add(tmp_path / "member", "made-1/data/member.txt")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(packages._FETCHERS, "pypi", lambda _, folder: Path(shutil.copy(source, folder)))
    with pytest.raises(ValueError, match="not 0000"):
        Package("made", "1", "0000").archive()
    package = Package("made", "1", hashlib.sha256(source.read_bytes()).hexdigest())
    assert package.copy("data/member.txt", target).read_text() == "within"
    source.unlink()
    assert package.copy("data/member.txt", target).read_text() == "within"
    with pytest.raises(KeyError, match=r"other\.txt"):
        package.copy("other.txt", target)


def test_all_tools_of_the_table_are_there() -> None:
    assert {one.server for one in FILES} <= set(SERVERS)
    assert len({one.name for one in FILES}) == len(FILES) >= 60
