"""`reward suspects`: what a run's record says of doubtful episodes, for people and programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aworld_train.cli.main import app

LOOK = {
    "query": "Which bird?",
    "said": "It is <answer>Ara</answer>",
    "extracted": "Ara",
    "ground_truth": "Ara",
}


def line(step: int, *signs: str, **more: Any) -> dict[str, Any]:
    found = {"suspicions": list(signs), "look": LOOK} if signs else {}
    return {"step": step, "validate": False, "index": 7, "outcome": "answered", **found, **more}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    lines = [
        line(1, "right_without_tool"),
        line(1),
        line(2, "answer_from_prompt", "right_without_tool", validate=True),
        line(2, "right_without_tool", retried=True),
    ]
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (tmp_path / "traces" / "episodes.jsonl").write_text(text)
    return tmp_path


def test_signs_are_counted_and_the_newest_episodes_shown_first(run: Path) -> None:
    result = CliRunner().invoke(app, ["reward", "suspects", str(run)])
    assert result.exit_code == 0
    assert "of 3 episodes" in result.output
    newest, oldest = (
        result.output.index("step 2 validation, task 7"),
        result.output.index("step 1 training, task 7"),
    )
    assert newest < oldest
    assert "Ara (right: Ara)" in result.output


def test_one_sign_alone_and_as_json(run: Path) -> None:
    result = CliRunner().invoke(
        app, ["reward", "suspects", str(run), "--sign", "answer_from_prompt", "--json"]
    )
    (found,) = [json.loads(text) for text in result.output.splitlines()]
    assert found["step"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--sign", "no_tools"], "not one of"), (["--sign", "repeated_txt"], "Did you mean 'repeated_text'?")],
)
def test_an_unknown_sign_is_refused(run: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["reward", "suspects", str(run), *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reward", "suspects", str(tmp_path)])
    assert "not a run's folder" in str(result.exception)


def test_a_record_that_cannot_be_read_is_reported_with_its_file(run: Path) -> None:
    (run / "traces" / "episodes.jsonl").write_text("{\n")
    result = CliRunner().invoke(app, ["reward", "suspects", str(run)])
    assert "episodes.jsonl cannot be read: Expecting property name" in str(result.exception)
