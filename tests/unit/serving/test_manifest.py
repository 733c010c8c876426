"""A manifest: the same after it was written down for a worker, and refused where it makes no sense."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

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


def entry(**options: Any) -> ServerEntry:
    return ServerEntry(**({"command": ("run",), "keys": ("A",), "optional_keys": ("B",)} | options))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: entry(command=()), "a server needs either a command or a function"),
        (lambda: entry(function="server:run"), "a server needs either a command or a function"),
        (lambda: entry(command=(), function="run"), "function is 'run'; it has to be module:name"),
        (lambda: entry(timeout=0), "timeout has to be more than 0"),
        (
            lambda: entry(egress="none", egress_hosts=("a.org",)),
            "egress_hosts names hosts, and egress is none",
        ),
        (lambda: entry(egress_hosts=("$C",)), "egress_hosts has $C, which is not among its keys"),
        (lambda: entry(egress_hosts=("a b",)), "'a b' is not a host name"),
        (
            lambda: entry(test=ProbeCall("t", environment={"C": "x"})),
            "test.environment has C, which is not among",
        ),
        (lambda: ProbeCall("t", site="/a"), "site is '/a'; it has to be a folder of the directory"),
        (lambda: ProbeCall("t", site="a/../b"), "site is 'a/../b'; it has to be a folder of the directory"),
        (lambda: ProbeCall("t", {"url": "{site}/a"}), "{site} stands for the address of a site"),
        (lambda: ProbeCall("t", environment={"A": "{site_host}"}), "{site} stands for the address of a site"),
        (lambda: Manifest("m", {}), "servers has to name at least one tool server"),
        (lambda: Manifest("m", ASKING, sessions_per_worker=0), "sessions_per_worker has to be at least 1"),
        (lambda: Manifest("m", {**ASKING, "a,b": entry()}), "'a,b' cannot be the name of a server"),
        (lambda: Manifest("m", {**ASKING, " ": entry()}), "' ' cannot be the name of a server"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        make()


def test_a_server_s_test_and_hosts_may_name_any_of_its_keys() -> None:
    test = ProbeCall("t", {"url": "{site}"}, site="a", environment={"A": "{site_host}", "B": "x"})
    assert entry(egress_hosts=("$A", "$B", "a.org"), test=test, timeout=0.1).test == test


# Shared keys

SHARED = Manifest(
    "m",
    {"s": entry(keys=("A_URL", "A_KEY", "B_URL", "B_KEY"), optional_keys=("OTHER",))},
    shared_keys={"ALL": SharedKeys(("URL", "KEY"), ("A", "B"))},
)
ALL = {"ALL_URL": "http://all", "ALL_KEY": "k"}
AS_A, AS_B = ({f"{one}_URL": "http://all", f"{one}_KEY": "k"} for one in "AB")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (ALL, AS_A | AS_B),
        (ALL | {"A_KEY": "own", "B_URL": "", "OTHER": "x"}, AS_A | AS_B | {"A_KEY": "own", "OTHER": "x"}),
        (ALL | {"A_URL": "http://all"}, AS_A | AS_B),
        (ALL | {"A_URL": "http://own"}, AS_B | {"A_URL": "http://own"}),
        ({"ALL_KEY": "k"}, {"A_KEY": "k", "B_KEY": "k"}),
        ({"ALL_KEY": "k", "A_URL": "http://own", "NOT_A_KEY": "x"}, {"A_URL": "http://own", "B_KEY": "k"}),
    ],
)
def test_shared_keys_stand_in_for_those_that_are_not_set_of_groups_with_the_same_address(
    variables: dict[str, str], expected: dict[str, str]
) -> None:
    assert SHARED.with_shared(variables) == expected


def test_shared_keys_are_named_for_groups_that_have_no_address() -> None:
    assert SHARED.shared_key_names() == {"ALL_URL", "ALL_KEY"}
    assert SHARED.stand_ins(["A_URL", "A_KEY"]) == ["ALL_URL", "ALL_KEY"]
    assert SHARED.stand_ins(["A_URL", "B_URL", "B_KEY"]) == ["ALL_URL", "ALL_KEY"]
    assert SHARED.stand_ins(["B_URL"]) == ["ALL_URL"]
    assert SHARED.stand_ins(["A_KEY", "B_KEY", "OTHER"]) == []
