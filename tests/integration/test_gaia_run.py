"""From a GAIA snapshot to scores: `dataset build`, `rollout` and `eval` with the tools of gaia-mcp-server.

The snapshot has GAIA's layout and questions of our own. Answers are in the attachments alone, so that a right score
shows that a file went from the snapshot through the dataset to a tool.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from aworld_train.env.directory import find_directory
from aworld_train.env.interpreter import find_interpreter
from tests import gaia_tasks, warm
from tests.gaia_tasks import TASKS, GaiaTask
from tests.locations import REPOSITORY
from tests.models import shipped_tokenizer, tiny_qwen3_of
from tests.vllm_stub import VllmStub

pytestmark = pytest.mark.timeout(2400)  # the first that needs the tools' interpreter installs it
TOKENIZER = shipped_tokenizer()
SERVERS = (
    "python-server",
    "terminal-server",
    "documents-docx-server",
    "documents-pptx-server",
    "documents-txt-server",
    "documents-zip-server",
)
_SECONDS = 240
_TOKENS = 65_536  # the tiny tokenizer spells prompts and tools in bytes
_RESPONSE_TOKENS = 8192


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot, the dataset that is made of it, a model of random weights, and a recipe."""
    made = tmp_path_factory.mktemp("gaia")
    write_snapshot(made / "snapshot" / "2023" / "validation")
    at = f"--attachments-at={made}/data/gaia/attachments"  # where processes find them, unlike containers
    split = ("--split", "val=1")
    report = cli(made, "dataset", "build", "gaia", "--file", "snapshot", "--out", "data/gaia", at, *split)
    assert report["rows"]["val"] == len(TASKS), report
    TOKENIZER.save_pretrained(made / "model")
    model = tiny_qwen3_of(TOKENIZER)
    model.config.max_position_embeddings = _TOKENS + _RESPONSE_TOKENS
    model.save_pretrained(made / "model")
    recipe = {
        "name": "gaia-run",
        "extends": "base/cpu.yaml",
        "model": {"path": "model"},
        "env": {
            "docker_dir": "gaia-mcp-server",
            "backend": "process",
            "workers": 2,
            "servers": list(SERVERS),
            "data": "data/gaia/attachments",
        },
        "dataset": {"val": "data/gaia/val.parquet", "max_prompt_tokens": _TOKENS},
        "rollout": {"max_response_tokens": _RESPONSE_TOKENS},
    }
    (made / "gaia.yaml").write_text(yaml.safe_dump(recipe))
    return made


def write_snapshot(part: Path) -> None:
    """The layout of GAIA since October 2025: questions in Parquet files, attachments beside them."""
    part.mkdir(parents=True)
    python = find_interpreter(find_directory("gaia-mcp-server"), print)
    program = Path(__file__).with_name("gaia_attachments.py")
    subprocess.run([python, str(program)], cwd=part, check=True, timeout=60)
    rows = [
        {
            "task_id": f"{number:08d}-0000-4000-8000-000000000000",
            "Question": task.question,
            "Level": str(task.level),
            "Final answer": task.answer,
            "file_name": task.file,
            "file_path": f"2023/validation/{task.file}" if task.file else "",
            "Annotator Metadata": {"Steps": "Looked into the file.", "Number of steps": "1"},
        }
        for number, task in enumerate(TASKS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), part / "metadata.parquet")


def cli(folder: Path, *arguments: str) -> dict[str, Any]:
    """What a command reports."""
    done = warm.run(
        *("-m", "aworld_train", *arguments, "--json"),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class ServedModel:
    """A model that makes a task's calls in the model's own notation, one a turn, and answers from the last result."""

    def __init__(self, task: GaiaTask):
        self.task = task

    def __call__(self, prompt: list[int]) -> list[int]:
        text = TOKENIZER.decode(prompt)
        results = re.findall(r"(?s)<tool_response>\n(.*?)\n</tool_response>", text)
        calls = gaia_tasks.filled(self.task, text)
        if len(results) == len(calls):
            return self.turn(gaia_tasks.answer(self.task, results[-1]))
        tool, arguments = calls[len(results)]
        call = json.dumps({"name": tool, "arguments": arguments})
        return self.turn(f"<tool_call>\n{call}\n</tool_call>")

    @staticmethod
    def turn(text: str) -> list[int]:
        return list(TOKENIZER.encode(f"{text}<|im_end|>"))


def test_an_episode_is_scored_by_what_tools_found_in_the_attachment(folder: Path) -> None:
    (task,) = (task for task in TASKS if task.level == 3)
    (index,) = (
        row["extra_info"]["index"]
        for row in pq.read_table(folder / "data/gaia/val.parquet").to_pylist()
        if task.question in row["prompt"][-1]["content"]
    )
    with VllmStub(ServedModel(task)) as server:
        report = cli(folder, "rollout", "gaia.yaml", f"--task={index}", f"--model-url={server.url}")
    (episode,) = report["episodes"]
    assert (episode["tool_calls"], episode["tool_errors"]) == (len(task.calls), 0)
    assert (episode["outcome"], episode["scorer"], episode["reward"]) == ("answered", "gaia", task.reward)
    assert sum(episode["rows"][0]["response_mask"]) == episode["sampled_tokens"] > 0


def test_all_tasks_are_measured_with_an_agent_of_the_users_own(folder: Path) -> None:
    report = cli(
        folder,
        *(
            "eval",
            "gaia.yaml",
            f"agent.builder={gaia_tasks.__file__}:agent",
            "rollout.max_response_tokens=16",
        ),
    )
    assert (report["n"], report["errors"], report["unscored"]) == (len(TASKS), 0, {})
    assert (report["tool_calls"], report["tool_errors"]) == (sum(len(task.calls) for task in TASKS), 0)
    assert report["accuracy"] == pytest.approx(sum(task.reward for task in TASKS) / len(TASKS))
    assert report["correct_with_tool"] == 1.0
