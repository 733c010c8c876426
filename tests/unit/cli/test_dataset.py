"""`aworld-train dataset`: tables for people, one JSON object for scripts."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rich.console
from typer.testing import CliRunner

from aworld_train.cli import console
from aworld_train.cli.dataset import app
from aworld_train.dataset.schema import SCHEMA
from aworld_train.errors import DatasetError, UsageError
from tests.locations import GSM8K_ODD


@pytest.fixture(autouse=True)
def wide_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", rich.console.Console(highlight=False, width=200))


def run(*arguments: str | Path) -> str:
    """What the command prints on stdout; an error it raises is raised here."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_build_prints_the_account_of_counts_and_drops(tmp_path: Path) -> None:
    text = run("build", "gsm8k", "--file", GSM8K_ODD, "--out", tmp_path / "out")
    for line in ("train", "val", "dropped: result disagrees", "merged", "seen"):
        assert line in text
    assert "61" in text


def test_build_with_json_prints_one_object_and_nothing_else(tmp_path: Path) -> None:
    text = run("build", "arithmetic", "--out", tmp_path / "out", "--limit", "50", "--seed", "4", "--json")
    report = json.loads(text)
    assert report["out"] == str(tmp_path / "out")
    assert report["rows"] == {"train": 45, "val": 5}
    assert report["seed"] == 4


def test_build_counts_other_figures_apart_and_shows_one(tmp_path: Path) -> None:
    text = "A baker sells {} rolls in the morning and {} in the afternoon; how many does she sell in one day?"
    rows = [{"query": text.format(number, number + 5), "answer": "1"} for number in range(10, 30)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["build", "jsonl", "--file", str(source), "--out", str(tmp_path / "out"), "--dedupe"]
    arguments += ["--split", "all=1"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "19 questions differ from another in their numbers alone and stay." in result.stderr
    assert result.stderr.count("has the words and not the figures of ") == 1
    result = CliRunner().invoke(app, [*arguments, "--figure-variants", "drop"], catch_exceptions=False)
    assert "and stay" not in result.stderr
    (line,) = (line for line in result.stdout.splitlines() if "another question with other numbers" in line)
    assert "19" in line


@pytest.mark.parametrize(
    "splits",
    [["--split", "a=0.5", "--split", "b=0.3"], ["--split", "a=0.5,b=0.3"], ["--split", "a=0.5 b=0.3"]],
)
def test_splits_can_be_given_one_by_one_or_together(tmp_path: Path, splits: list[str]) -> None:
    text = run("build", "arithmetic", "--out", tmp_path / "out", "--limit", "50", "--json", *splits)
    assert json.loads(text)["rows"] == {"a": 25, "b": 15}
    assert json.loads(text)["left_over"] == 10


def test_several_files_and_reference_datasets_can_be_given(tmp_path: Path) -> None:
    run("build", "arithmetic", "--out", tmp_path / "a", "--limit", "20")
    text = run(
        "build",
        "gsm8k",
        "--file",
        GSM8K_ODD,
        "--file",
        GSM8K_ODD,
        "--against",
        tmp_path / "a",
        "--against",
        tmp_path / "a" / "val.parquet",
        "--out",
        tmp_path / "b",
        "--json",
    )
    report = json.loads(text)
    assert [item["name"] for item in report["sources"][0]["files"]] == ["gsm8k_odd.jsonl"]
    assert [item["name"] for item in report["against_files"]] == [
        "train.parquet",
        "val.parquet",
        "val.parquet",
    ]
    assert report["seen"] == 122


def test_check_and_show_say_what_is_in_a_file(tmp_path: Path) -> None:
    run("build", "gsm8k", "--file", GSM8K_ODD, "--out", tmp_path / "out", "--split", "all=1")
    file = tmp_path / "out" / "all.parquet"
    assert json.loads(run("check", file, "--json"))["rows"] == 25
    assert "gsm8k_annotations" in run("check", file)
    shown = json.loads(run("show", file, "-n", "3", "--json"))
    assert [row["extra_info"]["index"] for row in shown["rows"]] == [0, 1, 2]
    assert "What is 48/2?" in run("show", file, "-n", "25")


def test_a_file_that_fails_the_check_can_still_be_looked_at(tmp_path: Path) -> None:
    row = {"data_source": "arithmetic"}
    pq.write_table(pa.Table.from_pylist([row], schema=SCHEMA), tmp_path / "holes.parquet")
    with pytest.raises(DatasetError, match="row 0"):
        run("check", tmp_path / "holes.parquet")
    assert "arithmetic" in run("show", tmp_path / "holes.parquet")


def test_check_says_how_long_prompts_are_and_how_many_are_too_long(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models import shipped_tokenizer

    shipped_tokenizer().save_pretrained(tmp_path / "model")
    run(
        "build",
        "gsm8k",
        "--file",
        GSM8K_ODD,
        "--tasks",
        "questions",
        "--out",
        tmp_path / "out",
        "--split",
        "all=1",
    )
    file = tmp_path / "out" / "all.parquet"
    rows = json.loads(run("check", file, "--json"))["rows"]
    checked = CliRunner().invoke(
        app, ["check", str(file), "--model", str(tmp_path / "model"), "--max-prompt-tokens", "5"]
    )
    text = checked.stdout
    assert checked.stderr.splitlines() == [
        f"Loading the tokenizer of {tmp_path / 'model'}.",
        f"Counting the tokens of {rows} prompts.",
    ]
    assert "p99" in text and f"{rows} prompts are longer than 5 tokens" in text
    with pytest.raises(UsageError, match="give --model"):
        run("check", file, "--max-prompt-tokens", "5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--map", "query"], "not field=column"),
        (["--map", "query=a", "--map", "query=b"], "gives the field 'query' twice"),
        (["--system-prompt", "nowhere.txt"], "nowhere.txt cannot be read"),
    ],
)
def test_options_that_cannot_be_read_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run("build", "jsonl", "--file", GSM8K_ODD, "--out", tmp_path / "out", *options)


