"""A framework that another package brings is trained with, measured, resumed and looked at like the one that ships."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests import warm
from tests.calculator_model import SKILL
from tests.locations import REPOSITORY
from tests.tool_servers import JSON_CALCULATOR, TOKEN, ServerProcess

WITHIN = 240
STEPS = 3
TASKS = {"train": range(2, 6), "val": range(10, 14)}


@pytest.fixture(scope="module")
def calculator() -> Iterator[ServerProcess]:
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A model without skill, tasks, a recipe, and the installed package that brings the framework."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (model / name).write_text("{}")
    (model / "chat_template.jinja").write_text("{}")
    (model / SKILL).write_text("0")
    for split, numbers in TASKS.items():
        pq.write_table(
            pa.Table.from_pylist([row(number) for number in numbers]), tmp_path / f"{split}.parquet"
        )
    package = tmp_path / "site" / "counting-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[aworld_train.frameworks]\ncounting = tests.second_framework:Counting\n"
    )
    recipe = {
        "name": "r",
        "model": {"path": str(model)},
        "dataset": {split: str(tmp_path / f"{split}.parquet") for split in TASKS},
        "trainer": {"framework": "counting", "steps": 2, "batch_size": 2, "microbatch_size": 2},
        "rollout": {"n": 2},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def row(number: int) -> dict[str, Any]:
    return {
        "data_source": "products",
        "prompt": [{"role": "user", "content": f"What is {number}*7?"}],
        "reward_model": {"style": "rule", "ground_truth": str(number * 7)},
        "extra_info": {"index": number, "scorer": "number", "answer_schema": "answer"},
        "agent_name": "mcp_agent",
    }


@pytest.fixture
def run(workplace: Path, calculator: ServerProcess) -> Any:
    """The command line, in a process that finds the package."""

    def run(command: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        done = warm.run(
            *("-m", "aworld_train", command, "recipe.yaml", *arguments, "--json"),
            cwd=workplace,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(workplace / "site"), str(REPOSITORY))),
                "MCP_SERVER_URL": calculator.url,
                "MCP_SERVER_TOKEN": TOKEN,
            },
            timeout=WITHIN,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def test_it_trains_a_model_and_leaves_a_run_folder_like_any_other(run: Any, workplace: Path) -> None:
    code, summary, errors = run("train")
    assert (code, summary["status"], summary["steps_done"]) == (0, "completed", 2), errors
    assert (summary["val"]["before"]["accuracy"], summary["val"]["after"]["accuracy"]) == (0.0, 1.0)
    assert (summary["episodes"], summary["trained_episodes"], summary["correct_with_tool"]) == (8, 8, 1.0)
    assert Path(summary["checkpoint"]) == workplace / "runs/r/checkpoints/2/model"
    folder = workplace / "runs" / "r"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row.get("reward")) for row in rows] == [(0, None), (1, 0.0), (2, 1.0)]
    assert rows[2]["counting"] == {"reward": 1.0, "loss": 0.5} and rows[2]["val_accuracy"] == 1.0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "pyyaml" in manifest["packages"] and "verl" not in manifest["packages"]
    assert {"recipe.yaml", "counting.yaml", "episodes.yaml", "reward.yaml", "learning_curve.png"} <= {
        path.name for path in folder.iterdir()
    }
    assert (folder / "logs" / "counting.log").is_file()


def test_a_killed_run_goes_on_by_itself_and_has_each_step_once(run: Any, workplace: Path) -> None:
    code, summary, errors = run("train", "trainer.steps=3", "counting.kill_at=3", "trainer.max_restarts=1")
    assert (code, summary["status"], summary["steps_done"]) == (0, "completed", 3), errors
    (restart,) = summary["restarts"]
    assert restart["from_step"] == 2 and "was killed (SIGKILL" in restart["error"]
    folder = workplace / "runs" / "r"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row.get("reward")) for row in rows] == [(0, None), (1, 0.0), (2, 1.0), (3, 1.0)]
    assert (summary["episodes"], summary["val"]["before"]["accuracy"]) == (12, 0.0)
    attempts = json.loads((folder / "manifest.json").read_text())["attempts"]
    assert [attempt["from_step"] for attempt in attempts] == [0, 2]


def boundaries(save_every: int) -> list[str]:
    """The moments between which a run's state on disk differs."""
    each = [
        f"{moment} {step}"
        for step in range(1, STEPS + 1)
        for moment in ("played", "half saved", "saved", "reported")
        if moment in ("played", "reported") or step % save_every == 0 or step == STEPS
    ]
    return ["began", "validated", *each, "done"]


