"""Figures of an evaluation, from what its folder holds."""

import json
import math
import random
from pathlib import Path
from statistics import fmean

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.errors import UsageError
from aworld_train.evaluation.metrics import Figures, calibration_of, figures_of, ks, natural, percentile
from aworld_train.evaluation.results import EvalTask, Evaluation, TaskAttempt, open_evaluation
from aworld_train.evaluation.statistics import wilson_interval
from aworld_train.store.reading import EpisodeKey
from aworld_train.training.recorded_run import RecordedRun
from tests.evaluations import make_evaluation
from tests.stored_runs import make_stored_run

KEPT_NAMES = {
    "accuracy",
    "interval",
    "n",
    "errors",
    "tool_calls",
    "tool_errors",
    "correct_with_tool",
    "outcomes",
    "unscored",
    "parts",
    "suspicions",
    "seconds",
    "model",
    "dataset",
}


def figures(runs: Path, **made: object) -> Figures:
    make_evaluation(runs, **made)  # type: ignore[arg-type]
    return figures_of(open_evaluation("eval-one", runs))


def attempt(task: str, number: int, score: float | None, **changes: object) -> TaskAttempt:
    figures = EpisodeFigures(
        outcome="answered",
        scorer="number",
        reward=score,
        turns=1,
        given_tokens=10,
        sampled_tokens=5,
        seconds=1.0,
        generate_seconds=0.75,
        tool_seconds=0.25,
    )
    return TaskAttempt(EpisodeKey(f"{task}.{number}", task, number, 0.0, 0.0), replace(figures, **changes))


def evaluation(tasks: list[EvalTask], attempts: list[TaskAttempt], k: int) -> Evaluation:
    settings = {"model": "m", "dataset": ["d"], "tasks": len(tasks), "attempts": k}
    return Evaluation(RecordedRun(Path("e"), {}, {}), settings, {task.id: task for task in tasks}, attempts)


def task(name: str, level: str = "", tags: tuple[str, ...] = ()) -> EvalTask:
    return EvalTask(name, 0, "", "s", "q", "a", level, "", tags)


def test_a_folder_gives_the_figures_of_its_attempts(tmp_path: Path) -> None:
    scores = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 1.0, (1, 1): 1.0, (2, 0): None, (2, 1): 0.0}
    found = figures(tmp_path, tasks=3, attempts=2, score=lambda index, number: scores[index, number])
    assert found.accuracy == pytest.approx(0.5)
    assert (found.n, found.errors, found.attempts, found.attempts_expected) == (3, 1, 6, 6)
    assert found.is_complete
    assert found.pass_at == pytest.approx({1: 0.5, 2: 1.0})
    assert found.pass_all == pytest.approx({1: 0.5, 2: 0.5})
    assert found.tasks_at == {1: 3, 2: 2}
    assert found.outcomes == {"answered": 5, "provider": 1}
    assert found.causes == {"the endpoint answered 500 five times": 1}
    assert (found.model, found.dataset, found.seconds) == ("solver-7b", "data/products.jsonl", 321.5)
    assert found.tool_calls == 3 and found.correct_with_tool == pytest.approx(2 / 3)
    assert found.groups["level"]["1"].accuracy == 0.5
    assert found.groups["level"]["3"].errors == 1 and found.groups["level"]["3"].n == 1
    assert set(found.groups) == {"level", "source", "tag"}
    assert found.cost is not None
    assert found.cost.total == pytest.approx(
        (0.5 * found.prompt_tokens.total + 1.5 * found.sampled_tokens.total) / 1e6
    )
    assert found.cost.per_task == pytest.approx(found.cost.total / 3)
    assert found.latency is not None and 0.5 < found.latency.model_share < 1


def test_names_that_programs_read_stay_and_all_is_json(tmp_path: Path) -> None:
    plain = figures(tmp_path, confidence=lambda index, number: 0.5).to_json()
    assert set(plain) >= KEPT_NAMES
    assert json.loads(json.dumps(plain, allow_nan=False)) == json.loads(json.dumps(plain))
    assert set(plain["tokens"]) == {"prompt", "sampled"} and set(plain["pass_at"]) == {"1", "2"}
    assert plain["calibration"]["n"] == 12 - plain["errors"]


def test_nothing_scored_gives_no_average(tmp_path: Path) -> None:
    found = figures(tmp_path, score=lambda index, number: None, prices=None)
    assert (found.accuracy, found.interval, found.n, found.errors) == (None, None, 0, 12)
    assert found.latency is found.turns is found.calibration is found.cost is None
    assert found.pass_at == found.majority == {}
    json.dumps(found.to_json(), allow_nan=False)


def test_an_unfinished_evaluation_has_the_figures_of_what_has_ended(tmp_path: Path) -> None:
    found = figures(tmp_path, tasks=4, attempts=4, leave_out=lambda index, number: index == 3 or number == 3)
    assert (found.attempts, found.attempts_expected, found.is_complete) == (9, 16, False)
    assert 4 not in found.pass_at and found.tasks_at[4] == 0


def test_one_attempt_has_wilsons_interval(tmp_path: Path) -> None:
    found = figures(tmp_path, tasks=10, attempts=1, score=lambda index, number: float(index < 7))
    assert found.interval == pytest.approx(wilson_interval(7, 10))


def test_a_run_that_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one", steps=1)
    with pytest.raises(UsageError, match="is not an evaluation"):
        open_evaluation("one", tmp_path)