def test_without_a_directory_a_dataset_goes_below_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("build", "arithmetic", "--limit", "20")
    assert (tmp_path / "data" / "arithmetic" / "train.parquet").is_file()


def test_the_report_says_levels_and_what_was_left_out(tmp_path: Path) -> None:
    rows = [{"query": f"Question {i}?", "answer": "1", "level": str(1 + i % 2)} for i in range(20)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"query": "No answer?"}]))
    text = run("build", "jsonl", "--file", source, "--out", tmp_path / "out", "--split", "a=0.5")
    for part in ("level 1", "level 2", "left over: beyond", "dropped: no answer"):
        assert part in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_path_and_no_name_is_wrapped_or_cut_at_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    narrow = rich.console.Console(force_terminal=is_terminal, width=80, color_system=None)
    monkeypatch.setattr(console, "out", narrow)
    folder, source = tmp_path / ("folder" * 20), "source" * 20
    question = {"query": "What is 1 + 1?", "answer": "2", "data_source": source}
    (tmp_path / "in.jsonl").write_text(json.dumps(question) + "\n")
    built = run("build", "jsonl", "--file", tmp_path / "in.jsonl", "--out", folder).splitlines()
    file = folder / "train.parquet"
    assert ["train", "1", str(file)] in [line.split() for line in built]
    assert "left out: contains a question of --against, or is a part of one      0" in built
    checked = run("check", file).splitlines()
    assert checked[0] == str(file) and f"data_source {source}     1" in checked
    counted = run("stats", file).splitlines()
    assert counted[0] == f"{file}: lengths"
    assert ["data_source", source, "1", "100.0%"] in [line.split() for line in counted]


def test_text_in_a_file_is_shown_as_it_is_and_not_as_markup(tmp_path: Path) -> None:
    source = tmp_path / "markup.jsonl"
    source.write_text(json.dumps({"question": "What is [bold]x[/bold] [/] here?", "answer": "#### 1"}))
    arguments = ("build", "gsm8k", "--file", source, "--tasks", "questions", "--split", "all=1")
    run(*arguments, "--out", tmp_path / "out")
    assert "What is [bold]x[/bold] [/] here?" in run("show", tmp_path / "out" / "all.parquet")


def test_errors_reach_the_command_line_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="No such dataset file"):
        run("check", tmp_path / "nowhere.parquet", "--json")
    with pytest.raises(UsageError, match="not name=fraction"):
        run("build", "arithmetic", "--out", tmp_path / "out", "--split", "train")


@pytest.mark.parametrize("command", ["build", "check", "show", "stats"])
def test_help_shows_an_example(command: str) -> None:
    assert f"aworld-train dataset {command}" in run(command, "--help")
