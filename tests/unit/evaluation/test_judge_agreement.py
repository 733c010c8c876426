"""How well a judge agrees with labels: the figures, the file they come from, and the command that prints them."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from aworld_train.cli.reward_judge import judge_eval
from aworld_train.errors import DatasetError, UsageError
from aworld_train.evaluation.judge_agreement import (
    LabelledAnswer,
    agreement_of,
    measure_agreement,
    read_labelled,
)
from aworld_train.reward.score_types import Score
from aworld_train.reward.settings import JudgeModel, JudgeSettings, RewardSettings
from tests.judge_faults import words
from tests.judge_server import JudgeServer, ParsedRequest, honest, verdict_reply

ROW = {"id": "a", "query": "What is 6*7?", "answer": "42", "prediction": "42", "label": 1}


def judged(label: bool, value: float | None, cost: float = 0.0) -> tuple[LabelledAnswer, Score]:
    parts = {"judge_cost": cost, "judge_calls": 1.0, "judge_cached": 0.0}
    return LabelledAnswer("x", "q", "42", "42", label), Score(value, parts, ("why",))


def of(right: int, missed: int, wrongly: int, refused: int, abstained: int = 0) -> Any:
    counts = [(True, 1.0, right), (True, 0.0, missed), (False, 1.0, wrongly), (False, 0.0, refused)]
    rows = [judged(label, value) for label, value, count in counts for _ in range(count)]
    return agreement_of(rows + [judged(True, None)] * abstained)


def write(directory: Path, *rows: Any) -> Path:
    file = directory / "labelled.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def test_the_figures_are_those_of_a_table_worked_out_by_hand() -> None:
    # Agreement 35 of 50; by chance (25*30 + 25*20)/50^2 = 0.5, so kappa = (0.7 - 0.5)/(1 - 0.5).
    found = of(20, 5, 10, 15, abstained=4)
    assert (found.n, found.abstained) == (54, 4)
    assert found.accuracy == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.precision == pytest.approx(20 / 30)
    assert found.recall == pytest.approx(20 / 25)
    assert found.confusion == {
        "correct": {"correct": 20, "incorrect": 5, "abstained": 4},
        "incorrect": {"correct": 10, "incorrect": 15, "abstained": 0},
    }
    # Wilson's interval solves |p - 35/50| = z sqrt(p(1-p)/50).
    for bound in found.interval:
        assert abs(bound - 0.7) == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / 50))
    assert len(found.disagreements) == 15


def test_a_judge_that_calls_everything_right_agrees_no_more_than_chance() -> None:
    found = of(90, 0, 10, 0)
    assert found.accuracy == pytest.approx(0.9)
    assert found.kappa == 0


def test_shares_of_nothing_are_none() -> None:
    nothing = of(0, 0, 0, 0, abstained=3)
    assert (nothing.n, nothing.abstained) == (3, 3)
    assert (
        nothing.accuracy is nothing.interval is nothing.kappa is nothing.precision is nothing.recall is None
    )
    assert of(5, 0, 0, 0).kappa is None
    assert of(0, 0, 0, 5).precision is None
    json.dumps(asdict(nothing))


@given(*[st.integers(0, 30)] * 5)
def test_figures_stay_within_their_bounds(
    right: int, missed: int, wrongly: int, refused: int, abstained: int
) -> None:
    found = of(right, missed, wrongly, refused, abstained)
    assert found.n - found.abstained == right + missed + wrongly + refused
    for share in (found.accuracy, found.precision, found.recall):
        assert share is None or 0 <= share <= 1
    assert found.kappa is None or -1 <= found.kappa <= 1
    if found.interval:
        low, high = found.interval
        assert 0 <= low <= found.accuracy + 1e-9 and found.accuracy - 1e-9 <= high <= 1


def test_lines_are_read_with_labels_in_either_form(tmp_path: Path) -> None:
    file = write(tmp_path, ROW, "", {**ROW, "id": 2, "answer": 42, "label": False}, {**ROW, "label": True})
    assert [(row.id, row.answer, row.label) for row in read_labelled(file)] == [
        ("a", "42", True),
        ("2", "42", False),
        ("a", "42", True),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: this is not JSON"),
        ("[]", "line 2: this is not a JSON object"),
        ({**ROW, "label": 2}, "line 2: the label is 2; it must be 0, 1, false or true"),
        ({**ROW, "label": "1"}, "line 2: the label is '1'"),
        ({**ROW, "label": 1.0}, "line 2: the label is 1.0"),
        ({**ROW, "label": None}, "line 2: the label is None"),
        ({**ROW, "answer": ["42"]}, "line 2: 'answer' must be a text or a number"),
        ({**ROW, "prediction": None}, "line 2: 'prediction' must be a text or a number"),
        ({**ROW, "id": True}, "line 2: 'id' must be a text or a number"),
        (
            {"id": 1, "query": "", "answer": "", "predictions": "", "label": 1},
            "'prediction' is missing. Did you mean 'predictions'?",
        ),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read_labelled(write(tmp_path, ROW, line))
    assert message in str(caught.value)
    assert "labelled.jsonl" in str(caught.value)


def test_a_file_without_lines_and_one_that_is_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no lines"):
        read_labelled(write(tmp_path, ""))
    with pytest.raises(DatasetError, match="cannot be read"):
        read_labelled(tmp_path / "nothing.jsonl")


async def lenient(parsed: ParsedRequest) -> Any:
    """Calls everything right except what it cannot judge."""
    if parsed.texts["answer"] == "?":
        return await words("Not correct")(parsed)
    return verdict_reply(parsed, "correct")


async def test_the_judge_is_measured_with_the_settings_of_a_run() -> None:
    rows = [
        LabelledAnswer(str(at), "q", "42", prediction, right)
        for at, (prediction, right) in enumerate(LABELLED)
    ]
    progress: list[int] = []
    with JudgeServer(lenient) as server:
        model = JudgeModel("judge", server.url, "big", price_in=1.0)
        settings = RewardSettings(timeout=60, judge=JudgeSettings((model,), concurrency=2, attempts=1))
        found = await measure_agreement(rows, settings, progress.append)
    assert found.confusion == {
        "correct": {"correct": 2, "incorrect": 0, "abstained": 1},
        "incorrect": {"correct": 1, "incorrect": 0, "abstained": 0},
    }
    assert found.disagreements == ("2",)
    assert list(found.causes) == ["3"]
    assert "no verdict" in found.causes["3"]
    assert found.calls == len(server.requests) == 4
    assert found.cost == pytest.approx(4 * 1000 / 1e6)
    assert progress == [1, 2, 3, 4]
    assert server.max_concurrent <= 2


LABELLED = [("42", True), ("forty-two", True), ("43", False), ("?", True)]


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(judge_eval)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_prints_one_json_object(tmp_path: Path) -> None:
    file = write(
        tmp_path, *[{**ROW, "id": at, "prediction": p, "label": r} for at, (p, r) in enumerate(LABELLED)]
    )
    with JudgeServer(lenient) as server:
        done = run(file, "--url", server.url, "--model", "big", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["n"], found["abstained"], found["disagreements"]) == (4, 1, ["2"])
    assert found["accuracy"] == pytest.approx(2 / 3)


def test_the_command_prints_the_table_and_the_answers_to_look_at(tmp_path: Path) -> None:
    file = write(
        tmp_path, *[{**ROW, "id": at, "prediction": p, "label": r} for at, (p, r) in enumerate(LABELLED)]
    )
    with JudgeServer(lenient) as server:
        done = run(file, "--url", server.url, "--model", "big", "--quiet")
    assert done.exit_code == 0, done.output
    assert "accuracy 66.7%" in done.output
    assert "4 answers, 1 without a verdict" in done.output
    assert "verdict and label differ: 2" in done.output
    assert "no verdict on 3: big: no verdict: " in done.output


def test_the_key_of_a_judge_that_is_tried_comes_from_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-secret")
    with JudgeServer(honest) as server:
        done = run(
            write(tmp_path, ROW), "--url", server.url, "--model", "big", "--key-variable", "A_KEY", "--json"
        )
    assert server.requests[0].request.headers["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in done.output


def test_a_recipe_says_who_judges_and_may_be_changed(tmp_path: Path) -> None:
    rows = [{**ROW, "id": at, "prediction": p, "label": r} for at, (p, r) in enumerate(LABELLED)]
    file = write(tmp_path, *rows)
    recipe = tmp_path / "recipe.yaml"
    instructions = tmp_path / "judge.md"
    instructions.write_text("Be fair to birds.")
    with JudgeServer(honest) as server:
        recipe.write_text(
            f"endpoints: {{judge: {{url: '{server.url}', model: big, price_in: 1}}}}\n"
            f"reward: {{judge: {{models: [judge], prompt: '{instructions}', cache: '{tmp_path}/kept'}}}}\n"
        )
        first = json.loads(run(file, "--recipe", recipe, "--json").stdout)
        again = json.loads(run(file, "--recipe", recipe, "--json").stdout)
        other = json.loads(run(file, "reward.judge.cache=null", "--recipe", recipe, "--json").stdout)
        body = server.requests[0].body
    assert body["model"] == "big" and "Be fair to birds." in body["messages"][0]["content"]
    assert (first["calls"], first["cached"], first["cost"]) == (4, 0, pytest.approx(0.004))
    assert (again["calls"], again["cached"]) == (0, 4)
    assert other["calls"] == 4


def test_a_recipe_without_a_judge_is_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reward: {scorer: gaia}\n")
    done = run(write(tmp_path, ROW), "--recipe", recipe)
    assert isinstance(done.exception, UsageError)
    assert "names no judge; put one into reward.judge.models" in str(done.exception)
    done = run(write(tmp_path, ROW), "reward.timeout=1", "--url", "http://127.0.0.1:9/v1", "--model", "m")
    assert "name the recipe with --recipe" in str(done.exception)


def test_an_invalid_url_is_refused_before_any_request(tmp_path: Path) -> None:
    done = run(write(tmp_path, ROW), "--url", "localhost:8000/v1", "--model", "m")
    assert isinstance(done.exception, UsageError)
    assert "--url must begin with http:// or https://, it is 'localhost:8000/v1'" in str(done.exception)


def test_a_judge_that_never_gives_a_verdict_is_no_success(tmp_path: Path) -> None:
    with JudgeServer(words("Not correct")) as server:
        done = run(write(tmp_path, ROW), "--url", server.url, "--model", "big", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["abstained"] == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("--url", "http://127.0.0.1:9/v1"), ("--model", "big"), ("--recipe", "r.yaml", "--model", "big")],
)
def test_the_judge_is_named_in_one_way_only(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(write(tmp_path, ROW), *arguments)
    assert isinstance(done.exception, UsageError)
    assert "--model" in str(done.exception)
