"""A group with too few healthy episodes plays the failed ones once more, and nobody in it waits for ever."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopManager
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from aworld_train import waits
from aworld_train.adapter.episodes.groups import Group
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl import worker as worker_module
from aworld_train.adapter.verl.worker import EpisodeManager, EpisodeWorker
from aworld_train.store.events import EpisodeBegun, EpisodeEnded
from tests.agent_loops import END, MESSAGES, sampled, settings_file
from tests.episode_workers import OneAnswerLoop, Queue, TwoRows, lines, play, queue_in_place, worker
from tests.stored_runs import written_events

Episode = list[int] | Exception | Callable[[], Awaitable[list[int]]]
HEALTHY: Episode = sampled("<answer>42</answer>" + END)
FAILS: Episode = RuntimeError("out of memory")


class Broken(OneAnswerLoop):
    """An agent loop with a fault of its own: the first session of a task raises instead of returning rows."""

    async def run(self, sampling_params: dict[str, Any], **task: Any) -> list[Any]:
        if task["session_id"] == 0:
            raise ValueError("a fault of the loop itself")
        return await super().run(sampling_params, **task)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> Queue:
    return queue_in_place(monkeypatch)


def outcomes(folder: Path) -> Counter[str]:
    return Counter(line["outcome"] for line in lines(folder))


async def test_a_worker_is_made_ready_for_episodes_and_shows_that_it_runs(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    calls: list[Any] = []

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        agent = {"agent_loop_config_path": str(run_dir / "loops.yaml")}
        self.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"agent": agent}}})
        calls.append((arguments, options))

    async def beat() -> None:
        calls.append("beat")

    monkeypatch.setattr(AgentLoopWorkerTQ.__ray_metadata__.modified_class, "__init__", init)
    monkeypatch.setattr(worker_module, "keep_pauses_short", lambda: calls.append("short pauses"))
    monkeypatch.setattr(worker_module, "report", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(worker_module, "beat", beat)
    recipe = {"rollout": {"n": 4, "min_group": 3, "small_group": "resample"}}
    settings_file(recipe=recipe).rename(run_dir / EPISODES_FILE)
    made = EpisodeWorker.__ray_metadata__.modified_class("config", key=1)
    await made.until_the_end()
    assert calls == [(("config",), {"key": 1}), "short pauses", (run_dir, "episodes"), "beat"]
    assert made._min_healthy == 3


async def test_the_manager_s_workers_play_episodes_and_are_watched_with_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    async def start_workers(self: Any) -> None:
        self.agent_loop_workers = [
            SimpleNamespace(until_the_end=SimpleNamespace(remote=f"call {number}")) for number in range(2)
        ]

    monkeypatch.setattr(AgentLoopManager, "__init__", lambda self, *arguments: calls.append(arguments))
    monkeypatch.setattr(AgentLoopManager, "_init_agent_loop_workers", start_workers)
    monkeypatch.setattr(liveness, "queue_calls", lambda: {"the queue": "its call"})
    monkeypatch.setattr(liveness, "watch", calls.append)
    manager = EpisodeManager("config")
    assert manager.agent_loop_workers_class is EpisodeWorker
    await manager._init_agent_loop_workers()
    watched = {"the episode worker 0": "call 0", "the episode worker 1": "call 1", "the queue": "its call"}
    assert calls == [("config",), watched]


async def test_the_failed_episodes_of_a_small_group_are_played_again_and_only_those(
    queue: Queue, run_dir: Path
) -> None:
    played = worker([HEALTHY, FAILS, FAILS, FAILS, *[HEALTHY] * 3], n=4, min_healthy=2)
    await play(played)
    assert queue.sessions("task") == ["0", "1", "2", "3"]
    assert queue.status == {"task": "finished"}
    assert outcomes(run_dir) == {"answered": 4, "provider": 3}


async def test_what_fails_again_is_not_played_a_third_time(queue: Queue, run_dir: Path) -> None:
    await play(worker([HEALTHY, *[FAILS] * 20], n=4, min_healthy=2))
    assert queue.sessions("task") == ["0"]
    assert outcomes(run_dir) == {"answered": 1, "provider": 6}


async def test_a_group_that_is_large_enough_is_left_as_it_is(queue: Queue, run_dir: Path) -> None:
    await play(worker([HEALTHY, FAILS, HEALTHY, FAILS], n=4, min_healthy=2))
    assert len(queue.sessions("task")) == 2
    assert outcomes(run_dir) == {"answered": 2, "provider": 2}


async def test_a_failed_episode_of_a_group_that_is_large_enough_does_not_wait_for_a_slow_one(
    queue: Queue,
) -> None:
    slow = asyncio.Event()

    async def at_last() -> list[int]:
        await slow.wait()
        return HEALTHY  # type: ignore[return-value]

    played = worker([HEALTHY, HEALTHY, FAILS, at_last], n=4, min_healthy=2)
    sessions = [
        asyncio.create_task(
            played._run_agent_loop(
                {}, {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}, trace=False, **session
            )
        )
        for session in (
            {
                "uid": "task",
                "agent_name": "groups",
                "raw_prompt": MESSAGES,
                "global_steps": 1,
                "session_id": i,
            }
            for i in range(4)
        )
    ]
    played._groups["task"] = Group(4, 2)
    waiting = set(sessions)
    async with asyncio.timeout(30):
        while len(waiting) > 1:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(waiting) == 1
    slow.set()
    await asyncio.gather(*waiting)


async def test_in_validation_nothing_is_played_again(queue: Queue, run_dir: Path) -> None:
    await play(worker([FAILS] * 8, n=4, min_healthy=2), validate=True)
    assert outcomes(run_dir) == {"provider": 4}


async def test_an_episode_is_recorded_before_its_rows_can_be_trained_on(
    queue: Queue, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[tuple[int, int]] = []

    async def put_rows(**rows: Any) -> None:
        in_file = [line for line in lines(run_dir) if "scores" in line]
        in_store = [event for event in written_events(run_dir) if isinstance(event, EpisodeEnded)]
        recorded.append((len(in_file), len(in_store)))
        await queue.put_rows(**rows)

    monkeypatch.setattr("verl.trainer.ppo.v1.agent_loop_tq.tq.async_kv_batch_put", put_rows)
    await play(worker([HEALTHY], n=1, min_healthy=1))
    await play(worker([HEALTHY], n=1, min_healthy=1), "later")
    assert recorded == [(1, 1), (2, 2)]
    assert outcomes(run_dir) == {"answered": 2}, "and each is recorded once"


@pytest.mark.parametrize(("validate", "phase"), [(False, "train"), (True, "val")])
async def test_an_episode_is_opened_in_the_store_under_verl_s_name(
    queue: Queue, run_dir: Path, validate: bool, phase: str
) -> None:
    await play(worker([HEALTHY] * 2, n=2, min_healthy=1), validate=validate)
    begun = [event for event in written_events(run_dir) if isinstance(event, EpisodeBegun)]
    assert sorted((event.step, event.phase, event.attempt, event.key) for event in begun) == [
        (1, phase, 0, "task_0"),
        (1, phase, 1, "task_1"),
    ]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_reward_function_that_is_not_the_recipe_s_is_recorded_and_waited_for_as_well(
    queue: Queue, run_dir: Path, fails: bool
) -> None:
    waited_for: list[str] = []

    async def compute_score(data: Any) -> dict[str, Any]:
        waited_for.extend(name for kind, name, _ in waits._open.values() if kind == "score")
        if fails:
            raise ray.exceptions.RayError("it ran out of memory")
        return {"reward_score": 0.5, "reward_extra_info": {"style": 0.25, "remark": "good"}}

    made = worker([HEALTHY], n=1, min_healthy=1, loop=TwoRows)
    made._min_healthy = 0
    made.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=compute_score))]
    await play(made, **({} if fails else {"extra_info": {"scorer": "style"}}))
    (line,) = lines(run_dir)
    assert waited_for == ["" if fails else "style"]
    if fails:
        assert (
            "the reward worker failed: RayError: it ran out of memory" in line["cause"]
            and "reward" not in line
        )
    else:
        assert (line["reward"], line["scores"], len(queue.rows)) == (0.5, {"style": 0.25}, 2)


class Teacher:
    """VeRL's manager of teachers: scores every token as its number, or fails."""

    def __init__(self, error: Exception | None = None):
        self.scored_rows: list[list[int]] = []
        self._error = error

    async def compute_teacher_logprobs_single(self, sequence_ids: list[int], **_: Any) -> Any:
        self.scored_rows.append(sequence_ids)
        assert [name for kind, name, _ in waits._open.values() if kind == "model"] == ["the teacher"]
        if self._error is not None:
            raise self._error
        return torch.tensor(sequence_ids)[:, None], -torch.tensor(sequence_ids)[:, None].float()


