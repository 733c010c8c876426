"""Statistics of a dataset file: the lengths of its prompts and answers, and the number of rows of each kind.

The file is read once, batch by batch; percentiles are exact. It needs only the columns that training needs, and fields
that its rows lack are not counted.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aworld_train.dataset.check import count_several_answers, open_parquet, read_batches, value_counts
from aworld_train.dataset.lengths import percentiles, prompt_lengths, prompt_tokenizer
from aworld_train.dataset.schema import check_schema
from aworld_train.errors import DatasetError

COUNTED = ("data_source", "scorer", "answer_schema", "level", "split")

ANSWER_KINDS = ("number", "yes-no", "list", "latex", "code", "short text", "long text")
SHORT_WORDS = 10

_NUMBER = re.compile(
    r"[-+−]?\s*[$€£¥]?\s*[-+−]?(\d[\d,]*(\.\d+)?|\.\d+)([eE][-+]?\d+)?(\s*/\s*\d+)?\s*[%€$£¥°]?"
)
_LATEX = re.compile(r"\\[a-zA-Z]+|\$[^$]+\$|\\[\[(]")
_CODE = re.compile(
    r"```|^\s*(def|class|import|from|assert|return|for|while|if|#include|function|SELECT)\b.*[:;()]", re.M
)
_WORDS_OF_AN_ITEM = 5
_SLICE_ROWS = 256  # rows as Python objects take much more memory than as columns


@dataclass(frozen=True)
class DatasetStatistics:
    """The counts and lengths of a file.

    ``counts`` has rows by value, for each of `COUNTED` that rows have. ``lengths`` has how often each length occurs, by
    what is measured. ``duplicates`` are rows whose prompt equals an earlier one's.
    """

    path: Path
    rows: int
    counts: Mapping[str, Mapping[str, int]]
    answer_kinds: Mapping[str, int]
    lengths: Mapping[str, Mapping[int, int]]
    duplicates: int
    unanswered: int
    several_answers: int

    def to_json(self) -> dict[str, Any]:
        lengths = {measure: percentiles(counts) for measure, counts in self.lengths.items()}
        return {**asdict(self), "path": str(self.path), "lengths": lengths}


def statistics(
    path: str | Path, model: str | Path | None = None, note: Callable[[str], None] = lambda _: None
) -> DatasetStatistics:
    path = Path(path)
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        tokenizer = None if model is None else prompt_tokenizer(Path(model), note)
        counting = _Counting(tokenizer)
        note(f"Measuring {file.metadata.num_rows:,} rows.")
        for batch in read_batches(file, path, ["data_source", "prompt", "reward_model", "extra_info"]):
            counting.count(batch)
            for start in range(0, len(batch), _SLICE_ROWS):
                counting.add(batch.slice(start, _SLICE_ROWS).to_pylist())
    if not counting.rows:
        raise DatasetError(f"{path} has no rows. Build the dataset from more input, or with another split.")
    return counting.statistics(path)


@dataclass
class _Counting:
    tokenizer: Any
    rows: int = 0
    unanswered: int = 0
    several_answers: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in COUNTED})
    answer_kinds: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    prompts: "array[int]" = field(default_factory=lambda: array("Q"))

    def count(self, batch: pa.RecordBatch) -> None:
        self.rows += len(batch)
        self.several_answers += count_several_answers(batch)
        for name, counter in self.counts.items():
            counter.update(value_counts(batch, name))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        prompts = [[message for message in row["prompt"] if message] for row in rows if row["prompt"]]
        answers = [(row["reward_model"] or {}).get("ground_truth") for row in rows]
        texts = ["\n".join(message["content"] or "" for message in prompt) for prompt in prompts]
        self.prompts.extend(map(_fingerprint, texts))
        self._measure("prompt characters", map(len, texts))
        self._measure("answer characters", (len(answer) for answer in answers if answer))
        if self.tokenizer is not None:
            self._measure("prompt tokens", prompt_lengths(self.tokenizer, prompts))
            encoded = (
                self.tokenizer.encode(answer, add_special_tokens=False) for answer in answers if answer
            )
            self._measure("answer tokens", map(len, encoded))
        for row, answer in zip(rows, answers, strict=True):
            if answer:
                scorer = (row["extra_info"] or {}).get("scorer")
                self.answer_kinds[answer_kind(answer, str(scorer or ""))] += 1
            else:
                self.unanswered += 1

    def statistics(self, path: Path) -> DatasetStatistics:
        return DatasetStatistics(
            path=path,
            rows=self.rows,
            counts={name: dict(counter.most_common()) for name, counter in self.counts.items() if counter},
            answer_kinds=dict(self.answer_kinds.most_common()),
            lengths={measure: dict(sorted(counts.items())) for measure, counts in self.lengths.items()},
            duplicates=len(self.prompts) - len(np.unique(np.array(self.prompts, dtype=np.uint64))),
            unanswered=self.unanswered,
            several_answers=self.several_answers,
        )

    def _measure(self, measure: str, lengths: Iterable[int]) -> None:
        if counts := Counter(lengths):
            self.lengths.setdefault(measure, Counter()).update(counts)


def _fingerprint(prompt: str) -> int:
    text = " ".join(prompt.casefold().split())
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def answer_kind(answer: str, scorer: str = "") -> str:
    """What a scorer has to compare: one of `ANSWER_KINDS`, guessed from the answer's text.

    What the scorer ``code_tests`` compares is always code. A list has items with commas or semicolons between them, or
    is a JSON list; `1,000` is a number.
    """
    text = answer.strip()
    if scorer == "code_tests" or _CODE.search(text):
        return "code"
    if _NUMBER.fullmatch(text):
        return "number"
    if text.casefold().rstrip(".") in ("yes", "no", "true", "false"):
        return "yes-no"
    if _LATEX.search(text):
        return "latex"
    if _is_list(text):
        return "list"
    return "short text" if len(text.split()) <= SHORT_WORDS else "long text"


def _is_list(text: str) -> bool:
    if text.startswith("["):
        try:
            return isinstance(json.loads(text), list)
        except ValueError:
            return False
    items = re.split(r"[,;]\s*", text)
    return len(items) > 1 and all(0 < len(item.split()) <= _WORDS_OF_AN_ITEM for item in items)
