"""An episode weighs as much as the others in an update, and an update has the recipe's episodes, however many rows.

The first of two agents is rewarded for short answers, and learns to give them; the second has always the same reward.
"""

from collections import defaultdict
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import SMALL, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS, UPDATES, TASKS, ATTEMPTS = 4, 2, 8, 8
EPISODES = TASKS * ATTEMPTS
AGENTS = """
import aiohttp

def build(context):
    async def answer(task):
        async def ask(name, text):
            message = {"model": context.model, "messages": [{"role": "user", "content": text}]}
            async with aiohttp.ClientSession() as http:
                async with http.post(f"{context.llm_url(name)}/chat/completions", json=message) as response:
                    return (await response.json())["choices"][0]["message"]["content"] or ""

        question = task.messages[-1]["content"]
        first = await ask("first", question)
        for again in range(len(first) % 3):
            await ask("first", f"{again}: {question}")
        await ask("second", f"Is it right? {question}")
        return str(len(first))
    return answer
"""
REWARD = """
def score(data_source, solution_str, ground_truth, extra_info):
    length = float(extra_info["assistant_text"] or 0)
    return {"score": 0.5, "score/first": 1 - min(length, 60) / 60, "score/second": 0.25}
"""


@pytest.mark.parametrize(
    ("name", "ranks", "overrides"),
    [
        (
            *("two-ranks", 2),
            [
                "cluster.gpus_per_node=2",
                "trainer.dynamic_batches=true",
                "algorithm.rollout_correction=sequence",
            ],
        ),
        pytest.param("one-rank", 1, ["trainer.microbatch_size=4"], marks=pytest.mark.slow),
    ],
)
def test_a_step_has_the_updates_and_episodes_that_the_recipe_says_and_an_agent_learns_from_its_own_rewards(
    workspace: Workspace, tmp_path: Path, name: str, ranks: int, overrides: list[str]
) -> None:
    (tmp_path / "agents.py").write_text(dedent(AGENTS))
    (tmp_path / "reward.py").write_text(dedent(REWARD))
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", f"name={name}", *SMALL, *overrides),
        f"agent.builder={tmp_path / 'agents.py'}:build",
        f"reward.function={tmp_path / 'reward.py'}:score",
        *("env.docker_dir=null", "env.backend=none", "dataset.val_limit=4", "rollout.max_response_tokens=64"),
        *(f"trainer.steps={STEPS}", f"trainer.val_every={STEPS}", f"trainer.save_every={STEPS}"),
        *(
            f"trainer.batch_size={TASKS}",
            f"trainer.minibatch_size={TASKS // UPDATES}",
            f"rollout.n={ATTEMPTS}",
        ),
        "trainer.lr=3e-4",
        seconds=800,
    )
    assert done.returncode == 0, done.stderr
    rows = workspace.metrics(name)[1:]
    assert [row["updates"] for row in rows] == [UPDATES] * STEPS
    assert [row["trained_episodes"] for row in rows] == [EPISODES] * STEPS
    assert any(row["rows"] > 2 * EPISODES for row in rows), rows
    assert all((row["rows"] + row["padding_rows"]) % (ranks * UPDATES) == 0 for row in rows), rows
    assert all(row["rollout_probs_diff_max"] < 1e-4 for row in rows), rows
    assert all(0 <= row["clipped_updates"] <= UPDATES and 0 <= row["clip_fraction"] <= 1 for row in rows), (
        rows
    )
    # Each agent has a group in each task, and the second one's rewards are all equal.
    assert all((row["groups"], row["equal_groups"] >= TASKS) == (2 * TASKS, True) for row in rows), rows
    if "algorithm.rollout_correction=sequence" in overrides:
        assert all(
            row["verl"]["rollout_corr/rollout_is_mean"] == pytest.approx(1, abs=0.01) for row in rows
        ), rows
        assert [row["rejected_episodes"] for row in rows] == [0] * STEPS
    assert optimizer_steps(workspace.runs / name, ranks) == {STEPS * UPDATES}
    # The first agent learns from its rewards, which differ; nothing is learned from the second's.
    assert all(row["grad_norm"] > 0 for row in rows), rows
    parts = [row["reward_parts"] for row in rows]
    assert parts[-1]["score/first"] > parts[0]["score/first"] + 0.05, parts
    assert all(part["score/second"] == 0.25 for part in parts) and all(row["reward"] == 0.5 for row in rows)
    assert not workspace.summary(name)["alarms"]
    stored = stored_advantages(workspace, name)
    assert any(stored["first"].values()) and not any(map(any, stored["second"].values()))
    for row in rows:
        used, known = row["verl"], stored["first"][row["step"]] + stored["second"][row["step"]]
        assert max(known) == pytest.approx(used["critic/advantages/max"], abs=1e-5)
        assert min(known) == pytest.approx(used["critic/advantages/min"], abs=1e-5)
        assert sum(known) / len(known) == pytest.approx(used["critic/advantages/mean"], abs=1e-5)


def optimizer_steps(run: Path, ranks: int) -> set[float]:
    """How often AdamW has updated each weight."""
    folder = run / "checkpoints" / f"global_step_{STEPS}" / "actor"
    states = [
        torch.load(folder / f"optim_world_size_{ranks}_rank_{rank}.pt", weights_only=False)["state"]
        for rank in range(ranks)
    ]
    return {float(weight["step"]) for state in states for weight in state.values()}


def stored_advantages(workspace: Workspace, run: str) -> dict[str, dict[int, list[float]]]:
    """What the run's page says that updates used: of each trained token, by agent and step."""
    found: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in ("first", "second")}
    with open_run_store(open_run(run, workspace.runs)) as store:
        for head in store.episodes():
            episode = store.episode(head.id)
            assert episode.content is not None
            for row, use in zip(episode.content.rows, episode.rows, strict=True):
                if use.advantage is not None and use.trained_step is not None:
                    agent = episode.content.agents[row.agent].name
                    found[agent][use.trained_step] += [use.advantage] * (use.masked_in or 0)
    return found
