"""The record of an episode: what becomes of it in its line and in the store, and which figures have a place there."""

import json
import math
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, EpisodeRecord, current_record, open_record
from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_episode import ChatEpisode
from aworld_train.rollout.endpoint import EndpointFailed
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.messages import ChatRequest
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tool_record import ToolCounts
from aworld_train.store.events import EpisodeBegun, EpisodeEnded
from tests.stored_runs import task_row, written_events
from tests.templates import ScriptedModel, cut_up

ANSWERED = {"outcome": "answered", "treatment": "trained"}
RAISED = {"outcome": "infrastructure", "treatment": "dropped", "cause": "RuntimeError: a bug"}
LIMITS = EpisodeLimits(10, 1000, 1000, SamplingParams(1.0, 1.0, -1))
TASK = {**task_row(0, 6, 7), "raw_prompt": task_row(0, 6, 7)["prompt"]}


def score(value: float | None, extracted: str | None = "42", **parts: float) -> EpisodeScore:
    outcome = ScoreOutcome.abstained if value is None else ScoreOutcome.scored
    cause = "no judge" if value is None else None
    return EpisodeScore(ScoreResult(value, extracted, outcome, parts, (), cause, "number"), 0, 0)


def finished(answer: str = "It is 42.", tools: ToolCounts | None = None) -> EpisodeRecord:
    """The record of an episode in which nothing was said but its answer."""
    record = EpisodeRecord(1, False, 0)
    episode = ChatEpisode(cast(Any, None), LIMITS)
    result = EpisodeResult(episode, tools or ToolCounts(), Outcome.answered, answer)
    record.finish(result, [], Treatment.trained, 0.5)
    return record


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "traces" / "episodes.jsonl").read_text().splitlines()]


def test_a_number_beyond_64_bits_is_no_figure() -> None:
    record = EpisodeRecord(1, False, 0)
    record.reward(
        1.0,
        {
            "acc": 1.0,
            "nan": math.nan,
            "most": (1 << 63) - 1,
            "more": 1 << 63,
            "pred": 10**30,
            "least": -(10**400),
            "text": "7",
        },
    )
    assert list(record.figures.scores or {}) == ["acc", "nan", "most"]
    assert record.figures.reward == 1.0


@pytest.mark.parametrize(
    ("reported", "error", "end"),
    [
        (ANSWERED, None, ANSWERED),
        (ANSWERED, RuntimeError("a bug"), RAISED),
        ({}, RuntimeError("a bug"), RAISED),
        ({}, None, {**RAISED, "cause": "the agent loop reported nothing"}),
    ],
)
def test_an_episode_whose_loop_raised_is_dropped_whatever_was_reported(
    run_dir: Path, reported: dict[str, Any], error: Exception | None, end: dict[str, Any]
) -> None:
    record = EpisodeRecord(1, False, 0)
    for name, value in reported.items():
        setattr(record.figures, name, value)
    if reported and error:
        record.reward(1.0, {"acc": 1.0})
    record.write(error)
    assert not record.is_usable
    assert lines(run_dir) == [{"episode": record.id, "step": 1, "validate": False, "index": 0, **end}]
    assert record.is_written


def test_a_line_says_which_endpoints_refuse_all_requests() -> None:
    record = finished()
    assert not record.score(score(None, judge_calls=1.0), TASK) and record.figures.refusal is None
    assert not record.score(score(None, llm_judge_judges_refuse=1.0), TASK)
    assert record.figures.refusal == "The judges refuse all requests: no judge"
    episode = ChatEpisode(cast(Any, None), LIMITS)
    episode.fail(EndpointFailed("the endpoint helper gave no answer: HTTP 401", is_permanent=True))
    record = EpisodeRecord(1, False, 0)
    record.finish(EpisodeResult(episode, ToolCounts(), Outcome.provider), [], Treatment.dropped, 0.5)
    assert (record.figures.refusal or "").endswith(": the endpoint helper gave no answer: HTTP 401")


