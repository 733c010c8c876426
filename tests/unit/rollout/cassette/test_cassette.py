"""Which recorded call is the same as one that is asked for, and what a file of them survives."""

import json
import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.errors import CassetteError, UsageError
from aworld_train.rollout.cassette import Cassette, CassetteReplay, Mode, open_cassette, server_identity
from aworld_train.rollout.cassette import cassette as cassette_module
from aworld_train.rollout.cassette.cassette import NoTools
from aworld_train.rollout.cassette.key import CallKey, canonical
from aworld_train.rollout.cassette.storage import CassetteFile, encode
from tests.properties import examples

NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, VALUES, max_size=4)


def answered(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


def shuffled(value: Any, draw: st.DrawFn) -> Any:
    if isinstance(value, dict):
        names = draw(st.permutations(sorted(value)))
        return {name: shuffled(value[name], draw) for name in names}
    return [shuffled(entry, draw) for entry in value] if isinstance(value, list) else value


def write_number(number: float, draw: st.DrawFn) -> str:
    """The same number in one of the ways that JSON has."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return json.dumps(number)
    ways = [json.dumps(number)]
    if isinstance(number, int) or number.is_integer():
        whole = int(number)
        ways += [str(whole)] if whole else ["0", "0.0", "-0.0", "0e5"]
        ways += [f"{whole}.0", f"{whole}.000", f"{whole}e0", f"{whole}0E-1"] if abs(whole) < 2**53 else []
    else:
        ways += [f"{number!r}0" if "e" not in repr(number) else repr(number).replace("e", "E")]
    return draw(st.sampled_from(ways))


def write(value: Any, draw: st.DrawFn) -> str:
    """JSON that means ``value``, with spaces and numbers in some way."""
    space = draw(st.sampled_from(["", " ", "\n  ", "\t"]))
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)}{space}:{space}{write(below, draw)}" for name, below in value.items()]
        return "{" + space + f"{space},{space}".join(pairs) + space + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(write(entry, draw) for entry in value) + space + "]"
    return write_number(value, draw)


# Keys


@given(st.data(), ARGUMENTS)
def test_order_spaces_and_the_writing_of_numbers_do_not_tell_calls_apart(
    data: st.DataObject, arguments: dict[str, Any]
) -> None:
    again = json.loads(write(shuffled(arguments, data.draw), data.draw))
    assert canonical(again) == canonical(arguments)


def typed(value: Any) -> Any:
    """A value in which only what JSON tells apart is different: a truth value is no number, 1.0 is 1."""
    if isinstance(value, dict):
        return ("object", frozenset((name, typed(below)) for name, below in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(typed, value)))
    return ("number" if type(value) in (int, float) else type(value).__name__, value)


@given(ARGUMENTS, ARGUMENTS)
def test_calls_are_equal_only_if_their_arguments_mean_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))
    assert typed(json.loads(canonical(one))) == typed(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {}),
        ({"a": 0.1}, {"a": 0.10000000000000002}),
        ({"a": 2**53}, {"a": 2**53 + 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "é"}, {"a": "e\u0301"}),
    ],
)
def test_what_a_tool_could_tell_apart_is_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", "nested"])
def test_what_no_tool_could_be_sent_has_no_key(value: object) -> None:
    if value == "nested":
        for _ in range(100_000):
            value = [value]
    with pytest.raises(ValueError):
        canonical({"a": value})


@given(ARGUMENTS, VALUES, VALUES)
def test_an_ignored_argument_does_not_tell_calls_apart(
    arguments: dict[str, Any], one: Any, other: Any
) -> None:
    with_one, with_other = {**arguments, "now": one}, {**arguments, "now": other}
    assert canonical(with_one, ["now"]) == canonical(with_other, ["now"])
    without = {name: value for name, value in arguments.items() if name != "now"}
    assert canonical(with_one, ["now"]) == canonical(without)


def test_an_argument_is_ignored_for_its_tool_only_and_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    cassette = Cassette(path, Mode.record, {"search": ["session"]})
    cassette.keep(cassette.key("local", "search", {"q": "a", "session": "s3cret"}), answered("found"))
    assert "s3cret" not in path.read_text()
    replayed = Cassette(path, Mode.replay, {"search": ["session"]})
    assert replayed.find(replayed.key("local", "search", {"q": "a", "session": "another"})) == answered(
        "found"
    )
    assert replayed.find(replayed.key("local", "find", {"q": "a", "session": "another"})) is None


def test_a_rule_that_came_later_holds_for_what_was_recorded_before(tmp_path: Path) -> None:
    recorded = Cassette(tmp_path / "c", Mode.record)
    recorded.keep(recorded.key("local", "search", {"q": "a", "page": 1}), answered("found"))
    cassette = Cassette(tmp_path / "c", Mode.replay, {"search": ["page"]})
    assert cassette.find(cassette.key("local", "search", {"q": "a", "page": 2})) is not None


@pytest.mark.parametrize(
    ("url", "headers", "identity"),
    [
        ("http://127.0.0.1:8000/mcp", {}, "local"),
        ("http://127.0.0.1:9/mcp", {"Authorization": "Bearer x", "MCP_SERVERS": "b, a"}, "local:a,b"),
        ("http://10.1.2.3:8000/mcp", {"mcp-servers": "a,b"}, "local:a,b"),
        ("http://node17:8000/mcp", {}, "local"),
        ("http://localhost/mcp", {"MCP-Servers": " , b,b,"}, "local:b"),
        ("http://localhost/mcp", {"mcp-servers": ","}, "local"),
        ("http://[::1]:8000/mcp", {}, "local"),
        ("https://user:pw@mcp.example.com:443/s3cret/mcp?key=k", {}, "mcp.example.com"),
    ],
)
def test_a_server_is_known_by_what_stays_when_it_moves_and_by_nothing_secret(
    url: str, headers: dict[str, str], identity: str
) -> None:
    assert server_identity(url, headers) == identity


# Order of equal calls


def test_equal_calls_of_an_episode_get_their_answers_in_order_and_the_last_again(tmp_path: Path) -> None:
    recorded = Cassette(tmp_path / "c", Mode.record)
    for texts in ("abc", "ab"):  # two episodes that saw the same, one for longer
        episode = CassetteReplay(recorded, "local")
        for text in texts:
            recorded.keep(episode.next("poll", {}), answered(text))
    cassette = Cassette(tmp_path / "c", Mode.replay)
    for _ in range(2):
        episode = CassetteReplay(cassette, "local")
        assert [text_of(cassette.find(episode.next("poll", {}))) for _ in range(5)] == list("abccc")
    assert len((tmp_path / "c").read_text().splitlines()) == 1 + 3


def test_of_two_records_of_one_call_the_last_counts(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    call = cassette.key("local", "poll", {})
    for text in ("old", "new", "new"):
        cassette.keep(call, answered(text))
    assert len((tmp_path / "c").read_text().splitlines()) == 3
    assert cassette.find(call) == answered("new")
    assert Cassette(tmp_path / "c", Mode.replay).find(call) == answered("new")


def test_servers_do_not_answer_for_one_another(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    cassette.keep(cassette.key("local:a", "t", {}), answered("a"))
    assert cassette.find(cassette.key("local:b", "t", {})) is None


def test_a_miss_says_which_call_which_file_and_the_nearest_one(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    for expression in ("1+1", "6*7", "9*(2+3)"):
        cassette.keep(cassette.key("local", "calculator", {"expression": expression}), answered(""))
    error_message = cassette.miss(cassette.key("local", "calculator", {"expression": "6*8"}))
    assert f'{tmp_path / "c"} has no call of calculator with {{"expression":"6*8"}}' in error_message
    assert error_message.endswith('the nearest recorded call of this tool has {"expression":"6*7"}')
    assert "no call of this tool at all" in cassette.miss(cassette.key("local", "other", {}))


def test_of_many_calls_the_latest_are_compared_by_their_beginnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    values = ["b", "a" * 100 + "1", "a" * 100 + "2", "y" * 292, "z" * 293]
    for value in values:
        cassette.keep(cassette.key("local", "t", {"v": value}), answered(""))
    replayed = Cassette(tmp_path / "c", Mode.replay)

    def nearest(value: str) -> str:
        return replayed.miss(cassette.key("local", "t", {"v": value})).partition("of this tool has ")[2]

    shown = [f'{{"v":"{value}"}}' for value in values]
    assert (len(shown[3]), len(shown[4])) == (300, 301)
    arguments = ["b1", "a" * 100 + "2", "y" * 99, "z" * 99]
    assert [nearest(value) for value in arguments] == [shown[0], shown[1], shown[3], f"{shown[4][:300]}..."]
    monkeypatch.setattr(cassette_module, "_MAX_COMPARED_CALLS", 2)
    assert nearest("b1") in shown[3:]


def test_a_call_that_came_later_in_every_recording_gets_the_first_answer_there_is(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    for nth in (3, 5):
        cassette.keep(cassette.key("local", "t", {}, nth), answered(str(nth)))
    found = [text_of(cassette.find(cassette.key("local", "t", {}, nth))) for nth in range(1, 7)]
    assert found == ["3", "3", "3", "3", "5", "5"]


def test_calls_that_differ_in_their_number_alone_have_one_digest() -> None:
    keys = [NoTools().key("s", "t", {}), CallKey("s", "t", "{}", 2), CallKey("s", "t", "[]", 1)]
    digests = [key.digest() for key in keys]
    assert digests[0] == digests[1] != digests[2]
    assert [len(digest) for digest in digests] == [16] * 3


def test_without_tools_every_call_is_missed(tmp_path: Path) -> None:
    cassette = NoTools()
    call = CassetteReplay(cassette, "local").next("t", {"b": 1, "a": 2})
    assert call == CallKey("local", "t", '{"a":2,"b":1}', 1)
    assert (cassette.records, cassette.replays, cassette.find(call)) == (False, True, None)
    assert (cassette.tools("local"), cassette.has_tools("local")) == ([], True)
    assert cassette.miss(call) == "Error: there is no tool t; there are no tools"


# The file


def test_a_file_is_made_with_its_folders_and_closed_with_its_cassette(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    for _ in range(2):
        file = CassetteFile(path, writable=True)
    assert path.stat().st_mode & 0o133 == 0
    assert path.stat().st_mode & 0o600 == 0o600
    descriptor = file._descriptor
    file.append({"server": "s", "tools": []})
    [(location, record)] = file.read_new()
    assert list(file.read_new()) == []
    assert (file.record_at(location), file.bytes_at(location)) == (record, encode(record))
    del file
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_line_that_was_written_in_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CassetteFile(tmp_path / "c", writable=True)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:-1]))
    with pytest.raises(CassetteError, match=r"c cannot be written: No space left on device\.$"):
        file.append({"server": "s", "tools": []})


@examples(50)
@given(tool=TEXT, arguments=ARGUMENTS, result=VALUES)
def test_what_was_kept_is_found_by_whoever_opens_the_file(
    tmp_path_factory: pytest.TempPathFactory, tool: str, arguments: dict[str, Any], result: Any
) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c"
    answer = {"result": {"content": [], "structuredContent": {"value": result}, "isError": True}}
    cassette = Cassette(path, Mode.record)
    cassette.keep(cassette.key("local", tool, arguments), answer)
    again = Cassette(path, Mode.replay)
    assert again.find(again.key("local", tool, arguments)) == answer


def test_half_a_character_in_a_result_is_kept(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    call = cassette.key("local", "t", {})
    cassette.keep(call, answered("\ud800"))
    cassette.keep(cassette.key("local", "é", {}), {"error": {"message": "é"}})
    assert (tmp_path / "c").read_text("utf-8").count("é") == 2
    again = Cassette(tmp_path / "c", Mode.replay)
    assert again.find(call) == answered("\ud800")
    assert again.find(again.key("local", "é", {})) == {"error": {"message": "é"}}


def append_many(path: Path, process: int, start: Any) -> None:
    cassette = Cassette(path, Mode.record)
    start.wait()
    for number in range(50):
        call = cassette.key("local", "t", {"process": process, "number": number})
        cassette.keep(call, answered("x" * (number * 997 % 40_000)))


def test_several_processes_append_to_one_file_from_its_first_line_on(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    path = tmp_path / "c"
    processes = [context.Process(target=append_many, args=(path, number, start)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    cassette = Cassette(path, Mode.replay)
    for process in range(4):
        for number in range(50):
            found = cassette.find(cassette.key("local", "t", {"process": process, "number": number}))
            assert found == answered("x" * (number * 997 % 40_000))


def test_what_another_process_records_meanwhile_is_found(tmp_path: Path) -> None:
    one, other = Cassette(tmp_path / "c", Mode.replay_or_record), Cassette(tmp_path / "c", Mode.record)
    call = one.key("local", "t", {})
    assert one.find(call) is None
    other.keep(call, answered("here"))
    one.keep(call, answered("here"))
    other.keep_tools("local", [])
    assert one.has_tools("local") and not one.has_tools("other")
    assert one.find(call) == answered("here")
    assert len((tmp_path / "c").read_text().splitlines()) == 3


@pytest.mark.parametrize("left", range(1, 60, 7))
def test_a_line_that_was_torn_is_passed_over_and_the_next_writer_begins_a_new_one(
    tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c"
    cassette = Cassette(path, Mode.record)
    calls = [cassette.key("local", "t", {"n": number}) for number in range(3)]
    cassette.keep(calls[0], answered("0"))
    whole = path.stat().st_size
    cassette.keep(calls[1], answered("1"))
    os.truncate(path, whole + left)
    found = Cassette(path, Mode.replay)
    assert found.find(calls[0]) == answered("0")
    assert found.find(calls[1]) is None
    later = Cassette(path, Mode.record)
    later.keep(calls[2], answered("2"))
    with caplog.at_level(logging.WARNING):
        again = Cassette(path, Mode.replay)
    assert "line 3: half a line" in caplog.text
    assert [again.find(call) is not None for call in calls] == [True, False, True]


@pytest.mark.parametrize("left", [1, 10, 30, 43])
def test_a_first_line_that_was_torn_is_passed_over_too(tmp_path: Path, left: int) -> None:
    path = tmp_path / "c"
    cassette = Cassette(path, Mode.record)
    call = cassette.key("local", "t", {})
    cassette.keep(call, answered("lost"))
    os.truncate(path, left)
    Cassette(path, Mode.record).keep(call, answered("kept"))
    assert Cassette(path, Mode.replay).find(call) == answered("kept")


HEADER = '{"format": "aworld-train cassette", "version": 1}\n'


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("hello\n", "line 1 is not valid JSON"),
        ("\x00\x01\n", "line 1 is not valid JSON"),
        ("{}\n", "line 1 does not say that this is one"),
        ('{"a": \n', "line 1 is not valid JSON"),
        (HEADER.replace("1}", "2}"), "line 1 says version 2, and this program reads version 1"),
        (HEADER + "<<<<<<< HEAD\n", "line 2 is not valid JSON"),
        (HEADER + '\n{"server": "a"}\n', "line 3 is neither a call nor a tool list"),
        (HEADER + '{"tools": []}\n', "line 2 is neither a call nor a tool list"),
        (HEADER + '{"server": "a", "tools": 5}\n', "line 2 is neither a call nor a tool list"),
        (
            HEADER + '{"server": "a", "tool": "t", "arguments": {}, "nth": 1, "result": 5}\n',
            "line 2 is neither a call",
        ),
        (
            HEADER + '{"server": "a", "tool": "t", "arguments": {}, "nth": 1, "result": {}, "error": {}}\n',
            "line 2 is neither a call",
        ),
        (HEADER + "[]\n", "line 2 is neither a call nor a tool list"),
        (HEADER + '{"server": "a", "tool": "t", "arguments": {}, "nth": 1}\n', "line 2 is neither a call"),
        (
            HEADER + '{"server": "a", "tool": "t", "arguments": 5, "nth": 1, "result": {}}\n',
            "at byte 50 is not a call",
        ),
    ],
    ids=[
        "text",
        "binary",
        "other JSON",
        "other JSON torn",
        "version",
        "conflict",
        "keys",
        "tools of no server",
        "tools",
        "result",
        "two answers",
        "array",
        "no answer",
        "types",
    ],
)
def test_a_file_that_is_no_cassette_is_an_error_that_says_where(
    tmp_path: Path, content: str, complaint: str
) -> None:
    (tmp_path / "c").write_text(content)
    with pytest.raises(CassetteError, match=complaint) as caught:
        Cassette(tmp_path / "c", Mode.replay)
    assert str(tmp_path / "c") in caught.value.message
    assert "\n" not in caught.value.message


def test_what_cannot_be_opened_or_written_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match=r"No cassette at .* env\.cassette\.mode=record"):
        Cassette(tmp_path / "none", Mode.replay)
    with pytest.raises(CassetteError, match="Is a directory"):
        Cassette(tmp_path, Mode.record)
    with pytest.raises(CassetteError, match="No space left"):
        cassette = Cassette("/dev/full", Mode.record)
        cassette.keep(cassette.key("local", "t", {}), answered(""))


def test_a_tool_list_is_kept_once_and_asked_for_by_server(tmp_path: Path) -> None:
    tools = [{"name": "t", "inputSchema": {"type": "object"}}]
    cassette = Cassette(tmp_path / "c", Mode.record)
    for listed in ([], [], tools, tools):
        cassette.keep_tools("local:a", listed)
    assert len((tmp_path / "c").read_text().splitlines()) == 3
    replayed = Cassette(tmp_path / "c", Mode.replay)
    assert replayed.tools("local:a") == tools
    with pytest.raises(CassetteError, match=r"no tool list of the server 'local', only those of local:a"):
        replayed.tools("local")


def test_a_recipe_s_cassette_is_opened_once_per_process(tmp_path: Path) -> None:
    rules = {"search": {"ignore": ["now", "at"]}, "a": {"ignore": []}}
    one = open_cassette(tmp_path / "c", "record", rules)
    same_rules = {"a": {"ignore": []}, "search": {"ignore": ["at", "now"]}}
    assert one is not None and one is open_cassette(str(tmp_path / "c"), Mode.record, same_rules)
    assert one.key("s", "search", {"now": 1}) == one.key("s", "search", {"now": 2})
    assert open_cassette(None, "off") is None
    with pytest.raises(UsageError, match=r"env\.cassette\.path is not set"):
        open_cassette(None, "replay")
