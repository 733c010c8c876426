"""Costs that grow with the work and not with its square, of all parts that a long run or a large evaluation uses."""

import asyncio
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto

from aworld_train.adapter.verl.advantages import estimate, in_groups, samples_of, scored_once
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.adapter.verl.mini_batches import arrange
from aworld_train.adapter.verl.trained_rows import trained_row
from aworld_train.adapter.verl.trainer import _by_verl
from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.results import open_evaluation
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.model_gateway import ModelGateway
from aworld_train.rollout.pauses import keep_pauses_short, while_nobody_waits
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.store.database import Database
from aworld_train.store.event_files import event_files, read_events
from aworld_train.store.export.exporting import export
from aworld_train.store.export.formats import ExportFormat
from aworld_train.store.export.writer import ExportedRun
from aworld_train.store.loading import load
from aworld_train.store.reading import Store
from aworld_train.store.store_location import store_location
from aworld_train.training.run_files import LOCK
from aworld_train.training.run_folder import RunFolder
from aworld_train.training.run_metrics import RunMetrics
from aworld_train.training.summary import RunSummary
from aworld_train.view.eval_report import update_reports, write_reports
from tests.bench.test_gateway import StubEngine, delays, through_the_gateway
from tests.bench.test_large_builds import BUILD
from tests.evaluations import make_evaluation
from tests.large_stores import ATTEMPTS, make_large_run, write_step
from tests.run_folders import make_run
from tests.stored_runs import open_store
from tests.word_problems import problems, write_jsonl

pytestmark = pytest.mark.bench

MAX_EXPONENT = 1.1
STEPS = (500, 1500, 4500)
EPISODES, FIGURES = 16, 120  # of a step
STEP_EPISODES = (128, 1024, 4096)
RESPONSE, RANKS = 512, 8  # tokens
RUNS, RUN_STEPS = 500, 5000
MAX_LIST_RATIO = 4.0
"""Processor time of the list over that of a process that reads the same small files, both with their start."""
MAX_MEMORY = 150  # MiB
TURNS, TURN_EPISODES = (5, 10, 20), 64
MAX_EXPORT_RATIOS = {ExportFormat.parquet: 14.0, ExportFormat.atif: 13.0, ExportFormat.messages: 4.0}
"""Processor time of an export over that of reading the same episodes, at 20 turns."""
STORE_SIZES, BATCH, MAX_BATCH_RATIO = (512, 1024, 2048), 50, 2.0
MAX_LOAD_RATIO = 9.0
"""Processor time of loading events over that of reading them, at 20 turns."""
TASKS = (250, 500, 1000)
MAX_UPDATE_RATIO = 1.5
"""Of looking whether the reports are up to date, with the evaluation's figures, over reading the evaluation."""
ROWS = (40_000, 120_000, 360_000)
COMPARED, QUESTIONS = (5_000, 15_000, 45_000), (2_000, 6_000, 18_000)
"""Rows of a build that is compared with evaluation questions, and these; word problems are much alike."""
GATEWAY_EPISODES = (64, 192, 576)
MEMORY_ROUNDS, MEMORY_EPISODES, MAX_MEMORY_RATIO = 10, 1000, 1.1
"""Memory of the gateway's process after the last round over that after the second."""
EPISODE = {
    "validate": False,
    "outcome": "answered",
    "treatment": "trained",
    "tool_calls": 1,
    "scorer": "math",
    "scoring": "scored",
    "rows": 1,
    "prompt_tokens": 10,
    "response_tokens": 30,
    "unique_tokens": 40,
    "sampled_tokens": 20,
    "reward": 1.0,
    "scores": {"acc": 1.0},
}


def record_seconds(path: Path, steps: int, episodes: int = EPISODES) -> float:
    """Processor time of the record of that many steps, with what the framework and the episodes report written."""
    (path / "traces").mkdir(parents=True)
    folder = RunFolder(path, VerlFramework(), (path / LOCK).open("a"))
    figures = {f"actor/figure{number}": number * 1.1 for number in range(FIGURES)}
    record = RunMetrics(folder, RunSummary("r", steps_planned=steps), path / "verl.jsonl", 0)
    began = time.process_time()
    for step in range(1, steps + 1):
        with folder.episodes.open("a") as file:
            for episode in range(episodes):
                file.write(json.dumps(EPISODE | {"step": step, "index": step * episodes + episode}) + "\n")
        with (path / "verl.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": {"actor/loss": 0.1} | figures}) + "\n")
        record.refresh(float(step))
    assert record.summary.episodes == steps * episodes
    return time.process_time() - began


