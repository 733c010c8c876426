"""Conditions on episodes, held against the same test in Python; what cannot be read is refused with its place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.errors import UsageError
from aworld_train.store.conditions import where
from aworld_train.store.reading import Store
from tests.stored_runs import make_stored_run, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(make_stored_run(tmp_path_factory.mktemp("runs")))
    assert opened is not None
    with opened:
        yield opened


Test = Callable[[dict[str, Any]], bool]
CASES: dict[str, Test] = {
    "": lambda e: True,
    "step=2": lambda e: e["step"] == 2,
    "step>=2 and phase=train": lambda e: e["step"] >= 2 and e["phase"] == "train",
    "step=1 or step=3": lambda e: e["step"] in (1, 3),
    "not (step=1 or step=3)": lambda e: e["step"] not in (1, 3),
    "step=1 or step=2 and reward=1": lambda e: e["step"] == 1 or (e["step"] == 2 and e["reward"] == 1),
    "reward<1": lambda e: e["reward"] is not None and e["reward"] < 1,
    "reward=null": lambda e: e["reward"] is None,
    "reward!=null": lambda e: e["reward"] is not None,
    "reward!=1": lambda e: e["reward"] != 1,
    "not reward=1": lambda e: e["reward"] != 1,
    "reward": lambda e: bool(e["reward"]),
    "outcome=timeout": lambda e: e["outcome"] == "timeout",
    "outcome!=timeout": lambda e: e["outcome"] != "timeout",
    'cause~"5 SECONDS"': lambda e: "5 seconds" in (e["cause"] or ""),
    "tool=calculator": lambda e: e["tool_calls"] > 0,
    "tool!=calculator": lambda e: e["tool_calls"] == 0,
    "tool~calc": lambda e: e["tool_calls"] > 0,
    "failed_tool=calculator": lambda e: e["tool_errors"] > 0,
    "not failed_tool": lambda e: e["tool_errors"] == 0,
    "server=local and tool_errors>0": lambda e: e["tool_errors"] > 0,
    "finish_reason=tool_calls": lambda e: e["tool_calls"] > 0,
    "finish_reason!=tool_calls": lambda e: e["tool_calls"] == 0,
    "finish_reason": lambda e: True,
    "suspicion": lambda e: bool(e["suspicions"]),
    "suspicion=answer_in_query": lambda e: "answer_in_query" in e["suspicions"],
    "suspicion!=answer_in_query": lambda e: "answer_in_query" not in e["suspicions"],
    "parts.format>=1": lambda e: (e["parts"] or {}).get("format", 0) >= 1,
    "index>1 and attempt=0": lambda e: e["index"] > 1 and e["attempt"] == 0,
    "trained_step=2 and advantage<0": lambda e: e["trained_step"] == 2 and e["advantage"] < 0,
    "question~'3 TIMES'": lambda e: "3 times" in e["question"],
    "text~'out of ORDER'": lambda e: e["tool_errors"] > 0,
    "text='let me think'": lambda e: True,
    "has_content": lambda e: True,
    "text~'100%'": lambda e: False,
}


@pytest.mark.parametrize("condition", CASES)
def test_a_condition_finds_what_it_says(store: Store, condition: str) -> None:
    everything = [head.to_json() for head in store.episodes()]
    assert len(everything) == 64
    expected = {e["id"] for e in everything if CASES[condition](e)}
    assert {head.id for head in store.episodes(condition)} == expected
    assert store.count(condition) == len(expected)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("toool=1", "there is no 'toool'. Did you mean 'tool'?"),
        ("step=", "a value is missing after `step=`"),
        ("step=one", "`step` is a number, and 'one' is not"),
        ("step=1 and", "at its end: a name is missing"),
        ("(step=1", "a `)` is missing"),
        ("step=1)", "at character 7: ')' is not expected"),
        ("step ~ 1", "contains nothing"),
        ("outcome<1", "compared with =, != or ~"),
        ("finish_reason~stop", "compared with = or !="),
        ("=1", "a name is missing"),
        ("step=1 step=2", "'step' is not expected"),
        ("'", "cannot be read at character 1"),
        ("(" * 60 + "step=1" + ")" * 60, "more than 50"),
        ("step=1 or " * 500 + "step=1", "the most is 2000"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(condition: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        where(condition)
    assert message in refused.value.message


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        where(text)
    except UsageError as error:
        assert error.message


@pytest.mark.parametrize("value", ["'; drop table episodes; --", "%_\\", "x' or '1'='1"])
def test_values_are_no_sql(store: Store, value: str) -> None:
    quote = "'" if '"' in value else '"'
    assert store.count(f"cause={quote}{value}{quote}") == 0
    assert store.count(f"text~{quote}{value}{quote}") == 0
    assert store.count(search=value) == 0
    assert store.count() == 64


def test_a_run_without_a_store_has_none(tmp_path: Path) -> None:
    assert open_store(tmp_path) is None