async def test_what_became_of_an_episode_is_in_its_line() -> None:
    episode = TokenEpisode(
        ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, "fine<|im_end|>", 0), True)),
        LIMITS,
    )
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    for question in ("And now?", "Or else?"):
        await episode.complete("agent", ChatRequest([*history, Message("user", question)]))
    lost = await episode.complete("critic", ChatRequest([Message("user", "Well?")]))
    episode.undelivered("critic", lost)
    episode.generate_seconds = 1.23456789
    result = EpisodeResult(episode, ToolCounts(3, 2, 2.3456789), Outcome.tool, cause="no helper")
    record = open_record(3, True, 5)
    assert current_record() is record
    rows = episode.rows()
    record.finish(result, rows, Treatment.masked, 3.456789)
    sampled = len(episode.agents["agent"].completions[0].tokens)
    line = record.figures.line()
    branch_points = line.pop("branch_points")
    assert [(point["agent"], point["cause"], point["message"]) for point in branch_points] == [
        ("agent", "edited", 2)
    ]
    assert line == {
        "episode": record.id,
        "step": 3,
        "validate": True,
        "index": 5,
        "outcome": "tool",
        "treatment": "masked",
        "turns": 4,
        "tool_calls": 3,
        "tool_errors": 2,
        "rows": 2,
        "prompt_tokens": sum(len(row.prompt) for _, row in rows),
        "response_tokens": sum(len(row.response) for _, row in rows),
        "sampled_tokens": 3 * sampled,
        "unique_tokens": episode.agents["agent"].graph.unique_tokens,
        "given_tokens": episode.given_tokens,
        "branches": {"edited": 1},
        "format_misses": {},
        "undelivered": 1,
        "weights": None,
        "agents": {"agent": 3, "critic": 1},
        "seconds": 3.4568,
        "generate_seconds": 1.2346,
        "tool_seconds": 2.3457,
        "cause": "no helper",
    }
    assert len(record.id) == 16


async def test_tokens_of_an_outside_endpoint_are_counted_without_rows() -> None:
    class Endpoint:
        prompts = iter((10, 40))

        async def answer(self, *arguments: Any, **options: Any) -> ChatAnswer:
            return ChatAnswer("fine", "", (), "stop", next(self.prompts), 7)

    episode = ChatEpisode(cast(Any, Endpoint()), LIMITS)
    history = [Message("user", "Hello.")]
    history.append((await episode.complete("agent", ChatRequest(history))).message)
    await episode.complete("agent", ChatRequest([*history, Message("user", "And now?")]))
    record = EpisodeRecord(1, True, 0)
    record.finish(EpisodeResult(episode, ToolCounts(), Outcome.answered), [], Treatment.trained, 0.5)
    counts = ("prompt_tokens", "response_tokens", "sampled_tokens", "given_tokens")
    assert [getattr(record.figures, name) for name in counts] == [10, 37, 14, 50]


@pytest.mark.parametrize(
    ("value", "scored"),
    [
        (0.5, {"parts": {"acc": 0.25}, "extracted": "4" * 1000, "reward": 0.5}),
        (None, {"parts": {"acc": 0.25}, "treatment": "dropped", "cause": "no judge"}),
    ],
)
def test_an_episode_without_a_score_is_dropped_and_one_with_it_usable(
    value: float | None, scored: dict[str, Any]
) -> None:
    record, given = finished(), score(value, "4" * 1001, acc=0.25)
    played = {**record.figures.line(), "scorer": "number", "scoring": given.result.outcome.value}
    assert record.score(given, TASK) is record.is_usable is (value is not None)
    line = record.figures.line()
    if value is not None:
        assert line.pop("scores") == given.figures()
    assert line == {**played, **scored}


def test_of_an_answer_that_is_right_without_a_tool_a_person_gets_what_to_look_at() -> None:
    record = finished()
    assert record.score(score(1.0), TASK)
    assert record.figures.suspicions == ["right_without_tool"]
    assert record.figures.look == {
        "query": "What is 6 times 7?",
        "said": "It is 42.",
        "extracted": "42",
        "ground_truth": "42",
    }


