"""A desktop client's file of servers as an environment directory: what it becomes, and what is in no file of it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from aworld_train.env.client_servers import read_client_servers
from aworld_train.env.directory import find_directory
from aworld_train.errors import UsageError

SECRET = "sk-in-no-file-39"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("A_KEY", SECRET)
    monkeypatch.delenv("NO_KEY", raising=False)


def server(**entry: Any) -> dict[str, Any]:
    return {"mcpServers": {"My Server": entry}}


@pytest.mark.parametrize(
    ("command", "packages", "end"),
    [
        ("npx -y @a/server-x /data", {"npm": "@a/server-x", "program": ""}, ["/data"]),
        ("npx server@1.2 -v", {"npm": "server@1.2", "program": ""}, ["-v"]),
        ("npx --package=@a/x run it", {"npm": "@a/x", "program": "run"}, ["it"]),
        ("cmd /c npx -y server", {"npm": "server", "program": ""}, []),
        ("uvx mcp-time@latest --tz UTC", {"python": ["mcp-time"], "program": "mcp-time"}, ["--tz", "UTC"]),
        ("uvx mcp-time@1.2", {"python": ["mcp-time==1.2"], "program": "mcp-time"}, []),
        ("/usr/bin/uvx --with mcp<2 s", {"python": ["s", "mcp<2"], "program": "s"}, []),
        ("uvx --from git+https://h/r run", {"python": ["git+https://h/r"], "program": "run"}, []),
    ],
)
def test_packages_of_npx_and_uvx_are_named_to_be_locked(command: str, packages: Any, end: list[str]) -> None:
    program, *arguments = command.split()
    servers = read_client_servers(server(command=program, args=arguments))
    assert json.loads(servers.files["packages.json"]) == {"my-server": packages}
    assert "Dockerfile" in servers.files and not servers.remarks
    entry = find_directory(server(command=program, args=arguments)).manifest.servers["My Server"]
    assert entry.command == ("{here}/.packages/bin/my-server", *end)


def test_values_are_given_to_the_servers_and_stand_in_no_file(tmp_path: Path) -> None:
    both = {
        "one": {
            "command": "run",
            "env": {"KEY": "${A_KEY}", "URL": f"db://u:{SECRET}@h", "X": "${env:NO_KEY}"},
        },
        "two": {"command": "run", "env": {"URL": "db://${A_KEY}@other"}},
        "far": {"url": "https://h.example/mcp", "headers": {"Authorization": "Bearer ${A_KEY}"}},
        "asking": {"url": f"https://h.example/sse?key={SECRET}", "type": "sse"},
    }
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": both}))
    directory = find_directory(file)
    written = [path for path in directory.path.rglob("*") if path.is_file()]
    assert SECRET not in repr(directory) + "".join(path.read_text() for path in written)
    servers = directory.manifest.servers
    own = {name: entry.own_variables(directory.values) for name, entry in servers.items()}
    assert (own["one"]["KEY"], own["one"]["URL"], own["two"]["URL"]) == (
        SECRET,
        f"db://u:{SECRET}@h",
        f"db://{SECRET}@other",
    )
    assert own["far"]["MCP_HEADER_Authorization"] == f"Bearer {SECRET}"
    assert own["asking"]["MCP_URL"] == f"https://h.example/sse?key={SECRET}"
    assert servers["far"].egress_hosts == ("h.example:443",) and servers["asking"].egress_hosts == (
        "$ASKING_URL",
    )
    assert [entry.command[-1] for entry in (servers["far"], servers["asking"])] == ["http", "sse"]
    assert directory.manifest.missing_keys(directory.values) == {"one": ["NO_KEY"]}


def test_a_program_of_the_machine_has_no_image_and_what_is_not_used_is_named() -> None:
    servers = read_client_servers(
        server(command="python3", args=["/home/me/s.py"], cwd="/x", executes_code=False)
    )
    assert "Dockerfile" not in servers.files
    assert [remark.partition(": ")[2] for remark in servers.remarks] == [
        "My Server: cwd is not used.",
        "My Server runs python3, a program of this machine: it needs --backend process, or a folder with a Dockerfile "
        "that has it.",
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (f"--api-key {SECRET}", ["--api-key"]),
        (f"--token={SECRET} --max-tokens 9", ["--token"]),
        (f"-e NOTES_API_KEY={SECRET}", ["NOTES_API_KEY"]),
        (f"postgres://me:{SECRET}@db/notes --all", ["number 2"]),
        (f"--header 'Authorization: Bearer {SECRET}' {SECRET}", ["number 3", "number 4"]),
        ("--token --limit 5 https://h.example/a?b=c user@h", []),
    ],
)
def test_an_argument_that_looks_like_a_secret_is_named_without_its_value(
    arguments: str, named: list[str]
) -> None:
    remarks = read_client_servers(server(command="npx", args=["p", *shlex.split(arguments)])).remarks
    assert [remark.partition(" looks like a secret")[0] for remark in remarks] == [
        f"mcp_servers: My Server: the argument {name}" for name in named
    ]
    assert SECRET not in "".join(remarks)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "names no servers"),
        ({"mcpServers": {"a": []}}, "a has to be an object"),
        ({"mcpServers": {"a": {"command": "x", "disabled": True}}}, "no server that is not disabled"),
        (server(), "needs `command`"),
        (server(command="docker", args=["run", "-i", "image"]), "tools have no Docker engine"),
        (server(command="npx", args=["-y"]), "names no package for npx"),
        (
            server(command="uvx", args=["--python", "3.13", "s"]),
            "has --python for uvx, which is not supported",
        ),
        (server(url="ftp://h"), "which is not one of HTTP"),
        (server(command="x", env=["A=b"]), "`env` that is not an object"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(content: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_client_servers(content)


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UsageError, match=r"a\.json cannot be read as JSON"):
        find_directory(tmp_path / "a.json")
