"""What an evaluation leaves: files that other programs read, with texts that do no harm in them."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from aworld_train.cli.evaluate import report as report_command
from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.report.attempts_table import SCHEMA, write_table
from aworld_train.evaluation.report.inspect_log import write_inspect_log
from aworld_train.evaluation.report.markdown import escaped, markdown_report
from aworld_train.evaluation.results import open_evaluation
from aworld_train.view.eval_report import write_html, write_reports
from tests.evaluations import make_evaluation

HOSTILE = "<script>alert(1)</script>|`x`[a](http://b.c)\n# h\x1b[31m\u202e</textarea><!-- ]]> \u2028."


def members(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_the_table_has_a_row_an_attempt_with_its_tasks_columns(tmp_path: Path) -> None:
    make_evaluation(tmp_path, tasks=3, attempts=2, score=lambda index, number: None if index == 2 else 1.0)
    evaluation = open_evaluation("eval-one", tmp_path)
    write_table(evaluation, tmp_path / "results.parquet")
    table = parquet.read_table(tmp_path / "results.parquet")
    assert table.schema.equals(SCHEMA)
    assert all(field.metadata[b"doc"] for field in table.schema)
    rows = table.to_pylist()
    assert sorted((row["index"], row["attempt"]) for row in rows) == [
        (i, n) for i in range(3) for n in range(2)
    ]
    first = next(row for row in rows if (row["index"], row["attempt"]) == (1, 1))
    assert (first["level"], first["source"], first["tags"]) == ("2", "warehouse", ["word problem"])
    assert (first["score"], first["seed"], first["answer"]) == (1.0, 1001, "130")
    assert dict(first["parts"]) == {"format": 1.0}
    assert [row["score"] for row in rows if row["index"] == 2] == [None, None]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["results.parquet"]


def test_halves_of_surrogate_pairs_do_not_stop_the_table(tmp_path: Path) -> None:
    make_evaluation(tmp_path, tasks=1, attempts=1)
    evaluation = open_evaluation("eval-one", tmp_path)
    (attempt,) = evaluation.attempts
    attempt.figures.extracted = "a\ud800b"
    write_table(evaluation, tmp_path / "results.parquet")
    assert parquet.read_table(tmp_path / "results.parquet").column("answer").to_pylist() == ["a?b"]


def test_an_attempt_is_the_epoch_with_its_number(tmp_path: Path) -> None:
    make_evaluation(
        tmp_path,
        tasks=2,
        attempts=3,
        score=lambda index, number: None if (index, number) == (1, 2) else float(number > 0),
        leave_out=lambda index, number: (index, number) == (0, 1),
        top_k=20,
    )
    counts = write_inspect_log(open_evaluation("eval-one", tmp_path), tmp_path / "inspect.eval")
    assert counts is not None and counts.entries == 5
    log = members(tmp_path / "inspect.eval")
    header = log["header.json"]
    epochs = sorted((each["id"].partition("-")[0], each["epoch"]) for each in log["summaries.json"])
    assert epochs == [("0", 1), ("0", 3), ("1", 1), ("1", 2), ("1", 3)]
    assert header["status"] == "cancelled"
    assert header["eval"]["config"]["epochs"] == 3
    assert header["eval"]["dataset"]["name"] == "data/products.jsonl"
    assert header["eval"]["model_generate_config"] == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "seed": 1,
    }
    (score,) = header["results"]["scores"]
    assert (score["scored_samples"], score["unscored_samples"]) == (4, 1)
    assert score["metrics"]["mean"]["value"] == pytest.approx(0.5)
    errors = [sample for name, sample in log.items() if name.startswith("samples/") and "error" in sample]
    assert [each["metadata"]["attempt"] for each in errors] == [2]


def test_a_finished_evaluation_is_a_success_and_one_without_texts_has_no_log(tmp_path: Path) -> None:
    make_evaluation(tmp_path, "whole", tasks=2)
    make_evaluation(tmp_path, "bare", tasks=2, keep="sample:0")
    write_inspect_log(open_evaluation("whole", tmp_path), tmp_path / "inspect.eval")
    assert members(tmp_path / "inspect.eval")["header.json"]["status"] == "success"
    assert write_inspect_log(open_evaluation("bare", tmp_path), tmp_path / "inspect.eval") is None
    assert not (tmp_path / "inspect.eval").exists()


def test_the_summary_has_the_figures_and_no_markup_of_others(tmp_path: Path) -> None:
    make_evaluation(
        tmp_path,
        tasks=4,
        attempts=2,
        score=lambda index, number: float(index < 2),
        extra_text=HOSTILE,
        model=HOSTILE,
    )
    evaluation = open_evaluation("eval-one", tmp_path)
    text = markdown_report(evaluation, figures_of(evaluation))
    assert "**50.0 %** (95 % interval" in text and "over 4 tasks, 2 attempts each" in text
    assert "| pass@k | 50.0 % | 50.0 % |" in text
    assert "| 1 | 2 | 50.0 % |" in text
    assert "## Tasks without a right answer\n" in text
    assert "<" not in text and "\x1b" not in text and "\u202e" not in text
    # A table's rows have as many cells as its header, whatever stands in them.
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if "A crate holds" in line]
    assert cells == [5, 5]


def test_escaped_text_is_one_inert_line() -> None:
    assert escaped("a|b\n*c* _d_ `e` [f](g) <h> &i; #j 1.5-2") == (
        r"a\|b \*c\* \_d\_ \`e\` \[f\](g) &lt;h\> &amp;i; \#j 1.5-2"
    )
    assert escaped("http://a.b www.c.d") == r"http:\//a.b www\.c.d"


def test_all_reports_stand_beside_the_evaluation(tmp_path: Path) -> None:
    make_evaluation(tmp_path, tasks=3)
    evaluation = open_evaluation("eval-one", tmp_path)
    written = write_reports(evaluation, figures_of(evaluation))
    assert (written.attempts, written.readable) == (6, 6)
    names = {"report.html", "report.md", "results.parquet", "inspect.eval"}
    assert names <= {path.name for path in (tmp_path / "eval-one").iterdir()}


def test_nothing_in_the_page_ends_its_element(tmp_path: Path) -> None:
    make_evaluation(tmp_path, tasks=2, extra_text=HOSTILE, model=HOSTILE)
    evaluation = open_evaluation("eval-one", tmp_path)
    assert write_html(evaluation, figures_of(evaluation), tmp_path / "report.html") == 4
    text = (tmp_path / "report.html").read_text()
    assert text.count("<script") == 2 and text.count("</script") == 2 and "</textarea" not in text
    assert "connect-src" not in text and "default-src 'none'" in text
    data = json.loads(text.partition('id="report">')[2].partition("</script>")[0])
    assert data["figures"]["model"] == HOSTILE and len(data["packed"]) == 2
    # The address of an endpoint may be of an inner network.
    assert "model_url" not in data["evaluation"]["settings"]


def test_the_command_writes_the_reports_and_names_them(tmp_path: Path) -> None:
    make_evaluation(tmp_path, tasks=2)
    app = typer.Typer()
    app.command()(report_command)
    done = CliRunner().invoke(app, ["eval-one", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "with 4 attempts." in done.stderr and "report.md, results.parquet, inspect.eval" in done.stderr
    done = CliRunner().invoke(app, ["eval-one", "--runs", str(tmp_path), "--json"])
    printed = json.loads(done.stdout)
    assert printed["readable"] == 4 and printed["figures"]["attempts"] == 4
    assert Path(printed["html"]).name == "report.html"