@pytest.mark.parametrize(
    ("tools", "value", "overrides"),
    [(ToolCounts(1), 1.0, []), (ToolCounts(), 0.5, []), (ToolCounts(), 1.0, ["env.backend=none"])],
)
def test_an_answer_is_not_suspicious_that_used_a_tool_or_is_wrong_or_whose_agent_has_none(
    tools: ToolCounts, value: float, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    record = finished(tools=tools)
    record.begin(settings_from(episode_settings(recipes.load({}, overrides))), TASK, phase="train")
    assert record.score(score(value), TASK)
    assert not {"suspicions", "look"} & set(record.figures.line())


def test_a_score_of_what_was_not_played_here_is_recorded_without_suspicion() -> None:
    record = EpisodeRecord(1, False, 0)
    assert record.score(score(1.0, None), {})
    assert (record.figures.reward, record.figures.extracted) == (1.0, None)
    assert record.figures.suspicions is None


@pytest.mark.parametrize(
    ("attachments", "signs"),
    [
        (None, ["answer_in_other_file", "answer_from_prompt"]),
        (["/data/table.csv"], ["answer_from_prompt"]),
        (["/data/mine.csv"], ["answer_in_other_file", "answer_from_prompt"]),
    ],
)
async def test_an_answer_from_a_file_that_is_not_the_task_s_is_suspicious(
    attachments: list[str] | None, signs: list[str]
) -> None:
    call = '<tool_call>\n{"name": "read", "arguments": {"path": "/data/table.csv"}}\n</tool_call>'
    model = ScriptedModel("chatml_tools", lambda tokenizer: (cut_up(tokenizer, f"{call}<|im_end|>", 0), True))
    episode = TokenEpisode(model, LIMITS)
    prompt = [{"role": "system", "content": "4242"}, {"role": "user", "content": None}]
    prompt.append({"role": "user", "content": "Not 4242?"})
    history = [Message("user", "Hello.")]
    message = (await episode.complete("agent", ChatRequest(history))).message
    result = Message("tool", "It is 4242.", call_id=message.tool_calls[0].call_id, name="read")
    await episode.complete("agent", ChatRequest([*history, message, result]))
    record = EpisodeRecord(1, False, 0)
    played = EpisodeResult(episode, ToolCounts(1), Outcome.answered, "4242")
    record.finish(played, episode.rows(), Treatment.trained, 0.5)
    info = {} if attachments is None else {"attachments": np.array(attachments)}
    assert record.score(score(1.0, "4242"), {"raw_prompt": prompt, "extra_info": info or None})
    assert (record.figures.look or {})["query"] == "\nNot 4242?"
    assert record.figures.suspicions == signs


@pytest.mark.parametrize("outcome", ["environment", "infrastructure"])
def test_an_environment_or_engine_that_is_lost_is_a_line_of_its_own_and_the_episode_continues(
    outcome: str, run_dir: Path
) -> None:
    record = EpisodeRecord(1, False, 0)
    episode: Any = None
    record.lost(EpisodeResult(episode, ToolCounts(), Outcome(outcome), cause="no answer"))
    begun = {"episode": record.id, "step": 1, "validate": False, "index": 0}
    assert record.figures.line() == begun and not record.is_written
    assert lines(run_dir) == [{**begun, "outcome": outcome, "retried": True, "cause": "no answer"}]


def test_lines_are_whole_where_a_disk_takes_parts_and_only_their_owner_reads_them(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, close = os.write, os.close
    used, closed = list[int](), list[int]()

    def write_a_part(descriptor: int, data: bytes) -> int:
        used.append(descriptor)
        return write(descriptor, data[:7])

    def close_and_note(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "write", write_a_part)
    monkeypatch.setattr(os, "close", close_and_note)
    for index in range(2):
        record = EpisodeRecord(1, False, index)
        record.figures.outcome, record.figures.cause = "answered", "é"
        record.write(None)
    monkeypatch.undo()
    assert [(line["index"], line["cause"]) for line in lines(run_dir)] == [(0, "é"), (1, "é")]
    assert (run_dir / "traces" / "episodes.jsonl").stat().st_mode & 0o777 == 0o600
    assert set(used) <= set(closed)


def test_outside_a_run_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    record = finished()
    record.begin(settings_from(episode_settings(recipes.load({}))), TASK, phase="train")
    record.write(None)
    assert record.is_written
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("keep", "is_kept"), [("all", True), ("failures", False), ("off", None)])
async def test_the_store_has_an_episode_with_its_content_as_the_recipe_keeps_it(
    run_dir: Path, keep: str, is_kept: bool | None
) -> None:
    record = finished(tools=ToolCounts(1))
    settings = settings_from(episode_settings(recipes.load({}, [f"store.keep={keep}"])))
    record.begin(settings, TASK, phase="train", attempt=2, key="uid_2_0")
    record.reward(1.0, {"acc": 1.0})  # of a reward function of the framework's
    await record.keep()
    assert lines(run_dir) == [record.figures.line()]
    events = written_events(run_dir)
    begun = [event for event in events if isinstance(event, EpisodeBegun)]
    assert [(e.id, e.step, e.phase, e.attempt, e.key) for e in begun] == [
        (record.id, 1, "train", 2, "uid_2_0")
    ] * (is_kept is not None)
    ended = [event for event in events if isinstance(event, EpisodeEnded)]
    assert [(event.id, event.figures) for event in ended] == [(record.id, record.figures)] * len(begun)
    if is_kept is not None:
        content = ended[0].content
        assert (content is not None) is is_kept
        assert content is None or content.score == ScoreResult(parts={"acc": 1.0})


def test_an_episode_that_was_not_played_is_stored_without_content(run_dir: Path) -> None:
    record = EpisodeRecord(1, False, 0)
    settings = settings_from(episode_settings(recipes.load({}, ["store.keep=all"])))
    record.begin(settings, TASK, phase="train")
    record.write(RuntimeError("a bug"))
    recorder = record._recorder
    assert recorder is not None
    recorder.close()
    [ended] = (event for event in written_events(run_dir) if isinstance(event, EpisodeEnded))
    assert ended.content is None and ended.figures == record.figures
