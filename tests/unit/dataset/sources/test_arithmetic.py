"""Generated arithmetic: as simple and as varied as GSM8K's annotations, and the same for the same seed."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build
from aworld_train.dataset.expressions import evaluate, normalize
from aworld_train.dataset.sources.arithmetic import MAX_RESULT, arithmetic_tasks
from aworld_train.errors import DatasetError, UsageError


def test_the_stream_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    first, again, other = (list(islice(arithmetic_tasks(seed), 50)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_expressions_are_canonical_and_answers_are_their_exact_values() -> None:
    for task in islice(arithmetic_tasks(0), 2000):
        assert normalize(task.subject) == task.subject
        assert evaluate(task.answer) == evaluate(task.subject)
        assert 0 <= evaluate(task.subject) < MAX_RESULT


def test_the_spread_is_that_of_gsm8k_annotations() -> None:
    expressions = [task.subject for task in islice(arithmetic_tasks(0), 4000)]
    operators = Counter(len(re.findall(r"[-+*/]", text)) for text in expressions)
    assert set(operators) == {1, 2, 3}
    assert 0.65 < operators[1] / 4000 < 0.85
    assert 0.01 < sum("(" in text for text in expressions) / 4000 < 0.1
    assert 0.02 < sum("." in text for text in expressions) / 4000 < 0.25
    assert sum(evaluate(text).denominator == 1 for text in expressions) > 0.85 * 4000
    assert all(f"{sign}" in "".join(expressions) for sign in "+-*/")


def test_as_many_distinct_tasks_are_made_as_asked_for(tmp_path: Path) -> None:
    report = build("arithmetic", tmp_path / "out", limit=300, seed=5)
    assert report.rows == {"train": 270, "val": 30}
    expressions = {
        info["expression"]
        for name in report.rows
        for info in pq.read_table(tmp_path / "out" / f"{name}.parquet")["extra_info"].to_pylist()
    }
    assert len(expressions) == 300


def test_without_a_limit_four_thousand_tasks_are_made(tmp_path: Path) -> None:
    assert sum(build("arithmetic", tmp_path / "out").rows.values()) == 4000


def test_more_tasks_than_there_are_is_an_error_and_no_endless_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = next(arithmetic_tasks(0))
    monkeypatch.setattr(
        "aworld_train.dataset.sources.arithmetic.arithmetic_tasks",
        lambda seed, judging: (one for _ in iter(int, 1)),
    )
    with pytest.raises(DatasetError, match="Only 1 distinct tasks were found for --limit 2"):
        build("arithmetic", tmp_path / "out", limit=2)


@pytest.mark.parametrize("options", [{"files": ["train.jsonl"]}, {"tasks": "questions"}])
def test_options_of_gsm8k_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        build("arithmetic", tmp_path / "out", **options)