def taught(teacher: Teacher) -> Any:
    made = worker([HEALTHY], n=1, min_healthy=1, loop=TwoRows)
    made.distillation_enabled, made.teacher_key, made.teacher_server_manager = True, "data_source", teacher
    made._min_healthy = 0
    return made


async def test_a_teacher_scores_each_row_of_an_episode_once(
    queue: Queue, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []

    async def put_rows(*, fields: Any, **more: Any) -> None:
        rows.extend(fields)
        await queue.put_rows(fields=fields, **more)

    monkeypatch.setattr("verl.trainer.ppo.v1.agent_loop_tq.tq.async_kv_batch_put", put_rows)
    teacher = Teacher()
    await play(taught(teacher))
    assert len(teacher.scored_rows) == len(rows) == 2
    for row in rows:
        assert row["teacher_logprobs"].flatten().tolist() == [-token for token in row["input_ids"].tolist()]
    assert outcomes(run_dir) == {"answered": 1}


async def test_validations_ask_no_teacher(queue: Queue, run_dir: Path) -> None:
    teacher = Teacher(ValueError("it must not be asked"))
    await play(taught(teacher), validate=True)
    assert teacher.scored_rows == [] and len(queue.rows) == 2


async def test_what_a_teacher_did_not_score_is_not_trained_on(queue: Queue, run_dir: Path) -> None:
    await play(taught(Teacher(ray.exceptions.RayError("out of memory"))))
    (line,) = lines(run_dir)
    assert "the teacher failed: RayError: out of memory" in line["cause"]
    assert queue.rows == [] and queue.status["task"] == "failure"


async def test_without_the_wish_for_it_nothing_is_played_again(queue: Queue, run_dir: Path) -> None:
    played = worker([FAILS] * 8, n=4, min_healthy=2)
    played._min_healthy = 0
    await play(played)
    assert outcomes(run_dir) == {"provider": 4}


async def test_a_session_that_raises_keeps_nobody_waiting_and_the_others_are_played_again(
    queue: Queue, run_dir: Path
) -> None:
    await play(worker([FAILS, FAILS, HEALTHY, HEALTHY], n=3, min_healthy=1, loop=Broken))
    assert queue.sessions("task") == ["1", "2"]
    assert queue.status == {"task": "failure"}
    assert outcomes(run_dir) == {"infrastructure": 1, "provider": 2, "answered": 2}


@pytest.mark.parametrize("size", [1, 2, 6])
async def test_a_task_may_have_a_group_of_its_own_size(queue: Queue, run_dir: Path, size: int) -> None:
    # VeRL lets a row say how often its task is played.
    await play(worker([FAILS] * 20, n=4, min_healthy=2), __rollout_n__=size)
    assert outcomes(run_dir) == {"provider": 2 * size}


async def test_groups_do_not_count_each_others_episodes_and_are_forgotten(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle: list[dict[str, Group]] = []
    monkeypatch.setattr(worker_module, "while_nobody_waits", lambda: idle.append(dict(played._groups)))
    played = worker([HEALTHY] * 2 + [FAILS] * 2 + [HEALTHY] * 2, n=2, min_healthy=2)
    await asyncio.gather(play(played, "good"), play(played, "bad"))
    assert (queue.sessions("good"), queue.sessions("bad")) == (["0", "1"], ["0", "1"])
    assert idle == [{}], "garbage is collected when no group is left"


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 8))
def test_a_group_is_too_small_exactly_if_fewer_are_healthy_than_needed(
    healthy: list[bool], min_healthy: int
) -> None:
    async def known_after() -> tuple[int, bool]:
        group = Group(len(healthy), min_healthy)
        waiting = asyncio.create_task(group.too_small())
        for count, one in enumerate(healthy, 1):
            group.report(one)
            for _ in range(3):
                await asyncio.sleep(0)
            if waiting.done():
                return count, await waiting
        raise AssertionError("all have reported, and it is not known")

    count, small = asyncio.run(known_after())
    assert small == (sum(healthy) < min_healthy)
    # It is known with the first episode that decides it.
    enough = [n for n, total in enumerate(itertools.accumulate(healthy), 1) if total >= max(min_healthy, 0)]
    assert count == (enough[0] if enough else len(healthy))
