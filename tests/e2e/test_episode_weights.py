"""An episode weighs as much as the others in an update, and an update has the recipe's episodes, however many rows."""

from pathlib import Path
from textwrap import dedent

import pytest
import torch

from tests.e2e.conftest import SMALL, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS, UPDATES = 2, 2
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
    return {"score": 0.5, "score/first": length % 7, "score/second": 0.25}
"""


def test_a_step_has_the_updates_and_episodes_that_the_recipe_says_and_agents_their_own_rewards(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "agents.py").write_text(dedent(AGENTS))
    (tmp_path / "reward.py").write_text(dedent(REWARD))
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", "name=two-agents", *SMALL),
        f"agent.builder={tmp_path / 'agents.py'}:build",
        f"reward.function={tmp_path / 'reward.py'}:score",
        *("env.docker_dir=null", "env.backend=none", "dataset.val_limit=4", "rollout.max_response_tokens=64"),
        *(f"trainer.steps={STEPS}", f"trainer.val_every={STEPS}", f"trainer.save_every={STEPS}"),
        *("trainer.minibatch_size=2", "trainer.microbatch_size=4"),
        seconds=800,
    )
    assert done.returncode == 0, done.stderr
    rows = workspace.metrics("two-agents")[1:]
    assert [row["updates"] for row in rows] == [UPDATES] * STEPS
    assert [row["trained_episodes"] for row in rows] == [16] * STEPS
    assert any(row["rows"] > 2 * row["trained_episodes"] for row in rows), rows
    assert all((row["rows"] + row["padding_rows"]) % (4 * UPDATES) == 0 for row in rows), rows
    # The first agent's rewards differ, and nothing is learned from the second's.
    assert all(row["grad_norm"] > 0 for row in rows), rows
    folder = workspace.runs / "two-agents" / "checkpoints" / f"global_step_{STEPS}" / "actor"
    optimizer = torch.load(folder / "optim_world_size_1_rank_0.pt", weights_only=False)
    assert {float(state["step"]) for state in optimizer["state"].values()} == {float(STEPS * UPDATES)}
    advantages = _advantages(workspace, "two-agents")
    assert any(advantages["first"]) and not any(advantages["second"]), advantages


def _advantages(workspace: Workspace, run: str) -> dict[str, list[float]]:
    """What the trainer used, by agent."""
    import sqlite3

    store = workspace.runs / run / "traces" / "store.sqlite"
    with sqlite3.connect(store) as database:
        found = database.execute("SELECT agent, advantage FROM rows WHERE advantage IS NOT NULL").fetchall()
    by_agent: dict[str, list[float]] = {"first": [], "second": []}
    for agent, advantage in found:
        by_agent[agent].append(advantage)
    return by_agent
