"""The store of real runs: every trained token leads back to its call, whatever is killed; on both databases."""

import json
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from aworld_train.store.reading import Store
from aworld_train.store.trace import trace_token
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e import interrupted_run
from tests.e2e.conftest import (
    SMALL,
    Workspace,
    assert_all_gone,
    descendants,
    environments_of,
    find,
    wait_for,
)
from tests.postgres_server import PostgresServer
from tests.stored_runs import row_mask, row_tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

STEPS, TASKS, ATTEMPTS = 4, 4, 4
TRACED = 1000
ROUNDS = 20
EPISODE_WORKER, DRIVER = "ray::EpisodeWorker", "aworld_train.adapter.verl.main"


def store_of(workspace: Workspace, name: str) -> Store:
    return open_run_store(open_run(name, workspace.runs))


def start(workspace: Workspace, name: str, *overrides: str) -> Any:
    resume = ["--resume"] if (workspace.runs / name / "recipe.yaml").exists() else []
    return workspace.start("train", "recipes/quickstart.yaml", f"name={name}", *SMALL, *overrides, *resume)


def ended_episodes(workspace: Workspace, name: str) -> int:
    file = workspace.runs / name / "traces" / "episodes.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def kill(process: Any, words: str | None) -> None:
    """Kill the command or one of its processes, and wait until nothing of the run is left."""
    victim = psutil.Process(process.pid)
    if words is not None:
        # A run that goes on has lines of episodes before it has its processes.
        victim = wait_for(words, lambda: find(descendants(process.pid), words), 300, process)
    run = [psutil.Process(process.pid), *descendants(process.pid)]
    everything = [*run[1:], *environments_of(run)]
    victim.kill()
    process.communicate(timeout=300)
    assert_all_gone(everything)


def test_trained_tokens_lead_back_to_what_the_engine_gave_after_a_kill_too(workspace: Workspace) -> None:
    interrupted_run.interrupted_run(workspace)
    name, steps = interrupted_run.NAME, range(1, interrupted_run.STEPS + 1)
    given: dict[tuple[int, ...], list[tuple[list[int], list[float]]]] = defaultdict(list)
    for line in (workspace.runs / name / "engine.jsonl").read_text().splitlines():
        call = json.loads(line)
        given[tuple(call["prompt"])].append((call["tokens"], call["logprobs"]))

    # None, if it was killed just after a checkpoint.
    superseded = workspace.runs / name / "traces" / "superseded.jsonl"
    lines = superseded.read_text().splitlines() if superseded.exists() else []
    # One was cut off.
    set_aside = {json.loads(line)["episode"] for line in lines if line.endswith("}")}

    with store_of(workspace, name) as store:
        episodes = store.episodes("phase=train")
        assert {head.status for head in episodes} == {"ended"}
        played = Counter((head.step, head.task, head.attempt) for head in episodes)
        assert set(played.values()) == {1}
        assert Counter(head.step for head in episodes) == dict.fromkeys(steps, TASKS * ATTEMPTS)
        assert set_aside <= {head.id for head in store.episodes("status=superseded", superseded=True)}
        under_mask = [
            (step, position, token)
            for step in steps
            for position in range(TASKS * ATTEMPTS)
            for episode, number in [store.trained_row(step, position)]
            if episode.content is not None
            for token, mask in enumerate(row_mask(episode.content, number))
            if mask
        ]
        chosen = random.Random(0).choices(under_mask, k=TRACED)
        for step, position, token in chosen:
            origin = trace_token(store, step, position, token)
            assert origin.under_mask and origin.call is not None and origin.advantage is not None
            assert origin.episode.step == step
            content = store.episode(origin.episode.id).content
            assert content is not None
            (agent,) = [agent for agent in content.agents if agent.name == origin.agent]
            *context, sampled = (agent.nodes[node] for node in agent.path(origin.node))
            prompt = tuple(token for node in context for token in node.token_ids)
            assert (sampled.token_ids, sampled.token_logprobs) in given[prompt]
            assert sampled.token_ids[origin.place] == origin.token_id
            assert sampled.token_logprobs[origin.place] == origin.logprob


@pytest.mark.slow
def test_a_database_server_that_restarts_in_mid_run_loses_nothing(workspace: Workspace) -> None:
    server = PostgresServer()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STORE_URL", server.url)
            process = start(workspace, "postgres", "store.url=${oc.env:STORE_URL}")
            wait_for("episode", lambda: ended_episodes(workspace, "postgres") >= 20, 600, process)
            server.crash()
            time.sleep(5)
            server.start()
            _, err = process.communicate(timeout=1200)
            assert process.returncode == 0, err
            with store_of(workspace, "postgres") as store:
                stored = Counter((head.phase, head.status) for head in store.episodes())
        assert stored == {("train", "ended"): STEPS * TASKS * ATTEMPTS, ("val", "ended"): 2 * 16}
        assert server.url not in "".join(
            file.read_text(errors="replace")
            for file in (workspace.runs / "postgres").rglob("*")
            if file.is_file()
        )
    finally:
        server.close()


@pytest.mark.slow
def test_killed_drivers_and_workers_leave_nothing_half_and_nothing_running(workspace: Workspace) -> None:
    name, rng = "killed", random.Random(19)
    for number in range(ROUNDS):
        before = ended_episodes(workspace, name)
        process = start(workspace, name, "trainer.steps=1000", "trainer.val_every=1000")
        wait_for(
            "episode", lambda before=before: ended_episodes(workspace, name) not in (0, before), 300, process
        )
        time.sleep(rng.uniform(0, 3))
        kill(process, rng.choice((DRIVER, EPISODE_WORKER, None)))
        with store_of(workspace, name) as store:
            episodes = store.episodes(superseded=True)
            assert not [head.id for head in episodes if head.status == "running"], number
            lines = {line["episode"] for line in workspace.episodes(name) if not line.get("retried")}
            stored = {head.id for head in episodes if head.status in ("ended", "superseded")}
            # What ended in the last second before a kill may be in the lines alone.
            assert len(lines - stored) <= 2 * TASKS * ATTEMPTS
            for head in rng.sample(episodes, min(20, len(episodes))):
                content = store.episode(head.id).content
                if head.status == "ended":
                    assert content is not None and content.rows


def test_eval_and_rollout_keep_their_episodes(workspace: Workspace) -> None:
    done = workspace.run("eval", "recipes/quickstart.yaml", "--limit", "8", "--json")
    report = json.loads(done.stdout)
    with store_of(workspace, Path(report["run_dir"]).name) as store:
        assert store.count("phase=eval and status=ended") == 8
    for _ in range(2):
        done = workspace.run("rollout", "recipes/quickstart.yaml", "name=kept", "-n", "2", "--json")
        episodes = json.loads(done.stdout)["episodes"]
    with store_of(workspace, "rollout-kept") as store:
        assert store.count("phase=rollout and status=ended") == 4
        shown = episodes[0]
        content = store.episode(shown["episode"]).content
        assert content is not None
        row = shown["rows"][0]
        assert row_tokens(content, 0) == row["prompt_ids"] + row["response_ids"]
        assert row_mask(content, 0)[len(row["prompt_ids"]) :] == row["response_mask"]
