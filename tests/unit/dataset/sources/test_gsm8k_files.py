"""All records of GSM8K, where its files are present."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import BuildReport, build, check_file
from aworld_train.dataset.expressions import evaluate, normalize
from aworld_train.reward.number import numeric_match
from tests.gsm8k import GSM8K, needs_gsm8k

pytestmark = needs_gsm8k


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[BuildReport, BuildReport]:
    """The unseen test set, and the training set that leaves it out."""
    folder = tmp_path_factory.mktemp("gsm8k")
    test = build("gsm8k", folder / "test", files=[GSM8K / "test.jsonl"], splits={"test": 1.0})
    train = build("gsm8k", folder / "train", files=[GSM8K / "train.jsonl"], against=[folder / "test"])
    return test, train


def rows(report: BuildReport) -> list[dict[str, object]]:
    return [row for name in report.rows for row in pq.read_table(report.out / f"{name}.parquet").to_pylist()]


def test_the_account_of_every_annotation_adds_up(built: tuple[BuildReport, BuildReport]) -> None:
    for name, report in zip(("test.jsonl", "train.jsonl"), built, strict=True):
        answers = [json.loads(line)["answer"] for line in (GSM8K / name).read_text("utf-8").splitlines()]
        pieces = sum(max(1, answer.count("<<")) for answer in answers)
        assert report.seen == pieces
        assert report.kept + sum(report.dropped.values()) == report.seen
        assert report.kept == sum(report.rows.values()) + report.merged + report.against + report.left_over
        listed = [json.loads(line) for line in (report.out / "dropped.jsonl").read_text("utf-8").splitlines()]
        assert Counter(item["reason"] for item in listed) == report.dropped


def test_nearly_all_of_gsm8k_is_kept(built: tuple[BuildReport, BuildReport]) -> None:
    for report in built:
        assert report.kept > 0.97 * report.seen


def test_every_ground_truth_is_the_value_of_its_expression(built: tuple[BuildReport, BuildReport]) -> None:
    for report in built:
        for row in rows(report):
            expression = row["extra_info"]["expression"]
            answer = row["reward_model"]["ground_truth"]
            assert normalize(expression) == expression
            assert abs(float(evaluate(expression)) - float(answer)) < 1e-6
            assert numeric_match(answer, answer)


def test_no_expression_is_in_two_splits_or_in_the_excluded_set(
    built: tuple[BuildReport, BuildReport],
) -> None:
    expressions = [row["extra_info"]["expression"] for report in built for row in rows(report)]
    assert len(expressions) == len(set(expressions))
    assert built[1].against > 0


def test_the_files_pass_the_check_before_training(built: tuple[BuildReport, BuildReport]) -> None:
    for report in built:
        for name, count in report.rows.items():
            assert check_file(report.out / f"{name}.parquet").rows == count


def test_every_problem_becomes_a_question_with_its_final_answer(tmp_path: Path) -> None:
    report = build(
        "gsm8k", tmp_path / "out", files=[GSM8K / "test.jsonl"], tasks="questions", splits={"test": 1}
    )
    texts = [json.loads(line) for line in (GSM8K / "test.jsonl").read_text("utf-8").splitlines()]
    finals = {text["question"].strip(): text["answer"].rpartition("####")[2].strip() for text in texts}
    assert report.rows == {"test": report.seen} == {"test": len(texts)}
    for row in rows(report):
        assert numeric_match(finals[row["prompt"][0]["content"]], row["reward_model"]["ground_truth"])
