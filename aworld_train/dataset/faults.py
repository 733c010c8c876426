"""What is wrong with a row, found over whole columns.

Every check is a question to a batch that is answered for all its rows at once; only when one of them has a
fault is that row looked at by itself, to say what is wrong in words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train.dataset.arrays import as_integers, as_truths, numbers, text, texts
from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.errors import DatasetError

ROLES = ("system", "user", "assistant", "tool")

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Row = dict[str, Any]


class Check(NamedTuple):
    """One thing that can be wrong with a row.

    Attributes:
        faulty: Which rows of a batch have the fault, [rows].
        said: The fault in words, as it follows "row 7".
    """

    faulty: Callable[[pa.RecordBatch], Mask]
    said: Callable[[Row], str]


class RowCheck:
    """Sees batch after batch of one file and keeps what it must remember between them.

    Attributes:
        rows: How many rows were seen.
    """

    def __init__(self, source: str) -> None:
        """A check at its beginning; ``source`` is what messages call the file."""
        self.rows = 0
        self._source = source
        self._indices = _Indices()

    def add(self, batch: pa.RecordBatch) -> None:
        """See that every row of the next batch can be trained on.

        Args:
            batch: Rows of a schema that `check_schema` accepts.

        Raises:
            DatasetError: One cannot; the message names the first, counted from 0.
        """
        found = [(int(mask.argmax()), check.said) for check in CHECKS if (mask := check.faulty(batch)).any()]
        # Of one row the first check that fails is said, as min keeps the first of equals.
        first = min(found, key=lambda fault: fault[0], default=None)
        indices = _field(batch.column("extra_info"), "index")
        sound = indices if first is None else indices.slice(0, first[0])
        repeat = self._indices.first_repeat(as_integers(sound), self.rows)
        if repeat is not None:
            row, index, earlier = repeat
            raise DatasetError(
                f"{self._source}: row {row} has the extra_info.index {index} of row {earlier}; every row needs its own."
            )
        if first is not None:
            position, said = first
            row_itself: Row = batch.slice(position, 1).to_pylist()[0]
            sentence = f"{self._source}: row {self.rows + position}{_origin(row_itself)} {said(row_itself)}"
            raise DatasetError(sentence if sentence.endswith("?") else f"{sentence}.")
        self.rows += len(batch)


class _Indices:
    """The indices seen so far. While they only rise, the last is all that must be remembered to find a repeat."""

    def __init__(self) -> None:
        self._all: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._rises = True

    def first_repeat(
        self, indices: "np.ndarray[Any, np.dtype[np.int64]]", start: int
    ) -> tuple[int, int, int] | None:
        """The first row of the next batch whose index an earlier row has: row, index, earlier row."""
        if not len(indices):
            return None
        last = self._all[-1][-1] if self._all else None
        self._all.append(indices)
        if self._rises and (last is None or indices[0] > last) and (np.diff(indices) > 0).all():
            return None
        self._rises = False
        every = np.concatenate(self._all)
        order = np.argsort(every, kind="stable")
        again = np.flatnonzero(np.diff(every[order]) == 0)
        if not len(again):
            self._all = [every]
            return None
        row = int(order[again + 1].min())
        return row, int(every[row]), int(np.flatnonzero(every == every[row])[0])


def _origin(row: Row) -> str:
    """Where a row came from, where it says that."""
    info = row["extra_info"] or {}
    return f" ({info['file']}, line {info.get('line')})" if info.get("file") else ""


def _no_data_source(batch: pa.RecordBatch) -> Mask:
    return _empty(batch.column("data_source"))


def _no_messages(batch: pa.RecordBatch) -> Mask:
    return ~as_truths(pc.greater(pc.list_value_length(batch.column("prompt")), _ZERO))


def _unknown_role(batch: pa.RecordBatch) -> Mask:
    return _of_messages(batch, lambda messages: ~as_truths(pc.is_in(_field(messages, "role"), _ROLES)))


def _blank_message(batch: pa.RecordBatch) -> Mask:
    return _of_messages(batch, lambda messages: _blank(_field(messages, "content")))


def _ends_otherwise(batch: pa.RecordBatch) -> Mask:
    prompts = batch.column("prompt")
    lengths = pc.list_value_length(prompts)
    filled = as_truths(pc.greater(lengths, _ZERO))
    ends = np.cumsum(as_integers(lengths)[filled]) - 1
    roles = _field(pc.list_flatten(prompts), "role").take(numbers(ends))
    wrong = np.zeros(len(batch), dtype=bool)
    wrong[filled] = ~as_truths(pc.equal(roles, _USER))
    return wrong


def _no_answer(batch: pa.RecordBatch) -> Mask:
    return _blank(_field(batch.column("reward_model"), "ground_truth"))


def _hidden_answer(batch: pa.RecordBatch) -> Mask:
    return ~as_truths(
        pc.match_substring_regex(_field(batch.column("reward_model"), "ground_truth"), r"[\p{L}\p{N}]")
    )


def _no_index(batch: pa.RecordBatch) -> Mask:
    return as_truths(_field(batch.column("extra_info"), "index").is_null())


def _unknown_name(field: str, check: Callable[[str], None]) -> Callable[[pa.RecordBatch], Mask]:
    def faulty(batch: pa.RecordBatch) -> Mask:
        names = _field(batch.column("extra_info"), field)
        unknown = [name for name in pc.unique(names).to_pylist() if _name_fault(name, check)]
        if not unknown:
            return np.zeros(len(batch), dtype=bool)
        return as_truths(pc.is_in(names, texts(unknown).cast(names.type)))

    return faulty


def _name_fault(name: str | None, check: Callable[[str], None]) -> str:
    """Why this is no name that ``check`` knows; empty where it is one, or none is given."""
    # An empty text is what a row without its own has in some files.
    if not name:
        return ""
    try:
        check(name)
    except DatasetError as error:
        return error.message.rstrip(".")
    return ""


def _say_role(row: Row) -> str:
    role = next(role for m in row["prompt"] if (role := m and m["role"]) not in ROLES)
    return f"has a message whose role is {role!r}, not one of {', '.join(ROLES)}"


def _say_blank(row: Row) -> str:
    role = next(m["role"] for m in row["prompt"] if not (m["content"] or "").strip())
    return f"has an empty {role} message"


CHECKS = (
    Check(_no_data_source, lambda row: "has no data_source"),
    Check(_no_messages, lambda row: "has an empty prompt"),
    Check(_unknown_role, _say_role),
    Check(_blank_message, _say_blank),
    Check(
        _ends_otherwise,
        lambda row: (
            f"has a prompt that ends with a message of the {row['prompt'][-1]['role']}, not of the user"
        ),
    ),
    Check(_no_answer, lambda row: "has no answer (reward_model.ground_truth)"),
    Check(
        _hidden_answer,
        lambda row: (
            f"has the answer {row['reward_model']['ground_truth']!r}, which stands for one that is kept hidden"
        ),
    ),
    Check(_no_index, lambda row: "has no extra_info.index"),
    Check(
        _unknown_name("scorer", check_scorer_name),
        lambda row: f"has an {_name_fault(row['extra_info']['scorer'], check_scorer_name)}",
    ),
    Check(
        _unknown_name("answer_schema", check_schema_name),
        lambda row: f"has an {_name_fault(row['extra_info']['answer_schema'], check_schema_name)}",
    ),
)

_ROLES, _USER, _ZERO = texts(ROLES), text("user"), numbers([0])[0]


def _of_messages(batch: pa.RecordBatch, faulty: Callable[[pa.Array], Mask]) -> Mask:
    """The rows that have a message with a fault."""
    prompts = batch.column("prompt")
    wrong = faulty(pc.list_flatten(prompts))
    rows = np.zeros(len(batch), dtype=bool)
    if wrong.any():
        rows[as_integers(pc.list_parent_indices(prompts))[wrong]] = True
    return rows


def _field(structs: pa.Array, name: str) -> pa.Array:
    """A field of each struct, null where the struct is null or there is no such field."""
    if structs.type.get_field_index(name) < 0:
        return pa.nulls(len(structs), pa.string())
    return pc.struct_field(structs, name)


def _blank(values: pa.Array) -> Mask:
    return _empty(values) | as_truths(pc.utf8_is_space(values))


def _empty(values: pa.Array) -> Mask:
    return ~as_truths(pc.greater(pc.binary_length(values), _ZERO))
