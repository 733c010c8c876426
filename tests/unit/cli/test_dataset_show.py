"""`dataset show`: a row is read from top to bottom, and nothing in it can pass for something else."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rich.console
import typer
from typer.testing import CliRunner

from aworld_train.cli import console
from aworld_train.cli.dataset import ANSWER_CHARACTERS, MESSAGE_CHARACTERS, show_command
from aworld_train.dataset.schema import SCHEMA
from aworld_train.errors import DatasetError

app = typer.Typer()
app.command("show")(show_command)


@pytest.fixture(autouse=True)
def console_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", rich.console.Console(highlight=False, width=100))


def row(index: int, question: str = "How many?", answer: str | None = "7", **info: Any) -> dict[str, Any]:
    extra_info = {
        "index": index,
        "id": f"task-{index}",
        "split": "val",
        "scorer": "gaia",
        "answer_schema": "answer",
    }
    return {
        "data_source": "gaia",
        "agent_name": "react",
        "prompt": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": question}],
        "ability": "assistant",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": extra_info | info,
    }


def file_of(folder: Path, *rows: dict[str, Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), folder / "val.parquet")
    return folder / "val.parquet"


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_row_is_a_panel_of_what_it_is_then_its_messages_then_its_answer(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        row(12, level="2", file="metadata.jsonl", line=40, attachments=["/files/a.xlsx", "/files/b"]),
    )
    text = run(file)
    expected = ("task 12", "gaia", "task-12", "val", "2", "gaia", "answer", "/files/a.xlsx", "/files/b")
    expected += ("metadata.jsonl:40", "system", "Use tools.", "user", "How many?", "answer", "7")
    at = 0
    for piece in expected:
        at = text.index(piece, at) + len(piece)


def test_long_lines_are_wrapped_inside_the_panel(tmp_path: Path) -> None:
    text = run(file_of(tmp_path, row(0, "word " * 100)))
    assert {len(line) for line in text.splitlines()} == {100}
    assert text.count("word") == 100


def test_a_long_text_is_cut_and_says_what_is_left_unless_all_is_asked_for(tmp_path: Path) -> None:
    file = file_of(tmp_path, row(0, "q" * (MESSAGE_CHARACTERS + 1234), "a" * (ANSWER_CHARACTERS + 56)))
    text, full = run(file), run(file, "--full")
    assert "1,234 more characters (--full)" in text
    assert "56 more characters (--full)" in text
    assert "more characters" not in full
    assert full.count("q") == MESSAGE_CHARACTERS + 1234
    exact = file_of(tmp_path, row(0, "q" * MESSAGE_CHARACTERS))
    assert "more characters" not in run(exact)


def test_one_row_can_be_asked_for_by_its_index(tmp_path: Path) -> None:
    file = file_of(tmp_path, *(row(index, f"question {index}") for index in range(9)))
    assert "question 7" in run(file, "--index", "7")
    assert "question 6" not in run(file, "--index", "7")
    assert [r["extra_info"]["index"] for r in json.loads(run(file, "--index", "7", "--json"))["rows"]] == [7]
    with pytest.raises(DatasetError, match="no task 9: its tasks are 0 to 8"):
        run(file, "--index", "9")


def test_as_many_rows_are_shown_as_asked_for_and_json_holds_them_whole(tmp_path: Path) -> None:
    rows = [row(index, f"question {index}", attachments=["/a"]) for index in range(9)]
    file = file_of(tmp_path, *rows)
    assert run(file, "-n", "3").count("question") == 3
    assert run(file).count("question") == 5
    shown = json.loads(run(file, "-n", "20", "--json"))
    assert shown["file"] == str(file)
    assert [r["prompt"] for r in shown["rows"]] == [r["prompt"] for r in rows]


def test_neither_markup_nor_terminal_codes_in_a_text_are_obeyed(tmp_path: Path) -> None:
    file = file_of(tmp_path, row(0, "[bold]x[/bold] [/] \x1b[2J\x07\r\x9b31m end", "[red]7[/red]"))
    text = run(file)
    assert "[bold]x[/bold] [/] ␛[2J␇␍␛31m end" in text
    assert "[red]7[/red]" in text
    assert "\x1b" not in text


def test_a_row_with_holes_is_shown_and_says_what_is_missing(tmp_path: Path) -> None:
    for row in ({"data_source": "gaia"}, {"data_source": "gaia", "prompt": [None]}):
        text = run(file_of(tmp_path, row))
        assert "without index" in text
        assert "there is none" in text


def test_a_file_of_another_maker_is_shown_with_its_own_fields(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(
        [
            {
                "data_source": "theirs",
                "prompt": [{"role": "user", "content": "Say 4."}],
                "reward_model": {"ground_truth": "4"},
                "extra_info": {"index": 3, "difficulty": 0.25, "topic": "counting"},
            }
        ]
    )
    pq.write_table(table, tmp_path / "theirs.parquet")
    text = run(tmp_path / "theirs.parquet")
    for piece in ("task 3", "theirs", "difficulty", "0.25", "topic", "counting", "Say 4.", "4"):
        assert piece in text


def test_an_empty_file_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file_of(tmp_path)) == ""
    assert json.loads(run(file_of(tmp_path), "--json"))["rows"] == []
