"""Environment directories: found by name or path, understood or refused."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.env.directory import find_directory, known_directories
from aworld_train.errors import UsageError
from aworld_train.serving.manifest import ProbeCall, ServerEntry

ONE = "{name: a, servers: {s: {command: [run]}}}"


def make(path: Path, manifest: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "servers.yaml").write_text(manifest)
    return path


def test_the_calculator_is_found_by_name_and_says_how_it_is_proved() -> None:
    directory = find_directory("calculator-mcp-server")
    assert (directory.path / "server.py").is_file()
    assert directory.manifest.servers["calculator"].test == ProbeCall(
        "calculator", {"expression": "6 * 7"}, expect="42"
    )
    assert directory.name in [one.name for one in known_directories()]


def test_a_directory_is_found_by_path_and_what_it_does_not_say_is_the_default(tmp_path: Path) -> None:
    path = make(tmp_path / "mine", "{name: tools, servers: {s: {command: [run, it]}}}")
    directory = find_directory(path)
    assert (directory.path, directory.name) == (path, "tools")
    assert directory.manifest.servers == {"s": ServerEntry(command=("run", "it"))}
    assert (directory.manifest.sessions_per_worker, directory.manifest.desktop) == (1, False)


def test_all_that_a_server_can_say_is_understood(tmp_path: Path) -> None:
    content = """
name: tools
sessions_per_worker: 3
servers:
  s:
    function: s:run
    keys: [KEY]
    optional_keys: [OTHER]
    timeout: 5
    test: {tool: t, arguments: {x: [1]}, expect: "1"}
"""
    manifest = find_directory(make(tmp_path / "mine", content)).manifest
    assert manifest.sessions_per_worker == 3
    call = ProbeCall("t", {"x": [1]}, "1")
    assert manifest.servers == {
        "s": ServerEntry(function="s:run", keys=("KEY",), optional_keys=("OTHER",), timeout=5.0, test=call)
    }


def test_an_unknown_name_is_answered_with_the_nearest_and_all_of_them() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'calculator-mcp-server'\? Known names: "):
        find_directory("calculator-mcp-sever")


def test_a_directory_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no servers\.yaml"):
        find_directory(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ("{name: a, servers: {s: {command: [x]}}, sesions_per_worker: 2}", "mean 'sessions_per_worker'"),
        (
            "{name: a, servers: {s: {comand: [x]}}}",
            r"unknown key 'servers\.s\.comand'. Did you mean 'command'",
        ),
        ("{name: a, servers: {s: {command: [x], test: {tol: x}}}}", "Did you mean 'tool'"),
        ("{name: a, servers: {test: {comand: [x]}}}", "Did you mean 'command'"),
        (
            "{name: a, servers: {s: {command: [x], keys: [A_B]}}, shared_keys: {L: {nmaes: [B], used_by: [A]}}}",
            r"unknown key 'shared_keys\.L\.nmaes'. Did you mean 'names'",
        ),
        (
            "{name: a, servers: {s: {command: [x], nothing_like_it: 1}}}",
            r"unknown key 'servers\.s\.nothing_like_it'\.",
        ),
        ("{nmae: a, servers: {s: {command: [x]}}}", "unknown key 'nmae'. Did you mean 'name'"),
        ("{servers: {s: {command: [x]}}}", "name"),
        ("{name: a}", "servers"),
        ("{name: a, servers: {}}", "at least one tool server"),
        ("{name: a, servers: {s: {}}}", r"servers\.s: .*either a command or a function"),
        ("{name: a, servers: {s: {command: [x], function: 'y:z'}}}", "either a command or a function"),
        ("{name: a, servers: {s: {function: y}}}", "it has to be module:name"),
        ("{name: a, servers: {s: {command: run}}}", r"servers\.s\.command"),
        ("{name: a, servers: {s: {command: [x], timeout: soon}}}", r"servers\.s\.timeout"),
        ("{name: a, servers: {s: {command: [x], timeout: 0}}}", "timeout has to be more than 0"),
        ("{name: a, servers: {s: {command: [x]}}, sessions_per_worker: 0}", "at least 1"),
        ("{name: a, servers: {'a,b': {command: [x]}}}", "'a,b' cannot be the name of a server"),
        ("{name: a, servers: {' ': {command: [x]}}}", "' ' cannot be the name of a server"),
        ("{name: a, servers: {s: {command: [x], test: {}}}}", r"servers\.s\.test\.tool"),
        (
            "{name: a, servers: {s: {command: [x], test: {tool: t, environment: {K: v}}}}}",
            "test.environment has K, which is not among its keys",
        ),
        ("{name: a, servers: {s: {command: [x], test: {tool: t, site: ../b}}}}", "a folder of the directory"),
        (
            "{name: a, servers: {s: {command: [x], test: {tool: t, arguments: {u: '{site}/a'}}}}}",
            "the test names none",
        ),
        ("name: [", "cannot be used"),
        ("- a", "cannot be used"),
        ("", "cannot be used"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_file_and_reason(
    tmp_path: Path, manifest: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        find_directory(make(tmp_path / "mine", manifest))
    assert str(tmp_path / "mine" / "servers.yaml") in refused.value.message


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_like = st.recursive(
    scalars,
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(scalars, inside, max_size=2),
    max_leaves=5,
)
key_names = st.sampled_from(
    ["name", "servers", "command", "function", "test", "tool", "timeout", "keys", "expect", "s"]
)
nearly = st.recursive(
    json_like, lambda inside: st.dictionaries(key_names | scalars, inside, max_size=4), max_leaves=12
)


@given(nearly)
def test_whatever_a_manifest_says_is_understood_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    path = make(tmp_path_factory.getbasetemp() / "any", yaml.safe_dump(content))
    try:
        assert find_directory(path).manifest.servers
    except UsageError as refused:
        assert "servers.yaml cannot be used: " in refused.message


def test_the_digest_changes_with_a_file_and_not_with_what_programs_leave(tmp_path: Path) -> None:
    directory = find_directory(make(tmp_path / "mine", ONE))
    before = directory.digest()
    for cache_folder in ("__pycache__", ".mypy_cache"):
        (directory.path / cache_folder).mkdir()
        (directory.path / cache_folder / "file").write_text("x")
    assert directory.digest() == before
    (directory.path / "server.py").write_text("x")
    assert directory.digest() != before