def check_exponent(name: str, sizes: Sequence[int], seconds: Sequence[float]) -> None:
    exponent = linear_regression(list(map(log, sizes)), list(map(log, seconds))).slope
    print(
        f"{name}: {', '.join(f'{each * 1e3:.1f}' for each in seconds)} ms at {sizes}, exponent {exponent:.2f}"
    )
    assert exponent <= MAX_EXPONENT, name


def least(work: Callable[..., Any], *arguments: Any, rounds: int = 3, **options: Any) -> float:
    """The least processor time of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work(*arguments, **options)
        times.append(time.process_time() - began)
    return min(times)


def test_the_record_of_a_run_grows_with_its_steps(tmp_path: Path) -> None:
    seconds = [record_seconds(tmp_path / str(steps), steps) for steps in STEPS]
    for steps, each in zip(STEPS, seconds, strict=True):
        print(f"record of {steps} steps: {each:.2f} s, {each / steps * 1e3:.1f} ms a step")
    check_exponent("record", STEPS, seconds)


def test_the_record_of_a_step_grows_with_its_episodes(tmp_path: Path) -> None:
    seconds = [record_seconds(tmp_path / str(size), 10, size) / 10 for size in STEP_EPISODES]
    check_exponent("record of a step", STEP_EPISODES, seconds)


def batch_work(episodes: int) -> Callable[[], Any]:
    """What the trainer does with the batch of a step beside VeRL's passes: order, advantages, what is recorded."""
    keys = [f"task{number // ATTEMPTS}_{number % ATTEMPTS}_0" for number in range(episodes)]
    lengths = torch.randint(RESPONSE // 2, RESPONSE + 1, (episodes,), generator=torch.manual_seed(0))
    mask = (torch.arange(RESPONSE)[None] < lengths[:, None]).long()
    rewards = torch.zeros(episodes, RESPONSE)
    rewards[torch.arange(episodes), lengths - 1] = (torch.arange(episodes) % 3 == 0).float()
    algorithm = OmegaConf.create({"adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0})

    def work() -> None:
        arrange(keys, 4, RANKS).order(lengths.tolist(), RANKS)
        data = DataProto(batch=TensorDict({"response_mask": mask}, batch_size=episodes))
        data.non_tensor_batch["uid"] = np.array(keys, dtype=object)
        samples = samples_of(keys, [{}] * episodes)
        data.batch["token_level_rewards"] = scored_once(rewards, samples)
        estimate(data, lengths.tolist(), in_groups(samples), partial(_by_verl, algorithm, ATTEMPTS))
        rows = [trained_row(*row) for row in zip(keys, data.batch["advantages"], mask, strict=True)]
        assert any(row.advantage for row in rows)

    return work


def test_a_step_s_batch_grows_with_its_episodes() -> None:
    torch.set_num_threads(1)
    check_exponent("batch of a step", STEP_EPISODES, [least(batch_work(size)) for size in STEP_EPISODES])


@pytest.fixture
def many_runs(tmp_path: Path) -> Path:
    """Runs of many steps, of which all have the same metrics."""
    runs = tmp_path / "runs"
    runs.mkdir()
    metrics = tmp_path / "metrics.jsonl"
    raw = {f"actor/figure{number}": number * 1.1 for number in range(FIGURES)}
    rows = ({"step": step, "reward": 0.5, "loss": 0.1, "verl": raw} for step in range(RUN_STEPS))
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number in range(RUNS):
        folder = make_run(runs, f"run-{number}", model={"name": "tiny"})
        (folder / "metrics.jsonl").unlink()
        (folder / "metrics.jsonl").hardlink_to(metrics)
    return runs


AT_THE_END = """
import atexit, os, pathlib, re, sys

@atexit.register
def say():
    peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
    print(sum(os.times()[:2]), int(peak) // 1024, file=sys.stderr)
"""
LISTING = """
from aworld_train.cli.main import main
sys.argv = ["", "runs", "list", "--json", "--runs", {runs!r}]
main()
"""
READER = """
import json
import typer, rich.table
files = sorted(pathlib.Path({runs!r}).glob("*/[sm][ua]*.json"))
print(len([json.loads(file.read_text()) for file in files]))
"""


def cost(program: str, runs: Path) -> tuple[float, int, Any]:
    """Processor time and memory (MiB) of a process, and the JSON that it prints."""
    command = [sys.executable, "-c", AT_THE_END + program.format(runs=str(runs))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = done.stderr.split()[-2:]
    return float(seconds), int(memory), json.loads(done.stdout)


def test_a_list_of_many_runs_reads_no_metrics(many_runs: Path) -> None:
    pairs = [(cost(LISTING, many_runs), cost(READER, many_runs)) for _ in range(3)]
    (seconds, memory, shown), (peer, _, files) = min(pairs, key=lambda pair: pair[0][0] / pair[1][0])
    print(
        f"runs list, {RUNS} runs of {RUN_STEPS} steps: {seconds:.2f} s, {memory} MiB; a reader {peer:.2f} s"
    )
    assert (len(shown["runs"]), files) == (RUNS, 2 * RUNS)
    assert seconds <= MAX_LIST_RATIO * peer
    assert memory <= MAX_MEMORY


def opened(run: Path) -> Store:
    store = open_store(run)
    assert store is not None
    return store


def read_episodes(store: Store, ids: Sequence[str]) -> None:
    for _ in store.whole_episodes(ids):
        pass


def read_file(file: Path) -> int:
    return sum(len(frame) for frame, _ in read_events(file, 0, 1 << 30))


@pytest.mark.parametrize("form", MAX_EXPORT_RATIOS)
def test_an_export_grows_with_the_turns(tmp_path: Path, form: ExportFormat) -> None:
    seconds, ratio = [], 0.0
    for turns in TURNS:
        with opened(make_large_run(tmp_path, str(turns), TURN_EPISODES, turns)) as store:
            run, ids = ExportedRun("one", store.location.run, "tiny", store.blob), store.ids()
            seconds.append(least(export, store, run, form, tmp_path / "out", force=True))
            ratio = seconds[-1] / least(read_episodes, store, ids)
    print(
        f"{form}, {TURNS[-1]} turns: {seconds[-1] / TURN_EPISODES * 1e3:.1f} ms an episode, {ratio:.1f} of reading"
    )
    check_exponent(form, TURNS, seconds)
    assert ratio <= MAX_EXPORT_RATIOS[form]


def test_a_batch_or_page_of_episodes_costs_the_same_in_a_larger_store(tmp_path: Path) -> None:
    costs: dict[str, list[float]] = defaultdict(list)
    for size in STORE_SIZES:
        with opened(make_large_run(tmp_path, str(size), size, 2)) as store:
            ids = random.Random(0).sample(store.ids(), BATCH)
            costs["a batch"].append(least(read_episodes, store, ids, rounds=5))
            costs["figures"].append(least(store.figures, rounds=5))
            costs["a page"].append(least(store.episodes, limit=BATCH, descending=True, rounds=5))
            costs["the first tasks"].append(least(store.tasks, limit=BATCH, rounds=5))
            costs["a tool"].append(least(store.episodes, "tool=calculator", limit=BATCH, rounds=5))
            costs["a search"].append(least(store.episodes, limit=BATCH, search="word1", rounds=5))
    for name, each in costs.items():
        print(f"{name}: {', '.join(f'{cost * 1e3:.1f}' for cost in each)} ms in stores of {STORE_SIZES}")
        # Figures grow with the steps, of which a store of this size has four.
        assert each[-1] <= MAX_BATCH_RATIO * costs["a batch" if name == "figures" else name][0]


def test_loading_grows_with_the_episodes(tmp_path: Path) -> None:
    seconds, ratio = [], 0.0
    for size in STEP_EPISODES:
        write_step(tmp_path / str(size), 0, size, 20)
        place = store_location(tmp_path / str(size), make=True)
        assert place is not None
        reading = sum(least(read_file, file) for file in event_files(place.events))
        database = Database(place)
        seconds.append(least(load, database, final=True, rounds=1))
        database.close()
        ratio = seconds[-1] / reading
    print(
        f"loading {seconds[-1] / STEP_EPISODES[-1] * 1e3:.2f} ms an episode, {ratio:.1f} of reading its events"
    )
    check_exponent("loading", STEP_EPISODES, seconds)
    assert ratio <= MAX_LOAD_RATIO


def test_an_evaluation_grows_with_its_tasks(tmp_path: Path) -> None:
    seconds, ratio = [], 0.0
    for tasks in TASKS:
        make_evaluation(tmp_path, str(tasks), tasks=tasks, attempts=1)
        evaluation = open_evaluation(str(tasks), tmp_path)
        evaluation = replace(
            evaluation,
            attempts=[replace(each, key=replace(each.key, began=0.0)) for each in evaluation.attempts],
        )
        figures = figures_of(evaluation, seconds=1.0)
        seconds.append(least(write_reports, evaluation, figures, rounds=1))
        again = least(figures_of, evaluation) + least(update_reports, evaluation, figures)
        ratio = again / least(open_evaluation, str(tasks), tmp_path)
    print(
        f"reports of {TASKS[-1]} tasks {seconds[-1]:.1f} s; up to date {again:.2f} s, {ratio:.2f} of reading"
    )
    check_exponent("reports", TASKS, seconds)
    assert ratio <= MAX_UPDATE_RATIO


def build_seconds(folder: Path, rows: int, *options: str, seed: int = 0) -> float:
    """Processor time of a build from JSON lines into ``folder``."""
    file = folder.with_suffix(".jsonl")
    write_jsonl(file, problems(rows, 0.1, seed))
    command = [sys.executable, "-c", BUILD, "dataset", "build", "jsonl", "--file", str(file), "-q"]
    done = subprocess.run(
        [*command, "--out", str(folder), *options], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def test_a_build_grows_with_its_rows(tmp_path: Path) -> None:
    check_exponent("a build", ROWS, [build_seconds(tmp_path / str(rows), rows) for rows in ROWS])


def test_a_comparison_with_evaluation_questions_grows_with_both(tmp_path: Path) -> None:
    for number in QUESTIONS:
        build_seconds(tmp_path / f"against{number}", number, seed=1)
    against = ["--against", str(tmp_path / f"against{QUESTIONS[0]}")]
    seconds = [build_seconds(tmp_path / str(rows), rows, *against) for rows in COMPARED]
    check_exponent("a build compared with 2,000 questions", COMPARED, seconds)
    seconds = [
        build_seconds(tmp_path / f"all{number}", COMPARED[0], "--against", str(tmp_path / f"against{number}"))
        for number in QUESTIONS
    ]
    check_exponent("a build of 5,000 rows compared with", QUESTIONS, seconds)


async def play(gateway: ModelGateway, count: int) -> None:
    """So many episodes at once, by clients in this process, with an engine that takes no time."""
    limits = EpisodeLimits(1000, 100_000, 1_000_000, SamplingParams(1.0, 1.0, -1))
    episodes = [TokenEpisode(StubEngine(delays(number, 0.0)), limits) for number in range(count)]
    sessions = [gateway.open_session("model", episode.conversation) for episode in episodes]
    addresses = [session.address() for session in sessions]
    await asyncio.gather(
        *(through_the_gateway(address, number, 0.0) for number, address in enumerate(addresses))
    )
    for session in sessions:
        session.close()


async def play_rounds(sizes: Sequence[int]) -> list[tuple[float, int]]:
    """Processor time of each round, and the MiB of this process after it."""
    gateway, measured = ModelGateway(), []
    await gateway.start()
    await play(gateway, 1)
    keep_pauses_short()  # as the processes do that play episodes
    for size in sizes:
        began = time.process_time()
        await play(gateway, size)
        seconds = time.process_time() - began
        while_nobody_waits()
        measured.append((seconds, psutil.Process().memory_info().rss >> 20))
    await gateway.stop()
    return measured


def in_rounds(sizes: Sequence[int]) -> list[tuple[float, int]]:
    return asyncio.run(play_rounds(sizes))


def played(sizes: Sequence[int]) -> list[tuple[float, int]]:
    """In a process of its own, whose memory and garbage are the gateway's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(in_rounds, (sizes,))


def test_the_gateway_grows_with_the_episodes_at_once() -> None:
    check_exponent("the gateway", GATEWAY_EPISODES, [seconds for seconds, _ in played(GATEWAY_EPISODES)])


@pytest.mark.timeout(1200)
def test_the_gateway_keeps_nothing_of_ended_rollouts() -> None:
    memory = [size for _, size in played([MEMORY_EPISODES] * MEMORY_ROUNDS)]
    print(f"the gateway after rounds of {MEMORY_EPISODES} episodes: {', '.join(map(str, memory))} MiB")
    assert memory[-1] <= MAX_MEMORY_RATIO * memory[1]
