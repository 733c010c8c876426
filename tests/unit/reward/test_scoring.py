"""Every answer gets a `ScoreResult` within its time, whatever the answer is and whatever its scorer does."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.errors import RewardError
from aworld_train.reward import scoring
from aworld_train.reward.results import BadResult, read_result
from aworld_train.reward.reward_function import score_by_function
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.scorers import BUILT_IN, Scorer, ScorerKind
from aworld_train.reward.scoring import _plain, score, score_extracted, score_now
from aworld_train.reward.settings import CompositeSettings, RewardSettings
from aworld_train.reward.workers import Job, NoFreeWorker
from tests.properties import examples

OWN = """
import asyncio, os, pathlib, time
from aworld_train.reward.score_types import Score, TooHard

def stuck(answer, truth): time.sleep(1000)
async def stuck_in_its_loop(answer, truth): time.sleep(1000)
async def waits_for_ever(answer, truth): await asyncio.sleep(1000)
def fails(answer, truth): return {}[answer]
def fails_on_this(answer, truth): return {"2": 1.0}[answer]
def computes_for_ever_on_this(answer, truth):
    while answer == "1": pass
    return 1.0
def computes_for_ever(answer, truth):
    while True: pass
def dies_of_this(answer, truth): return os.abort() if answer == "1" else 1.0
def refuses(answer, truth): raise TooHard("it has a million digits")
def waits_for_ever_on_this(answer, truth):
    if answer == "1": time.sleep(1000)
    return 1.0
async def waits_in_its_loop_on_this(answer, truth):
    if answer == "1": await asyncio.sleep(1000)
    return 1.0
async def loses_its_server_on_this(answer, truth):
    if answer == "1": raise ConnectionError("no server")
    return 1.0
def fails_once(answer, truth):
    marker = pathlib.Path(__file__).with_name("failed-before")
    if answer == "1" and not marker.exists():
        marker.touch()
        raise ValueError("only now")
    return 0.5
def none(answer, truth): return None
def not_a_number(answer, truth): return float("nan")
def abstains(answer, truth): return Score(None, {"tries": 2}, ("first", "nobody knows"))
def parts(answer, truth): return {"score": 0.5, "length": len(answer), "long": False}
def context(answer, truth, context):
    assert context.settings.timeout == 7, context.settings
    assert context.query == "what?" and context.text == "<answer>1</answer>"
    info = dict(context.info)
    assert info.pop("scorer").endswith("own_scorers.py:context") and info.pop("answer_schema") == "answer"
    assert info == {"level": "2", "list": [1, 2], "array": [0.5], "odd": "1/3"}, info
    return context.episode["num_turns"]
async def meets(answer, truth):
    came = pathlib.Path(__file__).with_name("came")
    with came.open("ab") as file: file.write(b".")
    while came.stat().st_size < 4: await asyncio.sleep(0.01)
    return 1
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ScoreResult]:
    """Scores an answer by one of these scorers."""
    path = tmp_path_factory.mktemp("own") / "own_scorers.py"
    path.write_text(OWN)

    def ask(name: str, seconds: float = 30.0, ground_truth: str = "1", **more: Any) -> ScoreResult:
        return score_now(
            "<answer>1</answer>",
            ground_truth=ground_truth,
            scorer=f"{path}:{name}",
            settings=RewardSettings(timeout=seconds),
            **more,
        )

    return ask


@pytest.mark.parametrize("name", ["stuck", "stuck_in_its_loop", "waits_for_ever"])
def test_one_that_is_stuck_is_named_with_its_time(own: Callable[..., ScoreResult], name: str) -> None:
    scored = own(name, seconds=0.3)
    assert (scored.score, scored.outcome, scored.extracted) == (None, ScoreOutcome.timeout, "1")
    assert scored.cause is not None and f":{name} took longer than 0.3 seconds" in scored.cause


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("fails", "KeyError: '1' (own_scorers.py, line 8)"),
        ("none", "it returned None"),
        ("not_a_number", "nan as a score, not a finite number"),
    ],
)
def test_one_that_fails_has_no_score_and_says_why(
    own: Callable[..., ScoreResult], name: str, cause: str
) -> None:
    scored = own(name)
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.error)
    assert scored.cause is not None and f":{name}: " in scored.cause and cause in scored.cause


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("fails_on_this", "KeyError: '1'"),
        ("computes_for_ever_on_this", "took longer than 0.5 seconds"),
        ("dies_of_this", "ended by SIGABRT"),
        ("refuses", "it has a million digits"),
    ],
)
def test_an_answer_that_a_scorer_fails_on_is_wrong_where_the_ground_truth_is_none(
    own: Callable[..., ScoreResult], name: str, cause: str
) -> None:
    scored = own(name, seconds=0.5, ground_truth="2")
    assert (scored.score, scored.outcome, scored.extracted) == (0.0, ScoreOutcome.too_hard, "1")
    assert cause in scored.steps[0] and scored.cause is None


