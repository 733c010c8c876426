"""The checks of whole columns find the same faulty rows as a check of each row by itself."""

from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.faults import CHECKS, ROLES, RowCheck
from aworld_train.dataset.schema import SCHEMA
from aworld_train.errors import DatasetError
from aworld_train.reward.scorers import BUILT_IN

blank = st.sampled_from([None, "", " ", "\u00a0", "\n\t", "\u2003"])
text = blank | st.text(min_size=1, max_size=4)
message = st.none() | st.fixed_dictionaries(
    {"role": st.sampled_from([*ROLES, "human", None]), "content": text}
)
row = st.fixed_dictionaries(
    {
        "data_source": st.sampled_from(["a", "", None]),
        "prompt": st.none() | st.lists(message, max_size=3),
        "reward_model": st.none()
        | st.fixed_dictionaries({"ground_truth": text | st.sampled_from(["?", "½", "四"])}),
        "extra_info": st.none()
        | st.fixed_dictionaries(
            {
                "index": st.none() | st.integers(0, 3),
                "scorer": st.sampled_from([None, "", "gaia", "own.py:score", "gaja"]),
                "answer_schema": st.sampled_from([None, "boxed", "json:a.b", "json:", "box"]),
            }
        ),
    }
)
good_row = st.fixed_dictionaries(
    {
        "data_source": st.just("a"),
        "prompt": st.just([{"role": "user", "content": "1+1?"}]),
        "reward_model": st.just({"ground_truth": "2"}),
        "extra_info": st.fixed_dictionaries(
            {
                "index": st.integers(0, 30),
                "scorer": st.sampled_from(sorted(BUILT_IN)),
                "answer_schema": st.just("answer"),
            }
        ),
    }
)


def is_sound(row: dict[str, Any]) -> bool:
    """What `CHECKS` ask, one by one and in plain Python."""
    messages, info = row["prompt"] or [], row["extra_info"] or {}
    answer = (row["reward_model"] or {}).get("ground_truth") or ""
    return bool(
        row["data_source"]
        and messages
        and all(m and m["role"] in ROLES and (m["content"] or "").strip() for m in messages)
        and messages[-1]["role"] == "user"
        and answer.strip()
        and any(map(str.isalnum, answer))
        and info.get("index") is not None
        and info.get("scorer") != "gaja"
        and info.get("answer_schema") not in ("box", "json:")
    )


@given(st.lists(row, max_size=8), st.integers(0, 3))
def test_each_row_is_judged_as_if_it_were_alone(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).slice(start)
    faulty = [any(check.faulty(batch)[i] for check in CHECKS) for i in range(len(batch))]
    assert faulty == [not is_sound(row) for row in rows[start:]]


@given(st.lists(row | good_row, min_size=1, max_size=12), st.integers(1, 5))
def test_the_first_row_with_a_fault_is_named_however_rows_are_cut(
    rows: list[dict[str, Any]], size: int
) -> None:
    seen: set[int] = set()
    first = None
    for number, row in zip(count(), rows, strict=False):
        index = (row["extra_info"] or {}).get("index")
        if not is_sound(row) or index in seen:
            first = number
            break
        seen.add(index)
    check, message = RowCheck("file"), ""
    try:
        for at in range(0, len(rows), size):
            check.add(pa.RecordBatch.from_pylist(rows[at : at + size], schema=SCHEMA))
    except DatasetError as error:
        message = error.message
    if first is None:
        assert not message and check.rows == len(rows)
    else:
        assert message.startswith(f"file: row {first} has ")