@pytest.mark.parametrize(
    ("save_every", "boundary"),
    [
        pytest.param(
            save_every,
            boundary,
            marks=[] if save_every == 2 and not boundary.endswith(("1", "3")) else pytest.mark.slow,
        )
        for save_every in (1, 2, 3)
        for boundary in boundaries(save_every)
    ],
)
def test_a_run_that_was_killed_at_any_boundary_trains_exactly_what_is_left(
    run: Any, workplace: Path, save_every: int, boundary: str
) -> None:
    arguments = [
        f"trainer.steps={STEPS}",
        f"counting.save_every={save_every}",
        f"counting.kill_once={boundary}",
    ]
    code, answer, errors = run("train", *arguments)
    assert (code, answer["error"]["kind"]) == (1, "training"), errors
    folder = workplace / "runs" / "r"
    saved = [int(path.parent.name) for path in folder.glob("checkpoints/*/whole")]
    # Once is enough for what every completed run has in common.
    attempts = ("goes on", "has nothing left to do") if boundary == "played 2" else ("goes on",)
    for attempt in attempts:
        code, summary, errors = run("train", *arguments, "--resume")
        assert (code, summary["status"], summary["steps_done"]) == (0, "completed", STEPS), (attempt, errors)
        assert summary["episodes"] == STEPS * 4
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(STEPS + 1))
        played = [json.loads(line) for line in (folder / "traces/episodes.jsonl").read_text().splitlines()]
        trained = Counter(line["step"] for line in played if not line["validate"])
        assert trained == dict.fromkeys(range(1, STEPS + 1), 4)
        assert summary["val"]["before"]["accuracy"] == 0.0 and summary["val"]["after"]["accuracy"] == 1.0
    began = [start["from_step"] for start in json.loads((folder / "manifest.json").read_text())["attempts"]]
    assert began == [0, max(saved, default=0), STEPS][: 1 + len(attempts)]


def test_a_run_is_not_resumed_as_another_one(run: Any, workplace: Path) -> None:
    run("train", "counting.kill_once=reported 1")
    for change, named in (("trainer.seed=5", "trainer.seed"), ("trainer.lr=0.5", "trainer.lr")):
        code, answer, _ = run("train", "counting.kill_once=reported 1", change, "--resume")
        assert code == 2 and named in answer["error"]["message"]
    code, summary, errors = run(
        "train",
        "counting.kill_once=reported 1",
        "trainer.max_restarts=2",
        "trainer.stall_timeout=900",
        "--resume",
    )
    assert (code, summary["status"]) == (0, "completed"), errors


def test_a_run_goes_on_only_as_often_as_its_recipe_says(run: Any, workplace: Path) -> None:
    code, answer, errors = run("train", "counting.kill_at=1", "trainer.max_restarts=1")
    assert (code, answer["error"]["kind"]) == (1, "training")
    assert "was killed (SIGKILL" in answer["error"]["message"], errors
    summary = json.loads((workplace / "runs/r/summary.json").read_text())
    assert (summary["status"], len(summary["restarts"])) == ("failed", 1)


def test_an_error_of_the_code_ends_a_run_at_once(run: Any, workplace: Path) -> None:
    code, answer, errors = run("train", "counting.fail_at=2", "trainer.max_restarts=3")
    assert (code, answer["error"]["kind"]) == (1, "training")
    assert "ArithmeticError" in answer["error"]["message"], errors
    assert json.loads((workplace / "runs/r/summary.json").read_text())["restarts"] == []


def test_a_fault_of_the_framework_is_named_and_the_run_goes_on_from_its_checkpoint(
    run: Any, workplace: Path
) -> None:
    code, answer, _ = run("train", "counting.fail_at=2")
    assert (code, answer["error"]["kind"]) == (1, "training")
    assert "counting ended with exit code 1: ArithmeticError: a fault" in answer["error"]["message"]
    assert "got to step 1 of 2; continue from step 1 with --resume" in answer["error"]["message"]
    code, summary, errors = run("train", "counting.fail_at=2", "--resume")
    assert (code, summary["status"], summary["steps_done"], summary["episodes"]) == (0, "completed", 2, 8), (
        errors
    )
    attempts = json.loads((workplace / "runs/r/manifest.json").read_text())["attempts"]
    assert [attempt["from_step"] for attempt in attempts] == [0, 1]


def test_its_checkpoints_are_measured(run: Any) -> None:
    assert run("eval")[1]["accuracy"] == 0.0
    run("train")
    code, report, errors = run("eval", "--checkpoint", "runs/r/checkpoints/1", "--limit", "3")
    assert (code, report["accuracy"], report["n"], report["tool_calls"]) == (0, 1.0, 3, 3), errors


def test_a_single_episode_of_it_can_be_looked_at(run: Any, workplace: Path) -> None:
    (workplace / "model" / SKILL).write_text("1")
    code, answer, errors = run("rollout", "--task", "12")
    assert code == 0, errors
    (episode,) = answer["episodes"]
    assert episode["answer"].endswith("<answer>84</answer>")
    assert (episode["reward"], episode["tool_calls"]) == (1.0, 1)
    assert sum(episode["rows"][0]["response_mask"]) > 0


def test_keys_that_it_owns_are_refused_before_anything_starts(run: Any, workplace: Path) -> None:
    code, answer, _ = run("train", "counting.steps=9")
    assert (code, answer["error"]["kind"]) == (2, "recipe")
    assert (
        "counting.steps cannot be set: trainer.steps says how many there are." in answer["error"]["message"]
    )
    assert not (workplace / "runs").exists()


def test_a_framework_that_nobody_brings_is_named_with_the_nearest(run: Any) -> None:
    code, answer, _ = run("train", "trainer.framework=countin")
    assert code == 2
    assert (
        "Unknown training framework 'countin' (trainer.framework). Did you mean 'counting'?"
        in answer["error"]["message"]
    )