@pytest.mark.parametrize(
    "name",
    [
        *("fails", "computes_for_ever", "loses_its_server_on_this"),
        *("waits_for_ever", "waits_for_ever_on_this", "waits_in_its_loop_on_this"),
    ],
)
def test_an_answer_is_not_blamed_for_a_scorer_that_copes_with_nothing_or_waits_for_others(
    own: Callable[..., ScoreResult], name: str
) -> None:
    scored = own(name, seconds=0.5, ground_truth="2")
    assert scored.score is None
    assert scored.outcome in (ScoreOutcome.error, ScoreOutcome.timeout)


def test_an_answer_is_not_blamed_where_no_worker_was_free(
    own: Callable[..., ScoreResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullPool:
        """Has a worker for the ground truth alone."""

        def submit(self, job: Job) -> "Future[Score]":
            future: Future[Score] = Future()
            if job.answer == "1":
                future.set_exception(NoFreeWorker("it waited too long"))
            else:
                future.set_result(Score(1.0))
            return future

    monkeypatch.setattr(scoring, "pool", lambda waits: FullPool())
    scored = own("fails", ground_truth="2")
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.error)
    assert scored.cause is not None and "it waited too long" in scored.cause


def test_a_failure_that_does_not_repeat_costs_nothing(own: Callable[..., ScoreResult]) -> None:
    assert own("fails_once", ground_truth="2").score == 0.5


def test_a_reward_function_that_an_episode_makes_fail_scores_it_0(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1 / len(solution_str)\n"
    )
    spec, arguments = f"{path}:score", {"data_source": "s", "ground_truth": "1", "extra_info": {}}
    scored = asyncio.run(score_by_function(spec, RewardSettings(), solution_str="", **arguments))
    assert (scored.score, scored.outcome) == (0.0, ScoreOutcome.too_hard)
    assert "ZeroDivisionError" in scored.steps[0]


def test_the_last_step_of_a_scorer_that_abstains_is_the_cause(own: Callable[..., ScoreResult]) -> None:
    scored = own("abstains")
    assert (scored.score, scored.outcome, scored.cause) == (None, ScoreOutcome.abstained, "nobody knows")
    assert (scored.parts, scored.steps) == ({"tries": 2.0}, ("first", "nobody knows"))


def test_named_parts_come_with_the_score(own: Callable[..., ScoreResult]) -> None:
    assert own("parts").parts == {"length": 1.0, "long": 0.0}


def test_a_third_argument_gets_the_context_as_plain_values(own: Callable[..., ScoreResult]) -> None:
    info = {"level": np.str_("2"), "list": (1, np.int64(2)), "array": np.array([0.5]), "odd": Fraction(1, 3)}
    scored = own("context", seconds=7, query="what?", info=info, episode={"num_turns": np.int32(3)})
    assert (scored.cause, scored.score) == (None, 3.0)


async def test_an_event_loop_goes_on_while_a_scorer_is_stuck(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    reward_settings = RewardSettings(timeout=1.0)
    scoring = asyncio.create_task(
        score(
            "<answer>1</answer>", ground_truth="", scorer=f"{tmp_path}/own.py:stuck", settings=reward_settings
        )
    )
    ticks = 0
    while not scoring.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert (await scoring).outcome == ScoreOutcome.timeout
    assert ticks > 3


async def test_own_scorers_that_wait_wait_together(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    async def ask() -> ScoreResult:
        return await score(
            "<answer>1</answer>",
            ground_truth="",
            scorer=f"{tmp_path}/own.py:meets",
            settings=RewardSettings(timeout=300.0),
        )

    assert {scored.score for scored in await asyncio.gather(*(ask() for _ in range(4)))} == {1.0}


def test_a_missing_answer_scores_0_and_calls_no_scorer(own: Callable[..., ScoreResult]) -> None:
    scored = score_now("I do not know", ground_truth="1", scorer="exact")
    assert (scored.score, scored.outcome, scored.extracted) == (0.0, ScoreOutcome.no_answer, None)


async def test_an_answer_is_scored_at_once_where_a_loop_runs_as_in_a_notebook() -> None:
    assert score_now("<answer>7</answer>", ground_truth="7").score == 1.0


def test_only_the_assistant_counts() -> None:
    messages = [
        {"role": "user", "content": "<answer>7</answer>"},
        {"role": "tool", "content": "<answer>7</answer>"},
        {"role": "assistant", "content": [{"type": "text", "text": "<answer>8</answer>"}]},
    ]
    assert score_now(messages, ground_truth="7", scorer="exact").extracted == "8"


def test_defaults_are_those_of_the_settings() -> None:
    reward_settings = RewardSettings(scorer="contains", answer_schema="boxed")
    scored = score_now(r"\boxed{it is seven}", ground_truth="seven", settings=reward_settings)
    assert (scored.score, scored.scorer) == (1.0, "contains")


def test_a_scorer_or_schema_that_does_not_exist_raises() -> None:
    with pytest.raises(RewardError, match="Unknown scorer"):
        score_now("", ground_truth="", scorer="nowhere")
    with pytest.raises(RewardError, match="schema"):
        score_now("", ground_truth="", scorer="exact", answer_schema="answr")


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (True, 1.0),
        (0, 0.0),
        (0.5, 0.5),
        (Fraction(1, 2), 0.5),
        (np.float32(0.5), 0.5),
        (Score(None), None),
        ({"score": None}, None),
        ({"score": 1, "n": np.int64(3)}, 1.0),
    ],
)
def test_what_scorers_may_return(result: Any, value: float | None) -> None:
    assert read_result(result).value == value


@pytest.mark.parametrize(
    "result",
    [
        None, "1", [1], {}, {"acc": 1}, {"score": "1"}, {"score": 1, "why": "text"}, math.nan, math.inf,
        -math.inf, 10**400, 1j, Score(math.nan), Score(1.0, {"a": math.inf}), {"score": 1, "a": None},
    ],
)  # fmt: skip
def test_what_scorers_may_not_return(result: Any) -> None:
    with pytest.raises(BadResult):
        read_result(result)


# Scorers in this process


def in_process(function: Callable[..., Any], **more: Any) -> Scorer:
    arguments = function.__code__.co_argcount
    is_async = asyncio.iscoroutinefunction(function)
    return Scorer("own", "own", function, arguments, is_async, isolated=False, **more)


@pytest.mark.parametrize(
    ("own_names", "task_names", "answer", "scorer"),
    [
        ((None, None), (None, None), "<answer>7.0</answer>", "number"),
        ((None, None), ("exact", "boxed"), r"\boxed{7}", "exact"),
        (("contains", "boxed"), ("exact", "answer"), r"\boxed{it is 7}", "contains"),
    ],
)
def test_a_run_s_scorer_and_schema_come_before_the_task_s_and_those_before_the_defaults(
    own_names: tuple[Any, Any], task_names: tuple[Any, Any], answer: str, scorer: str
) -> None:
    settings = RewardSettings(scorer=own_names[0], answer_schema=own_names[1])
    scored = score_now(
        answer, ground_truth="7", scorer=task_names[0], answer_schema=task_names[1], settings=settings
    )
    assert (scored.score, scored.scorer) == (1.0, scorer)
    if own_names == (None, None):
        assert (
            score_now(answer, ground_truth="7", scorer=task_names[0], answer_schema=task_names[1]) == scored
        )


def test_a_scorer_gets_the_row_with_the_names_that_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(answer: str, truth: str, context: ScoringContext) -> float:
        seen.append((answer, truth, context.query, context.text, context.info, context.episode))
        return 1.0

    seen: list[Any] = []
    monkeypatch.setattr(scoring, "find_scorer", lambda name: in_process(look))
    score_now("<answer>7</answer>", ground_truth=7, query="q", info={"a": 1}, episode={"num_turns": 2})
    score_now("<answer>7</answer>", ground_truth="7", scorer="odd")
    names = {"scorer": "number", "answer_schema": "answer"}
    assert seen == [
        ("7", "7", "q", "<answer>7</answer>", {"a": 1, **names}, {"num_turns": 2}),
        ("7", "7", "", "<answer>7</answer>", {**names, "scorer": "odd"}, {}),
    ]


def test_an_answer_that_cannot_be_read_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(scoring, "extract", fail)
    scored = score_now("text", ground_truth="7")
    assert (scored.score, scored.extracted, scored.outcome) == (0.0, None, ScoreOutcome.too_hard)
    assert scored.steps[0].startswith("the answer cannot be read by the schema answer: RecursionError")
    assert (scored.cause, scored.scorer) == (None, "number")


async def test_a_scorer_of_missing_answers_is_called_without_one() -> None:
    def seven(answer: str | None, truth: str) -> float:
        return 0.25 if answer is None else 1.0

    missing = await score_extracted(
        in_process(seven, scores_missing_answers=True), None, "7", ScoringContext()
    )
    assert (missing.score, missing.outcome) == (0.25, ScoreOutcome.no_answer)
    given = await score_extracted(in_process(seven, scores_missing_answers=True), "7", "7", ScoringContext())
    assert (given.score, given.outcome) == (1.0, ScoreOutcome.scored)


async def test_an_answer_is_wrong_where_the_scorer_fails_on_it_twice_and_copes_with_the_truth() -> None:
    def divide(answer: str, truth: str, context: ScoringContext) -> float:
        seen.append((answer, context.text, dict(context.info)))
        return 1 / int(answer)

    seen: list[tuple[str, str, dict[str, Any]]] = []
    context = ScoringContext(text="so: 0", info={"solution_str": "so: 0", "level": 1})
    scored = await score_extracted(in_process(divide), "0", "2", context)
    assert (scored.score, scored.extracted, scored.outcome) == (0.0, "0", ScoreOutcome.too_hard)
    assert scored.steps[0].startswith("the scorer own: ZeroDivisionError")
    own, truth = ("0", "so: 0", dict(context.info)), ("2", "2", {"solution_str": "2", "level": 1})
    assert seen == [own, truth, own]
    seen.clear()
    unknown = await score_extracted(in_process(divide), "0", "0", ScoringContext(info={"level": 1}))
    assert (unknown.score, unknown.outcome, len(seen)) == (None, ScoreOutcome.error, 2)
    assert seen[1] == ("0", "0", {"level": 1})


async def test_only_the_run_s_own_limit_is_a_timeout_and_who_delegates_has_none() -> None:
    async def fail(answer: str, truth: str) -> float:
        raise TimeoutError("its server's")

    async def wait(answer: str, truth: str) -> float:
        await asyncio.sleep(0.02)
        return 1.0

    context = ScoringContext(settings=RewardSettings(timeout=0.001))
    failed = await score_extracted(in_process(fail), "1", "1", ScoringContext())
    assert (failed.outcome, failed.score) == (ScoreOutcome.error, None)
    assert failed.cause is not None and failed.cause.startswith("the scorer own: TimeoutError: its server's")
    late = await score_extracted(in_process(wait), "1", "1", context)
    assert (late.outcome, late.cause) == (
        ScoreOutcome.timeout,
        "the scorer own took longer than 0.001 seconds",
    )
    assert (await score_extracted(in_process(wait, delegates=True), "1", "1", context)).score == 1.0


async def test_who_abstains_says_why_or_that_it_does_not() -> None:
    def abstain(answer: str, truth: str) -> Score:
        return Score(None)

    scored = await score_extracted(in_process(abstain), "1", "1", ScoringContext())
    assert (scored.outcome, scored.cause) == (
        ScoreOutcome.abstained,
        "the scorer own abstained without a reason",
    )


@pytest.mark.parametrize(
    ("scores", "best", "asked"),
    [
        ({"a": 0.5, "b": 1.0, "c": 0.0}, "b", "ab"),
        ({"a": 0.25, "b": 0.75, "c": 0.5}, "b", "abc"),
        ({"a": None, "b": 0.5, "c": None}, "a", "abc"),
        ({"a": 0.5, "b": None, "c": 1.0}, "c", "abc"),
    ],
)
async def test_of_several_references_the_best_counts_and_one_that_is_not_known_before_a_part(
    scores: dict[str, float | None], best: str, asked: str
) -> None:
    def look(answer: str, truth: str) -> Score:
        seen.append(truth)
        return Score(scores[truth], steps=(truth,))

    seen: list[str] = []
    context = ScoringContext(info={"ground_truths": tuple(scores)})
    scored = await score_extracted(in_process(look), "1", "truth", context)
    assert (scored.score, scored.steps, "".join(seen)) == (scores[best], (best,), asked)


@pytest.mark.parametrize(
    ("references", "more", "truths"),
    [
        (["a"], {}, ["truth"]),
        ("ab", {}, ["truth"]),
        (["a", 2], {"delegates": True}, ["truth"]),
        (["a", 2], {"kind": ScorerKind.reward_function}, ["truth"]),
        (["a", 2], {"takes_references": True}, ["any one of these:\n- a\n- 2"]),
        (["a", 2], {}, ["a", "2"]),
    ],
)
async def test_a_scorer_gets_the_references_as_it_takes_them(
    references: object, more: dict[str, Any], truths: list[str]
) -> None:
    def look(answer: str, truth: str) -> float:
        seen.append(truth)
        return 0.0

    seen: list[str] = []
    context = ScoringContext(info={"ground_truths": references})
    assert (await score_extracted(in_process(look, **more), "1", "truth", context)).score == 0.0
    assert seen == truths


@pytest.mark.parametrize(
    "nest",
    [lambda value: [value], lambda value: {1: value}, lambda value: (value,)],
    ids=["list", "map", "tuple"],
)
def test_what_is_nested_too_deeply_is_cut_off(nest: Callable[[Any], Any]) -> None:
    value: Any = "text"
    for _ in range(20):
        value = nest(value)
    kept, cut = json.dumps(_plain(nest({0: 1.5}))), json.dumps(_plain(nest(value)))
    assert "1.5" in kept and cut.count("[") + cut.count("{") == 21 and '"text"' in cut
    deeper = json.dumps(_plain(nest(nest([value]))))
    assert deeper.count("[") + deeper.count("{") == 21 and '"..."' in deeper


MANY = [name for name in BUILT_IN if name not in ("code_tests", "llm_judge")]
TEXTS = st.one_of(
    st.text(st.characters(), max_size=200),
    st.text("0123456789.,-+/%$ {}\\^()[]=xeE", max_size=60),
    st.from_regex(r"\\(frac|sqrt|boxed|text)(\{[0-9x]{1,3}\}){1,2}", fullmatch=True),
    st.sampled_from(["9" * 900, "9^{9^{9^{9}}}", "{" * 300, "x" * 5000, "1e99", "\ud800", "\x00", "", "?"]),
)


@examples(60)
@given(answer=TEXTS, truth=TEXTS, scorer=st.sampled_from([*MANY, "code_tests", "llm_judge"]))
def test_any_answer_gets_a_result_in_time(answer: str, truth: str, scorer: str) -> None:
    reward_settings = RewardSettings(timeout=2.0, composite=CompositeSettings(correct="math"))
    began = time.monotonic()
    scored = score_now(
        f"<answer>{answer}</answer>", ground_truth=truth, scorer=scorer, settings=reward_settings
    )
    assert time.monotonic() - began < 60  # which allows for starting a worker on a busy machine
    assert scored.score is None or 0.0 <= scored.score <= 1.0
    assert (scored.score is None) == (scored.cause is not None)
    assert scored.scorer == scorer
    with_score = (ScoreOutcome.scored, ScoreOutcome.no_answer, ScoreOutcome.too_hard)
    assert (scored.outcome in with_score) == (scored.score is not None)
    json.dumps(dict(scored.parts))


@examples(30)
@given(answer=TEXTS.filter(lambda text: "<" not in text), tool_text=TEXTS, scorer=st.sampled_from(MANY))
def test_tool_text_never_changes_a_score(answer: str, tool_text: str, scorer: str) -> None:
    reward_settings = RewardSettings(timeout=5.0, composite=CompositeSettings(correct="exact"))
    assistant = {"role": "assistant", "content": f"<answer>{answer}</answer>"}
    tool = {"role": "tool", "content": f"<answer>{tool_text}</answer> </think> {tool_text}"}
    alone = score_now([assistant], ground_truth="7", scorer=scorer, settings=reward_settings)
    among = score_now([tool, assistant, tool], ground_truth="7", scorer=scorer, settings=reward_settings)
    assert (alone.score, alone.extracted, alone.outcome) == (among.score, among.extracted, among.outcome)


SEVERAL = {"ground_truths": ["the sea", "ocean", "an ocean"]}


@pytest.mark.parametrize(
    ("scorer", "answer", "value"),
    [("exact", "Ocean", 1.0), ("exact", "lake", 0.0), ("f1", "deep sea", 2 / 3), ("number", "ocean", 1.0)],
)
def test_the_best_of_several_right_answers_counts(scorer: str, answer: str, value: float) -> None:
    scored = score_now(f"<answer>{answer}</answer>", ground_truth="the sea", scorer=scorer, info=SEVERAL)
    assert scored.score == pytest.approx(value)


def test_a_composite_has_the_best_of_several_right_answers_too() -> None:
    composite = RewardSettings(composite=CompositeSettings(correct="exact"))
    scored = score_now(
        "<answer>ocean</answer>", ground_truth="the sea", scorer="composite", settings=composite, info=SEVERAL
    )
    assert scored.score == 1.0


def test_a_right_answer_that_cannot_be_compared_may_have_been_the_one() -> None:
    info = {"ground_truths": np.array(["2", "9^{9^9}"])}
    right = score_now("<answer>2</answer>", ground_truth="2", scorer="math", info=info)
    other = score_now(r"<answer>\sqrt{3}</answer>", ground_truth="2", scorer="math", info=info)
    assert (right.score, other.score, other.outcome) == (1.0, None, ScoreOutcome.abstained)
