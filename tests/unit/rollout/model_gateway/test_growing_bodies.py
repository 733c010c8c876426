"""However the next body comes out of the one before, it is read as what it says."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.bodies import BodyReader
from tests.properties import examples

values: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-20, 200)
    | st.sampled_from([0.5, 1.5, 10.0])
    | st.text(alphabet='a]},":[é\\\n ', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abm"), inner, max_size=2),
    max_leaves=5,
)
histories = st.lists(values, max_size=5)
others = st.dictionaries(st.sampled_from(["a", "m", "tools"]), values, max_size=3)
layouts = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """Bodies one after another, each made of the one before in one of the ways that agents have, or of none."""
    history, before, after, layout = draw(histories), draw(others), draw(others), draw(layouts)
    found = []
    for _ in range(draw(st.integers(2, 6))):
        match draw(
            st.sampled_from(["grow"] * 6 + ["same", "cut", "edit", "rest", "new", "broken", "spliced"])
        ):
            case "grow":
                history = [*history, *draw(histories)]
            case "cut":
                history = history[:-1]
            case "edit" if history:
                history = [draw(values), *history[1:]]
            case "rest":
                after = draw(others)
            case "new":
                history = draw(histories)
            case "broken" | "spliced" if found:
                position = draw(st.integers(0, len(found[-1])))
                put = draw(
                    st.sampled_from([b",1", b"1", b".5", b"e1", b"]", b'],"m":[1', b'"', b" ", b",", b"}"])
                )
                found.append(found[-1][:position] + put + found[-1][position:])
                continue
        found.append(json.dumps({**before, "messages": history, **after}, **layout).encode())
    return found


def read(body: bytes) -> Any:
    try:
        return fields.parse_body(body)
    except RequestRefused as refused:
        return str(refused)


@given(requests())
@examples(500)
@example([b'{"messages":[1]}', b'{"messages":[1.5]}', b'{"messages":[1.5,2]}'])
@example([b'{"messages":["a"]}', b'{"messages":["a",1]}', b'{"messages":["a",12]}'])
@example([b'{"messages":[0]}', b'{"messages":[0,0]}', b'{"messages":[0,0,0]}', b'{"messages":[0,0,0,1]}'])
@example([b'{"messages":[["a"]]}', b'{"messages":[["a","b"]]}', b'{"messages":[["a","b","c"]]}'])
@example([b'{"messages":["a"],"messages":["a"]}', b'{"messages":["a","b"],"messages":["a"]}'])
@example([b'{"messages":["a"]}', b'{"messages":["a","b"]}', b'{"messages":["a","b"],"messages":["c"]}'])
@example([b'{"messages":["a"]}', b'{"messages":["a",NaN]}', b'{"messages":["a",NaN,"b"]}'])
@example([b'{"messages":["a"]}', b'{"messages":["a","\\ud800"]}', b'{"messages":["a","b"]}'])
def test_a_body_is_read_as_if_it_were_the_first(bodies: list[bytes]) -> None:
    reader = BodyReader("messages")
    for body in bodies:
        try:
            found: Any = reader.read(body)
        except RequestRefused as refused:
            found = str(refused)
        assert repr(found) == repr(read(body))


def test_what_was_read_before_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read_whole = []
    parse = fields.parse_body
    monkeypatch.setattr(fields, "parse_body", lambda body: read_whole.append(body) or parse(body))
    reader = BodyReader("messages")
    history = [{"role": "user", "content": f"{i}"} for i in range(9)]
    bodies = [json.dumps({"messages": history[:n], "tools": [{"a": n % 1}]}).encode() for n in range(1, 10)]
    found = [reader.read(body) for body in [*bodies, bodies[-1]]]
    assert len(read_whole) == 2  # the first, and the first again with a probe in it
    assert found[-1]["messages"] == history
    assert all(one["tools"] is found[0]["tools"] for one in found)
    assert all(
        earlier is later for earlier, later in zip(found[7]["messages"], found[8]["messages"], strict=False)
    )


def test_a_body_that_is_refused_takes_nothing_away_from_the_next() -> None:
    reader = BodyReader("messages")
    reader.read(b'{"messages":["a"]}')
    with pytest.raises(RequestRefused):
        reader.read(b'{"messages":["a","b"')
    assert reader.read(b'{"messages":["a","b"]}') == {"messages": ["a", "b"]}
    assert reader.read(b'{"messages":["a","b","c"]}') == {"messages": ["a", "b", "c"]}
