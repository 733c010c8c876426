"""Tasks become rows of `SCHEMA`, column by column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train.dataset.columns import Family
from aworld_train.dataset.mix import Numbers
from aworld_train.dataset.schema import SCHEMA

AGENT_NAME = "mcp_agent"

_PROMPT = SCHEMA.field("prompt").type
_MESSAGE = _PROMPT.value_type
_JUDGED = SCHEMA.field("reward_model").type
_INFO = SCHEMA.field("extra_info").type


class RowMaker:
    """Makes rows of tasks in columns; what families have is looked up by their number."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._is_question = np.array([family.is_question for family in families], dtype=bool)
        self._texts = {
            name: pa.array([getattr(family, name) for family in families], pa.string())
            for name in ("data_source", "ability", "scorer", "answer_schema", "system", "file")
        }
        self._has_system = np.array([bool(family.system) for family in families], dtype=bool)
        self._levels = pa.array([family.level or None for family in families], pa.string())

    def rows(self, tasks: pa.RecordBatch, index: Numbers, split: str) -> pa.RecordBatch:
        """The rows of a batch of `FLAT`.

        Args:
            tasks: The tasks.
            index: Number of each task, unique in the dataset.
            split: The split they go into.
        """
        family = tasks.column("family")
        text = {name: values.take(family) for name, values in self._texts.items() if name != "system"}
        codes = family.to_numpy()
        subject, is_question = tasks.column("subject"), self._is_question[codes]
        info = {
            "index": pa.array(index, pa.int64()),
            "id": tasks.column("id"),
            "split": _same(split, len(tasks)),
            "file": text["file"],
            "line": tasks.column("line"),
            "question": _where(is_question, subject),
            "expression": _where(~is_question, subject),
            "scorer": text["scorer"],
            "answer_schema": text["answer_schema"],
            "level": self._levels.take(family),
            "attachments": tasks.column("attachments"),
        }
        judged = {"style": _same("rule", len(tasks)), "ground_truth": tasks.column("answer")}
        return pa.RecordBatch.from_arrays(
            [
                text["data_source"],
                _same(AGENT_NAME, len(tasks)),
                self._prompts(codes, tasks.column("message")),
                text["ability"],
                pa.StructArray.from_arrays([judged[field.name] for field in _JUDGED], fields=list(_JUDGED)),
                pa.StructArray.from_arrays([info[field.name] for field in _INFO], fields=list(_INFO)),
            ],
            schema=SCHEMA,
        )

    def _prompts(self, codes: Numbers, messages: pa.Array) -> pa.Array:
        """A list of messages for each task: the system's, where its family has one, and the user's."""
        with_system = self._has_system[codes]
        ends = np.cumsum(1 + with_system.astype(np.int64))
        roles = np.zeros(ends[-1] if len(ends) else 0, dtype=np.int32)
        roles[(ends - 2)[with_system]] = 1
        role = pa.DictionaryArray.from_arrays(pa.array(roles), pa.array(["user", "system"])).cast(pa.string())
        content = messages
        if with_system.any():
            # Where each message is found when the systems' texts come first and the users' follow.
            found = np.empty(len(roles), dtype=np.int64)
            found[ends - 1] = len(self._has_system) + np.arange(len(codes))
            found[(ends - 2)[with_system]] = codes[with_system]
            content = pa.concat_arrays([self._texts["system"], messages]).take(pa.array(found))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        values = pa.StructArray.from_arrays([role, content], fields=list(_MESSAGE))
        return pa.ListArray.from_arrays(offsets, values, type=_PROMPT)


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _where(mask: "np.ndarray[tuple[int], np.dtype[np.bool_]]", texts: pa.Array) -> pa.Array:
    """The texts where the mask is set, null elsewhere."""
    if mask.all():
        return texts
    if not mask.any():
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(pa.array(mask), texts, pa.scalar(None, pa.string()))