def test_tags_put_a_task_into_several_groups() -> None:
    tasks = [task("a", "10", ("x", "y")), task("b", "2", ("y",)), task("c")]
    attempts = [attempt("a", 0, 1.0), attempt("b", 0, 0.0), attempt("c", 0, None)]
    groups = figures_of(evaluation(tasks, attempts, 1)).groups
    assert {name: (each.n, each.accuracy) for name, each in groups["tag"].items()} == {
        "x": (1, 1.0),
        "y": (2, 0.5),
        "": (0, None),
    }
    assert list(groups["level"]) == ["2", "10", ""]


def test_faults_parts_and_unscored_answers_are_counted() -> None:
    attempts = [
        attempt("a", 0, 1.0, faults={"429": 2}, parts={"p": 1.0}, suspicions=["s"]),
        attempt(
            "a",
            1,
            None,
            faults={"429": 1, "hang": 1},
            parts={"p": 0.0},
            scorer="math",
            scoring="timeout",
            cause="why",
        ),
    ]
    found = figures_of(evaluation([task("a")], attempts, 2))
    assert found.faults == {"429": 3, "hang": 1}
    assert (found.parts, found.suspicions) == ({"p": 0.5}, {"s": 1})
    assert (found.unscored, found.causes) == ({"math: timeout": 1}, {"why": 1})


async def test_figures_are_computed_where_a_loop_runs_as_in_a_notebook() -> None:
    attempts = [attempt("a", number, 0.0, extracted=answer) for number, answer in enumerate(("1/2", "0.5"))]
    assert figures_of(evaluation([task("a")], attempts, 2)).majority == {1: 0.0, 2: 0.0}


def test_the_majority_needs_answers() -> None:
    tasks = [task("a")]
    assert figures_of(evaluation(tasks, [attempt("a", 0, 1.0)], 1)).majority == {}
    found = figures_of(
        evaluation(tasks, [attempt("a", number, 1.0, extracted="4") for number in range(2)], 2)
    )
    assert found.majority == {1: 1.0, 2: 1.0}


@pytest.mark.parametrize(
    ("scorer", "answers", "right", "share"),
    [
        # Answers that the scorer takes for equal are one vote, right or wrong.
        ("math", ["0.5", "1/2", r"\frac12", "3", "3"], 3, 1.0),
        ("math", ["7", "1/2", "0.5", r"\frac12", "7"], (0, 4), 0.0),
        ("number", ["4", "4", "$5$", "5.0", "x = 5"], (0, 1), 0.0),
        ("exact", ["4", "4", "Paris", "paris", " PARIS"], (0, 1), 0.0),
        ("gaia", ["4", "4", "sea gull", "seagull", "x"], (0, 1), 0.5),
        # A scorer that asks a model compares texts.
        ("llm_judge", ["4", "4", "$5$", "5.0", "x = 5"], (0, 1), 1.0),
        # Choices of the question, by label or text.
        ("exact", ["A", "A", "(B)", "Lima", "B. Lima"], (0, 1), 0.0),
    ],
)
def test_the_majority_is_of_answers_that_the_scorer_takes_for_equal(
    scorer: str, answers: list[str], right: int | tuple[int, ...], share: float
) -> None:
    places = range(right) if isinstance(right, int) else right
    question = "Which?\nA. Quito\nB. Lima\n\nAnswer with A or B."
    asked = EvalTask("a", 0, "", "s", question, "A", scorer=scorer)
    attempts = [
        attempt("a", number, float(number in places), extracted=answer, scorer=scorer)
        for number, answer in enumerate(answers)
    ]
    assert figures_of(evaluation([asked], attempts, len(answers))).majority[len(answers)] == share


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_ks_are_powers_of_two_and_k(k: int, expected: list[int]) -> None:
    assert ks(k) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    assert percentile(sorted(values), share) == pytest.approx(float(numpy.quantile(values, share)))


def test_labels_are_sorted_as_people_count() -> None:
    assert sorted(["level 10", "level 2", "", "Level 1"], key=natural) == [
        "Level 1",
        "level 2",
        "level 10",
        "",
    ]


def test_calibration_is_that_of_the_published_script_with_its_last_bin() -> None:
    # `calib_err` in github.com/hendrycks/outlier-exposure, utils/calibration_tools.py.
    rng = random.Random(0)
    answers = [(rng.random(), float(rng.random() < 0.4)) for _ in range(200)]
    ordered = sorted(answers)
    beta, square = 20, 0.0
    for begin in range(0, 200, beta):
        part = ordered[begin : begin + beta]
        gap = abs(fmean(each for each, _ in part) - fmean(score for _, score in part))
        square += beta / 200 * gap**2
    found = calibration_of(answers)
    assert found is not None
    assert found.rms_error == pytest.approx(math.sqrt(square))
    assert found.brier == pytest.approx(fmean((confidence - score) ** 2 for confidence, score in answers))
    assert sum(each.n for each in found.bins) == found.n == 200


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 1.0])), max_size=40),
    st.randoms(),
)
def test_calibration_does_not_depend_on_the_order_of_answers(
    answers: list[tuple[float, float]], rng: random.Random
) -> None:
    shuffled = list(answers)
    rng.shuffle(shuffled)
    one, other = calibration_of(answers), calibration_of(shuffled)
    if one is None or other is None:
        assert one is other is None and not answers
        return
    assert one.rms_error == pytest.approx(other.rms_error) and 0 <= one.rms_error <= 1
