"""A manifest: the same after it was written down for a worker, and refused where it makes no sense."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.manifest import Manifest, ProbeCall, ServerEntry, SharedKeys, from_json

names = st.text("abcXYZ_-é ", min_size=1, max_size=8).filter(str.strip)
text_tuples = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3).map(tuple)
keys = st.lists(st.from_regex(r"[A-Z_]{1,4}", fullmatch=True), max_size=3).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=4,
)
functions = st.from_regex(r"[a-z.]{1,9}:[a-z.]{1,9}", fullmatch=True)
calls = st.builds(
    ProbeCall,
    st.text(),
    st.dictionaries(st.text(max_size=3), json_values),
    st.text(),
    site=st.sampled_from(["", "samples/site"]),
)
entries = st.one_of(
    st.builds(
        ServerEntry,
        command=text_tuples,
        keys=keys,
        optional_keys=keys,
        timeout=st.floats(0.1, 1e6),
        egress=st.sampled_from(["none", "listed", "open"]),
        test=st.none() | calls,
    ),
    st.builds(
        ServerEntry,
        function=functions,
        keys=keys,
        optional_keys=keys,
        test=st.none() | calls,
        egress_hosts=st.sampled_from([(), ("pypi.org", ".example.org:443", "10.0.0.0/8")]),
    ),
)
manifests = st.builds(
    Manifest,
    name=names,
    servers=st.dictionaries(names, entries, min_size=1, max_size=3),
    description=st.text(),
    sessions_per_worker=st.integers(1, 9999),
    desktop=st.booleans(),
)


ASKING = {"s": ServerEntry(command=("run",), keys=("A_KEY", "B_KEY"))}


def test_a_worker_reads_the_shared_keys_too() -> None:
    manifest = Manifest("m", ASKING, shared_keys={"ALL": SharedKeys(("KEY",), ("A", "B"))})
    assert from_json(json.loads(json.dumps(asdict(manifest)))) == manifest


@pytest.mark.parametrize(
    ("shared", "reason"),
    [
        ({"ALL": (("KEY",), ("A", "C"))}, "shared_keys.ALL: no server has the key C_KEY"),
        ({"ALL": (("KEY",), ("A",)), "MORE": (("KEY",), ("A",))}, "A uses both ALL and MORE"),
        ({"ALL": ((), ("A",))}, "need names"),
        ({"ALL": (("KEY",), ())}, "need names"),
    ],
)
def test_shared_keys_that_no_server_can_use_are_refused(
    shared: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        Manifest("m", ASKING, shared_keys={name: SharedKeys(*group) for name, group in shared.items()})


@given(manifests)
def test_a_worker_reads_the_manifest_that_was_checked(manifest: Manifest) -> None:
    again = from_json(json.loads(json.dumps(asdict(manifest))))
    assert again == manifest
    assert list(again.servers) == list(manifest.servers)


@given(manifests, st.dictionaries(st.from_regex(r"[A-Z_]{1,2}", fullmatch=True), st.sampled_from(["", "x"])))
def test_a_server_is_off_exactly_if_a_key_of_its_is_missing_or_empty(
    manifest: Manifest, variables: dict[str, str]
) -> None:
    missing = manifest.missing_keys(variables)
    for name, entry in manifest.servers.items():
        assert missing.get(name, []) == [key for key in entry.keys if not variables.get(key)]
        assert manifest.key_names() >= {*entry.keys, *entry.optional_keys}
    assert all(missing.values())


@pytest.mark.parametrize(("command", "function"), [((), ""), (("run",), "server:run")])
def test_a_server_has_a_command_or_a_function_and_not_both(command: tuple[str, ...], function: str) -> None:
    with pytest.raises(ValueError, match="either a command or a function"):
        ServerEntry(command=command, function=function)
