"""`dataset stats`: every number equals a count by hand, and the picture is a valid image."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rich.console
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from aworld_train.cli import console
from aworld_train.cli.dataset import stats_command
from aworld_train.dataset.histogram import draw_statistics
from aworld_train.dataset.schema import SCHEMA
from aworld_train.dataset.statistics import ANSWER_KINDS, answer_kind, percentiles, statistics
from aworld_train.errors import DatasetError, DependencyMissing, ModelError, UsageError

PNG = b"\x89PNG\r\n\x1a\n"

app = typer.Typer()
app.command("stats")(stats_command)


@pytest.fixture(autouse=True)
def wide_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", rich.console.Console(highlight=False, width=160))


def row(index: int, question: str, answer: str | None = "7", **info: Any) -> dict[str, Any]:
    return {
        "data_source": "gaia",
        "prompt": [{"role": "system", "content": "Go."}, {"role": "user", "content": question}],
        "reward_model": {"ground_truth": answer},
        "extra_info": {"index": index, **info},
    }


def file_of(folder: Path, rows: Sequence[dict[str, Any]], name: str = "val.parquet") -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), folder / name)
    return folder / name


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        row(0, "a" * 10, "12", level="1", scorer="gaia", answer_schema="answer", split="val"),
        row(1, "a" * 20, "yes", level="2", scorer="gaia", answer_schema="answer", split="val"),
        row(2, "A" * 20 + "  ", "a, b, c", level="2", scorer="gaia", answer_schema="answer", split="val"),
        row(3, "a" * 40, None, scorer="llm_judge", answer_schema="boxed", split="test"),
    ]
    return file_of(tmp_path, rows)


def test_rows_are_counted_by_what_they_name(file: Path) -> None:
    found = statistics(file)
    assert found.rows == 4
    assert found.counts == {
        "data_source": {"gaia": 4},
        "scorer": {"gaia": 3, "llm_judge": 1},
        "answer_schema": {"answer": 3, "boxed": 1},
        "level": {"2": 2, "1": 1},
        "split": {"val": 3, "test": 1},
    }
    assert found.answer_kinds == {"number": 1, "yes-no": 1, "list": 1}
    assert found.unanswered == 1


def test_lengths_are_of_all_messages_of_a_prompt_and_of_the_answers_there_are(file: Path) -> None:
    found = statistics(file)
    assert found.lengths == {
        "prompt characters": {14: 1, 24: 1, 26: 1, 44: 1},
        "answer characters": {2: 1, 3: 1, 7: 1},
    }


def test_a_prompt_that_comes_again_in_other_case_and_spacing_is_a_repeat(file: Path) -> None:
    assert statistics(file).duplicates == 1


def test_tokens_are_the_models_own(tmp_path: Path, file: Path) -> None:
    from transformers import AutoTokenizer

    from tests.templates import tokenizer as tokenizer_of

    model = tmp_path / "model"
    tokenizer_of("chatml_tools").save_pretrained(str(model))
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    found = statistics(file, model)
    rows = pq.read_table(file).to_pylist()
    lengths = sorted(
        len(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False))
        for row in rows
    )
    assert sorted(found.lengths["prompt tokens"]) == sorted(set(lengths))
    assert sum(found.lengths["answer tokens"].values()) == 3
    with pytest.raises(ModelError, match="No such model directory"):
        statistics(file, tmp_path / "nowhere")


@given(st.lists(st.integers(0, 200), min_size=1))
def test_a_percentile_is_the_least_length_that_so_many_rows_do_not_exceed(lengths: list[int]) -> None:
    found = percentiles({length: lengths.count(length) for length in lengths})
    assert found["min"] == min(lengths)
    assert found["max"] == max(lengths)
    for percent in (50, 90, 99):
        value = found[f"p{percent}"]
        assert value in lengths
        assert 100 * sum(length <= value for length in lengths) >= percent * len(lengths)
        assert 100 * sum(length < value for length in lengths) < percent * len(lengths)


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("number", ["7", "-3.5", "1,024", "$ 5.00", "40%", "3/4", "6.02e23", ".5", " 12 "]),
        ("yes-no", ["yes", "No", "TRUE", "false."]),
        ("list", ["a, b", "salt; pepper; thyme", '["a", "b"]', "1, 2, 3"]),
        ("latex", [r"\boxed{7}", r"\frac{1}{2}", "$x^2$", r"\(x\)"]),
        ("code", ["```python\nx\n```", "def f(x):\n    return x", "assert f(1) == 2"]),
        (
            "short text",
            ["Paris", "a sea turtle", "2nd of May", "What, if anything, did he find in there at last"],
        ),
        ("long text", ["one two three four five six seven eight nine ten eleven"]),
    ],
)
def test_an_answer_is_of_the_kind_a_person_would_call_it(kind: str, answers: list[str]) -> None:
    assert {answer: answer_kind(answer) for answer in answers} == dict.fromkeys(answers, kind)


def test_what_code_tests_scores_is_code() -> None:
    assert answer_kind('{"tests": "assert f() == 1"}', "code_tests") == "code"


@given(st.text())
def test_every_answer_is_of_one_kind(answer: str) -> None:
    assert answer_kind(answer) in ANSWER_KINDS


def test_the_command_prints_tables_and_draws_beside_the_file(file: Path) -> None:
    text = run(file)
    for piece in ("prompt characters", "p50", "p99", "llm_judge", "75.0%", "repeats of a prompt", "yes-no"):
        assert piece in text
    assert (file.parent / "val.stats.png").read_bytes().startswith(PNG)


def test_of_many_values_the_most_frequent_are_listed_and_none_is_obeyed(tmp_path: Path) -> None:
    rows = [row(i, f"q {i}", level=f"L{i:02}\x1b[2J", scorer="[red]mine") for i in range(30)]
    text = run(file_of(tmp_path, [*rows, row(30, "q", level="L29\x1b[2J")]))
    assert "10 others" in text
    assert "L29\\x1b[2J" in text
    assert "[red]mine" in text
    assert "\x1b" not in text


def test_with_json_there_is_one_object_that_says_where_the_picture_is(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "mine.png"
    found = json.loads(run(file, "--json", "--out", picture))
    assert found["rows"] == 4
    assert found["counts"]["level"] == {"2": 2, "1": 1}
    assert found["lengths"]["prompt characters"] == {"min": 14, "p50": 24, "p90": 44, "p99": 44, "max": 44}
    assert found["picture"] == str(picture)
    assert picture.read_bytes().startswith(PNG)
    assert not (file.parent / "val.stats.png").exists()


@pytest.mark.parametrize(
    "rows",
    [
        [row(0, "one")],
        [row(0, "", ""), {"data_source": "x"}, {"data_source": "x", "prompt": [None]}],
        [row(i, "q" * 10 ** min(i, 6), "$x$ {", level=f"${i}$ level with a long name") for i in range(12)],
        [row(i, "q" * i, f"{i}", scorer=f"own.py:f_{i}") for i in range(60)],
    ],
    ids=["one row", "holes", "skewed and many levels", "many scorers"],
)
def test_a_picture_is_drawn_of_any_file(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    run(file_of(tmp_path, rows), "--out", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)


def test_a_file_of_another_maker_is_counted_by_what_it_says(tmp_path: Path) -> None:
    info = {"index": 3, "level": 4, "difficulty": 0.25}
    table = pa.Table.from_pylist([row(0, "Say 4.", "4") | {"extra_info": info}])
    pq.write_table(table, tmp_path / "theirs.parquet")
    found = statistics(tmp_path / "theirs.parquet")
    assert found.counts == {"data_source": {"gaia": 1}, "level": {"4": 1}}


def test_an_empty_file_has_no_statistics(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no rows"):
        statistics(file_of(tmp_path, []))


def test_without_matplotlib_the_tables_are_printed_and_a_picture_asked_for_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "prompt characters" in run(file)
    assert json.loads(run(file, "--json"))["picture"] is None
    with pytest.raises(DependencyMissing, match="pip install matplotlib"):
        run(file, "--out", tmp_path / "p.png")


def test_a_picture_that_cannot_be_written_is_a_usage_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        draw_statistics(statistics(file), tmp_path / "a-file" / "p.png")


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    import tracemalloc

    draw = random.Random(0)
    rows = [row(i, f"{i} " + draw.choice("abc") * 20_000) for i in range(3000)]
    path = tmp_path / "large.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, row_group_size=100)
    del rows
    tracemalloc.start()
    statistics(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30e6  # of 60 MB of text
