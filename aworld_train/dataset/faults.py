"""Checks of rows, over whole columns.

Every check finds the faulty rows of a batch at once; only the first faulty row is read alone, to describe its
fault.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train.dataset.arrays import Mask, Numbers, as_integers, as_truths, numbers, text, texts
from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.dataset.schema import GROUND_TRUTHS
from aworld_train.errors import DatasetError

ROLES = ("system", "user", "assistant", "tool")

_ROLES, _USER, _ZERO = texts(ROLES), text("user"), numbers([0])[0]

Row = dict[str, Any]


class FaultCheck(NamedTuple):
    """Finds the rows of a batch that have a fault, [rows], and describes it in words that follow "row 7"."""

    faulty: Callable[[pa.RecordBatch], Mask]
    describe: Callable[[Row], str]


class RowCheck:
    def __init__(self, source: str) -> None:
        self.rows = 0
        self._source = source
        self._indices = _Indices()

    def add(self, batch: pa.RecordBatch) -> None:
        faults = [
            (int(mask.argmax()), check.describe) for check in CHECKS if (mask := check.faulty(batch)).any()
        ]
        # min returns the first of equals, so the message is of the first check that the row fails.
        first = min(faults, key=lambda fault: fault[0], default=None)
        indices = _field(batch.column("extra_info"), "index")
        sound = indices if first is None else indices.slice(0, first[0])
        repeat = self._indices.first_repeat(as_integers(sound), self.rows)
        if repeat is not None:
            row, index, earlier = repeat
            raise DatasetError(
                f"{self._source}: row {row} has the extra_info.index {index} of row {earlier}; every row needs its own."
            )
        if first is not None:
            position, describe = first
            row_values: Row = batch.slice(position, 1).to_pylist()[0]
            sentence = (
                f"{self._source}: row {self.rows + position}{_origin(row_values)} {describe(row_values)}"
            )
            raise DatasetError(sentence if sentence.endswith("?") else f"{sentence}.")
        self.rows += len(batch)


class _Indices:
    """The indices of the rows so far. While they only rise, comparing with the last is enough to find a repeat."""

    def __init__(self) -> None:
        self._all: list[Numbers] = []
        self._rises = True

    def first_repeat(self, indices: Numbers, start: int) -> tuple[int, int, int] | None:
        """The first row of the next batch that repeats an index: row, index, earlier row."""
        if not len(indices):
            return None
        last = self._all[-1][-1] if self._all else None
        self._all.append(indices)
        if self._rises and (last is None or indices[0] > last) and (np.diff(indices) > 0).all():
            return None
        self._rises = False
        all_indices = np.concatenate(self._all)
        order = np.argsort(all_indices, kind="stable")
        repeats = np.flatnonzero(np.diff(all_indices[order]) == 0)
        if not len(repeats):
            self._all = [all_indices]
            return None
        row = int(order[repeats + 1].min())
        return row, int(all_indices[row]), int(np.flatnonzero(all_indices == all_indices[row])[0])


def _origin(row: Row) -> str:
    info = row["extra_info"] or {}
    return f" ({info['file']}, line {info.get('line')})" if info.get("file") else ""


def _ends_otherwise(batch: pa.RecordBatch) -> Mask:
    prompts = batch.column("prompt")
    lengths = pc.list_value_length(prompts)
    filled = as_truths(pc.greater(lengths, _ZERO))
    ends = np.cumsum(as_integers(lengths)[filled]) - 1
    roles = _field(pc.list_flatten(prompts), "role").take(numbers(ends))
    wrong = np.zeros(len(batch), dtype=bool)
    wrong[filled] = ~as_truths(pc.equal(roles, _USER))
    return wrong


def _other_ground_truths(batch: pa.RecordBatch) -> Mask:
    answers = _answers(batch)

    def is_answer(lists: pa.Array) -> Mask:
        return as_truths(pc.equal(pc.list_flatten(lists), answers.take(pc.list_parent_indices(lists))))

    filled = _of_ground_truths(batch, lambda lists: np.ones(len(pc.list_flatten(lists)), dtype=bool))
    return filled & ~_of_ground_truths(batch, is_answer)


def _unknown_name(field: str, check: Callable[[str], None]) -> Callable[[pa.RecordBatch], Mask]:
    def faulty(batch: pa.RecordBatch) -> Mask:
        names = _field(batch.column("extra_info"), field)
        unknown = [name for name in pc.unique(names).to_pylist() if _name_fault(name, check)]
        if not unknown:
            return np.zeros(len(batch), dtype=bool)
        return as_truths(pc.is_in(names, texts(unknown).cast(names.type)))

    return faulty


def _name_fault(name: str | None, check: Callable[[str], None]) -> str:
    # In some files rows without a name have an empty text.
    if not name:
        return ""
    try:
        check(name)
    except DatasetError as error:
        return error.message.rstrip(".")
    return ""


def _describe_role(row: Row) -> str:
    role = next(role for m in row["prompt"] if (role := m and m["role"]) not in ROLES)
    return f"has a message whose role is {role!r}, not one of {', '.join(ROLES)}"


def _describe_blank(row: Row) -> str:
    role = next(m["role"] for m in row["prompt"] if not (m["content"] or "").strip())
    return f"has an empty {role} message"


CHECKS = (
    FaultCheck(lambda batch: _empty(batch.column("data_source")), lambda row: "has no data_source"),
    FaultCheck(
        lambda batch: ~as_truths(pc.greater(pc.list_value_length(batch.column("prompt")), _ZERO)),
        lambda row: "has an empty prompt",
    ),
    FaultCheck(
        lambda batch: _of_messages(
            batch, lambda message: ~as_truths(pc.is_in(_field(message, "role"), _ROLES))
        ),
        _describe_role,
    ),
    FaultCheck(
        lambda batch: _of_messages(batch, lambda messages: _blank(_field(messages, "content"))),
        _describe_blank,
    ),
    FaultCheck(
        _ends_otherwise,
        lambda row: (
            f"has a prompt that ends with a message of the {row['prompt'][-1]['role']}, not of the user"
        ),
    ),
    FaultCheck(
        lambda batch: _blank(_answers(batch)), lambda row: "has no answer (reward_model.ground_truth)"
    ),
    FaultCheck(
        lambda batch: ~as_truths(pc.match_substring_regex(_answers(batch), r"[\p{L}\p{N}]")),
        lambda row: (
            f"has the answer {row['reward_model']['ground_truth']!r}, a placeholder for one that is kept hidden"
        ),
    ),
    FaultCheck(
        lambda batch: _of_ground_truths(batch, lambda lists: _blank(pc.list_flatten(lists))),
        lambda row: f"has an empty text in extra_info.{GROUND_TRUTHS}",
    ),
    FaultCheck(
        _other_ground_truths,
        lambda row: (
            f"has the answer {row['reward_model']['ground_truth']!r}, which is not in its extra_info.{GROUND_TRUTHS}: "
            "scoring reads the list alone"
        ),
    ),
    FaultCheck(
        lambda batch: as_truths(_field(batch.column("extra_info"), "index").is_null()),
        lambda row: "has no extra_info.index",
    ),
    FaultCheck(
        _unknown_name("scorer", check_scorer_name),
        lambda row: f"has an {_name_fault(row['extra_info']['scorer'], check_scorer_name)}",
    ),
    FaultCheck(
        _unknown_name("answer_schema", check_schema_name),
        lambda row: f"has an {_name_fault(row['extra_info']['answer_schema'], check_schema_name)}",
    ),
)


def _of_messages(batch: pa.RecordBatch, faulty: Callable[[pa.Array], Mask]) -> Mask:
    prompts = batch.column("prompt")
    wrong = faulty(pc.list_flatten(prompts))
    rows = np.zeros(len(batch), dtype=bool)
    if wrong.any():
        rows[as_integers(pc.list_parent_indices(prompts))[wrong]] = True
    return rows


def _of_ground_truths(batch: pa.RecordBatch, marked: Callable[[pa.Array], Mask]) -> Mask:
    rows = np.zeros(len(batch), dtype=bool)
    lists = _field(batch.column("extra_info"), GROUND_TRUTHS)
    # Lists that are all empty have no type of text.
    if pa.types.is_nested(lists.type) and not pa.types.is_null(lists.type.value_type):
        rows[as_integers(pc.list_parent_indices(lists))[marked(lists)]] = True
    return rows


def _answers(batch: pa.RecordBatch) -> pa.Array:
    return _field(batch.column("reward_model"), "ground_truth")


def _field(structs: pa.Array, name: str) -> pa.Array:
    if structs.type.get_field_index(name) < 0:
        return pa.nulls(len(structs), pa.string())
    return pc.struct_field(structs, name)


def _blank(values: pa.Array) -> Mask:
    return _empty(values) | as_truths(pc.utf8_is_space(values))


def _empty(values: pa.Array) -> Mask:
    return ~as_truths(pc.greater(pc.binary_length(values), _ZERO))
