"""A run that computes shared prefixes once forwards each beginning of a step's rows once, with the same probabilities.

Episodes have two agents and new contexts, so that rows branch within a task, an episode and an agent.
"""

from pathlib import Path
from textwrap import dedent

import pytest

from aworld_train.store.content import EpisodeContent
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import SMALL, Workspace
from tests.e2e.test_episode_weights import AGENTS, REWARD

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

STEPS, TASKS, ATTEMPTS = 2, 4, 8


def test_a_step_forwards_each_beginning_of_its_rows_once(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(dedent(AGENTS))
    (tmp_path / "reward.py").write_text(dedent(REWARD))
    done = workspace.run(
        *("train", "recipes/quickstart.yaml", "name=shared-prefix", *SMALL, "trainer.shared_prefix=true"),
        *("trainer.dynamic_batches=true", "trainer.max_batch_tokens=1000000", "algorithm.kl_coef=0.01"),
        f"agent.builder={tmp_path / 'agents.py'}:build",
        f"reward.function={tmp_path / 'reward.py'}:score",
        *("env.docker_dir=null", "env.backend=none", "trainer.val_every=0", "trainer.val_ends=false"),
        *(f"trainer.steps={STEPS}", "trainer.save_every=0", "rollout.max_response_tokens=64"),
        *(f"trainer.batch_size={TASKS}", f"rollout.n={ATTEMPTS}"),
    )
    assert done.returncode == 0, done.stderr
    steps = workspace.metrics("shared-prefix")
    assert [row["trained_episodes"] for row in steps] == [TASKS * ATTEMPTS] * STEPS
    assert all(row["rollout_probs_diff_max"] < 1e-4 and row["grad_norm"] > 0 for row in steps), steps
    assert steps[0]["kl"] == pytest.approx(0, abs=1e-6) and steps[1]["kl"] > 0, (
        "the reference is the first model"
    )
    rows = trained_rows(workspace, "shared-prefix")
    for row in steps:
        unique = {ids[:end] for ids in rows[row["step"]] for end in range(1, len(ids) + 1)}
        assert (row["forwarded_tokens"], row["padding_rows"]) == (len(unique), 0)
        assert row["saved_tokens"] == sum(map(len, rows[row["step"]])) - len(unique)
        assert row["saved_tokens"] > 0


def trained_rows(workspace: Workspace, name: str) -> dict[int, list[tuple[int, ...]]]:
    """The tokens of each row, by the step that trained it."""
    rows: dict[int, list[tuple[int, ...]]] = {step: [] for step in range(1, STEPS + 1)}
    with open_run_store(open_run(name, workspace.runs)) as store:
        for head in store.episodes("phase=train and trained_step>0"):
            episode = store.episode(head.id)
            assert episode.content is not None and head.trained_step is not None
            rows[head.trained_step] += tokens_of(episode.content)
    return rows


def tokens_of(content: EpisodeContent) -> list[tuple[int, ...]]:
    return [
        tuple(token for node in row.path for token in content.agents[row.agent].nodes[node].token_ids)
        for row in content.rows
    ]
