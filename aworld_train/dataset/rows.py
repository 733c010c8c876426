"""Tasks become rows of the row schema, column by column."""

import json
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train.dataset.arrays import Mask, Numbers, as_integers, numbers, offsets, text, texts, truths
from aworld_train.dataset.columns import Family
from aworld_train.dataset.schema import LISTS, SCHEMA, schema_with

AGENT_NAME = "mcp_agent"

_PROMPT = SCHEMA.field("prompt").type
_MESSAGE = _PROMPT.value_type
_REWARD_MODEL = SCHEMA.field("reward_model").type
_SHARED_TEXTS = ("data_source", "ability", "scorer", "answer_schema", "file")


class RowMaker:
    def __init__(self, families: Sequence[Family], lists: Collection[str]) -> None:
        self.schema = schema_with(*(name for name in LISTS if name in lists))
        self._texts = {name: [getattr(family.shared, name) for family in families] for name in _SHARED_TEXTS}
        self._texts |= {name: [getattr(family, name) for family in families] for name in ("system", "before")}
        self._levels = texts([family.level for family in families], empty_is_null=True)
        self._is_question = np.array([family.shared.is_question for family in families], dtype=bool)
        self._has_system = np.array([family.has_system for family in families], dtype=bool)
        self._has_subject = np.array([family.has_subject for family in families], dtype=bool)

    def rows(self, tasks: pa.RecordBatch, index: Numbers, split: str) -> pa.RecordBatch:
        codes = as_integers(tasks.column("family"))
        family_texts = {name: self._text(name, codes) for name in _SHARED_TEXTS}
        subject, is_question = tasks.column("subject"), self._is_question[codes]
        info = {
            "index": numbers(index),
            **{name: tasks.column(name) for name in ("id", "line", "attachments", *LISTS)},
            "split": _repeated(split, len(tasks)),
            "file": family_texts["file"],
            "question": _where(is_question, subject),
            "expression": _where(~is_question, subject),
            "scorer": family_texts["scorer"],
            "answer_schema": family_texts["answer_schema"],
            "level": self._levels.take(tasks.column("family")),
        }
        info_fields = list(self.schema.field("extra_info").type)
        reward_model = {"style": _repeated("rule", len(tasks)), "ground_truth": tasks.column("answer")}
        return pa.RecordBatch.from_arrays(
            [
                family_texts["data_source"],
                _repeated(AGENT_NAME, len(tasks)),
                self._prompts(codes, tasks),
                family_texts["ability"],
                pa.StructArray.from_arrays(
                    [reward_model[field.name] for field in _REWARD_MODEL], fields=list(_REWARD_MODEL)
                ),
                pa.StructArray.from_arrays([info[field.name] for field in info_fields], fields=info_fields),
            ],
            schema=self.schema,
        )

    def _prompts(self, codes: Numbers, tasks: pa.RecordBatch) -> pa.Array:
        subject = _where(self._has_subject[codes], tasks.column("subject"), "")
        system = (self._text("system", codes), tasks.column("system"))
        user = (self._text("before", codes), subject, tasks.column("after"))
        # All messages are joined into a single text, in order, so that only their ends have to be computed.
        joined = pc.binary_join_element_wise(*system, *user, text(""))
        messages = np.empty((len(codes), 2), dtype=np.int64)
        messages[:, 0] = _length(*system)
        messages[:, 1] = _length(joined) - messages[:, 0]
        present = np.stack([self._has_system[codes], np.ones(len(codes), dtype=bool)], axis=1)
        roles = np.broadcast_to(np.array([0, 1], dtype=np.int32), present.shape)[present]
        role = texts(["system", "user"]).take(numbers(roles, pa.int32()))
        content = pa.StringArray.from_buffers(len(role), offsets(messages[present]), joined.buffers()[2])
        values = pa.StructArray.from_arrays([role, content], fields=list(_MESSAGE))
        prompts = pa.Array.from_buffers(
            _PROMPT, len(codes), [None, offsets(present.sum(axis=1))], children=[values]
        )
        earlier = tasks.column("earlier").to_pylist()
        if not any(earlier):
            return prompts
        whole = [
            [*messages[:-1], *(json.loads(before) if before else []), messages[-1]]
            for messages, before in zip(prompts.to_pylist(), earlier, strict=True)
        ]
        return pa.array(whole, _PROMPT)

    def _text(self, name: str, codes: Numbers) -> pa.Array:
        values = self._texts[name]
        if len(set(values)) == 1:
            return _repeated(values[0], len(codes))
        return texts(values).take(numbers(codes))


def _repeated(value: str, count: int) -> pa.Array:
    return pa.repeat(text(value), count)


def _length(*arrays: pa.Array) -> Numbers:
    lengths = [as_integers(pc.binary_length(array)) for array in arrays]
    return np.asarray(np.sum(lengths, axis=0, dtype=np.int64))


def _where(mask: Mask, values: pa.Array, other: str | None = None) -> pa.Array:
    if mask.all():
        return values
    if not mask.any():
        return pa.nulls(len(values), pa.string()) if other is None else _repeated(other, len(values))
    return pc.if_else(truths(mask), values, text(other))
