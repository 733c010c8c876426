"""What a dataset file is like: how long its prompts and answers are, and how many rows there are of each kind.

One pass over the file, batch by batch. Kept are counts, one for each length and value that occurs, and eight
bytes for each row, by which repeated prompts are found; percentiles are exact. Only what training needs is
expected of a file, so it may come from another maker; what its rows do not say is not counted.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from aworld_train.dataset.answer_kinds import answer_kind
from aworld_train.dataset.check import open_parquet, read_batches
from aworld_train.dataset.lengths import prompt_tokenizer
from aworld_train.dataset.schema import check_schema
from aworld_train.errors import DatasetError

PERCENTILES = (50, 90, 99)
COUNTED = ("data_source", "scorer", "answer_schema", "level", "split")

_ROWS_AT_ONCE = 256  # as Python objects, which take more room than the columns they come from


@dataclass(frozen=True)
class DatasetStatistics:
    """The counts and lengths of a file.

    Attributes:
        path: The file.
        rows: How many rows it has.
        counts: Rows by value, for each of `COUNTED` that rows name.
        answer_kinds: Rows by the kind of their answer.
        lengths: How often each length occurs: of ``prompt characters``, ``answer characters``, and with a
            model ``prompt tokens`` and ``answer tokens``.
        duplicates: Rows whose prompt is that of an earlier row but for case and spacing.
        unanswered: Rows without an answer.
    """

    path: Path
    rows: int
    counts: Mapping[str, Mapping[str, int]]
    answer_kinds: Mapping[str, int]
    lengths: Mapping[str, Mapping[int, int]]
    duplicates: int
    unanswered: int

    def to_json(self) -> dict[str, Any]:
        """The statistics as JSON values, lengths as their percentiles."""
        found = {measure: percentiles(counts) for measure, counts in self.lengths.items()}
        return {**asdict(self), "path": str(self.path), "lengths": found}


def statistics(path: str | Path, model: str | Path | None = None) -> DatasetStatistics:
    """Read a file once and count.

    Args:
        path: A parquet file that training can read.
        model: Directory of a model whose tokens lengths are measured in as well; a prompt as its chat template
            writes it.

    Raises:
        DatasetError: The file is missing, unreadable, of another schema, or has no rows.
        ModelError: The model has no tokenizer with a chat template.
    """
    path = Path(path)
    tokenizer = None if model is None else prompt_tokenizer(Path(model))
    counting = _Counting(tokenizer)
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        for batch in read_batches(file, path, ["data_source", "prompt", "reward_model", "extra_info"]):
            for start in range(0, len(batch), _ROWS_AT_ONCE):
                counting.add(batch.slice(start, _ROWS_AT_ONCE).to_pylist())
    if not counting.rows:
        raise DatasetError(f"{path} has no rows. Build the dataset from more input, or with another split.")
    return counting.statistics(path)


def percentiles(counts: Mapping[int, int]) -> dict[str, int]:
    """``min``, ``p50``, ``p90``, ``p99`` and ``max`` of lengths counted; each is a length that occurs."""
    lengths = sorted(counts)
    up_to = list(accumulate(counts[length] for length in lengths))
    found = {"min": lengths[0]}
    for percent in PERCENTILES:
        found[f"p{percent}"] = next(
            length for length, count in zip(lengths, up_to, strict=True) if count * 100 >= percent * up_to[-1]
        )
    return {**found, "max": lengths[-1]}


@dataclass
class _Counting:
    tokenizer: Any
    rows: int = 0
    unanswered: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in COUNTED})
    answer_kinds: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    prompts: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows += len(rows)
        prompts = [[message for message in row["prompt"] if message] for row in rows if row["prompt"]]
        answers = [(row["reward_model"] or {}).get("ground_truth") for row in rows]
        texts = ["\n".join(message["content"] or "" for message in prompt) for prompt in prompts]
        self.prompts.extend(map(_fingerprint, texts))
        self._measure("prompt characters", map(len, texts))
        self._measure("answer characters", (len(answer) for answer in answers if answer))
        if self.tokenizer is not None:
            self._measure("prompt tokens", map(self._prompt_tokens, prompts))
            found = (self.tokenizer.encode(answer, add_special_tokens=False) for answer in answers if answer)
            self._measure("answer tokens", map(len, found))
        for row, answer in zip(rows, answers, strict=True):
            said = {**(row["extra_info"] or {}), "data_source": row["data_source"]}
            for name, counter in self.counts.items():
                # Other makers have fields of these names that hold numbers.
                if (value := said.get(name)) not in (None, ""):
                    counter[str(value)] += 1
            if answer:
                self.answer_kinds[answer_kind(answer, str(said.get("scorer") or ""))] += 1
            else:
                self.unanswered += 1

    def statistics(self, path: Path) -> DatasetStatistics:
        return DatasetStatistics(
            path=path,
            rows=self.rows,
            counts={name: dict(counter.most_common()) for name, counter in self.counts.items() if counter},
            answer_kinds=dict(self.answer_kinds.most_common()),
            lengths={measure: dict(sorted(counts.items())) for measure, counts in self.lengths.items()},
            duplicates=_repeated(self.prompts),
            unanswered=self.unanswered,
        )

    def _measure(self, measure: str, lengths: Iterable[int]) -> None:
        if found := Counter(lengths):
            self.lengths.setdefault(measure, Counter()).update(found)

    def _prompt_tokens(self, prompt: Sequence[Mapping[str, str]]) -> int:
        messages = [{"role": message["role"], "content": message["content"] or ""} for message in prompt]
        return len(
            self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        )


def _fingerprint(prompt: str) -> int:
    text = " ".join(prompt.casefold().split())
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def _repeated(fingerprints: "array[int]") -> int:
    return (
        len(fingerprints) - len(np.unique(np.frombuffer(fingerprints, dtype=np.uint64)))
        if fingerprints
        else 0
    )
