"""Tool servers from npm and PyPI, as desktop clients have them: called, recorded and replayed, on both backends."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train.env import EnvConnection, down, up
from aworld_train.rollout.cassette import open_cassette
from aworld_train.rollout.cassette.recorded import RecordedTools
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import need_docker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NPM = "@modelcontextprotocol/server-"
SERVERS = {
    "memory": {
        "command": "npx",
        "args": ["-y", f"{NPM}memory"],
        "env": {"MEMORY_FILE_PATH": "/tmp/graph.json"},
    },
    "filesystem": {"command": "npx", "args": ["-y", f"{NPM}filesystem", "{workspace}"]},
    "sequential-thinking": {"command": "npx", "args": ["-y", f"{NPM}sequential-thinking"]},
    "everything": {"command": "npx", "args": ["-y", f"{NPM}everything"]},
    "time": {"command": "uvx", "args": ["mcp-server-time"]},
    "fetch": {
        "command": "uvx",
        "args": ["mcp-server-fetch", "--ignore-robots-txt"],
        "egress_hosts": ["pypi.org"],
    },
    "git": {"command": "uvx", "args": ["mcp-server-git"]},
    "sqlite": {
        "command": "uvx",
        "args": ["--with", "mcp<2", "mcp-server-sqlite", "--db-path", "{workspace}/d.db"],
    },
}
THOUGHT = {"thought": "One.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}


@pytest.fixture(scope="module", params=["process", "docker"])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnvConnection]:
    if request.param == "docker":
        need_docker()
    file = tmp_path_factory.mktemp("client") / "registry.json"
    file.write_text(json.dumps({"mcpServers": SERVERS}))
    name = f"registry-{os.getpid()}"
    yield up(file, name=name, backend=request.param, workers=1)
    down(name)


async def test_servers_of_registries_are_called_recorded_and_replayed(
    connection: EnvConnection, tmp_path: Path
) -> None:
    server = ToolServer(connection.mcp_url, {"Authorization": f"Bearer {connection.token}"}, 120.0, 120.0)
    async with ToolSession(server) as tools:
        folder = (await tools.call("list_allowed_directories", {})).text.split()[-1]
    calls = [
        ("create_directory", {"path": f"{folder}/r/.git/objects"}, "created"),
        ("create_directory", {"path": f"{folder}/r/.git/refs"}, "created"),
        ("write_file", {"path": f"{folder}/r/.git/HEAD", "content": "ref: refs/heads/main\n"}, "wrote"),
        ("git_status", {"repo_path": f"{folder}/r"}, "No commits yet"),
        (
            "create_entities",
            {"entities": [{"name": "gull", "entityType": "bird", "observations": []}]},
            "gull",
        ),
        ("read_graph", {}, "gull"),
        ("sequentialthinking", THOUGHT, "thoughtNumber"),
        ("echo", {"message": "seven"}, "seven"),
        ("get_current_time", {"timezone": "UTC"}, "UTC"),
        ("create_table", {"query": "CREATE TABLE birds (name TEXT)"}, "created"),
        ("fetch", {"url": "https://pypi.org/simple/iniconfig/"}, "iniconfig"),
    ]
    for mode, replayed in (("record", 0), ("replay", len(calls))):
        cassette = open_cassette(tmp_path / "calls.jsonl", mode)
        async with RecordedTools(server, cassette) as tools:
            await tools.schemas()
            results = {name: await tools.call(name, arguments) for name, arguments, _ in calls}
        failed = {name: results[name].text for name, _, text in calls if text not in results[name].text}
        assert not failed and tools.replayed == replayed
