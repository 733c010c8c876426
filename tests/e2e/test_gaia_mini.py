"""The way to a GAIA agent in miniature by its script: short here, and whole where slow tests run."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from files_solver import READERS

from tests import warm
from tests.environments import need_docker
from tests.locations import REPOSITORY

pytestmark = pytest.mark.e2e

KINDS = ("csv", "docx", "epub", "html", "pdf", "pptx")
RUNGS = ("base", "sft", "rl", "distill")


def climb(folder: Path, *arguments: str, **variables: str) -> str:
    """What the script says; its data, models and runs are in the folder."""
    command = ["scripts/gaia-mini.sh", "--out", str(folder), *arguments]
    environment = {**os.environ, "NO_COLOR": "1", **variables}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout + done.stderr


def forked() -> dict[str, str]:
    """A function for bash in place of aworld-train, which runs in a fork of an interpreter that has its imports."""
    programs, verl = warm.stand_in(warm.PROGRAMS), warm.stand_in(warm.VERL)
    choice = f"local python={programs}; [[ $1 != eval ]] || python={verl}"
    return {"BASH_FUNC_aworld-train%%": f'() {{ {choice}; "$python" -m aworld_train "$@"; }}'}


def summary_of(folder: Path, name: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "runs" / name / "summary.json").read_text())
    return summary


def called_tools(transcripts: Path) -> Counter[tuple[str, str]]:
    """How often a document of a kind was opened with a tool."""
    conversations = [json.loads(line)["messages"] for line in transcripts.read_text().splitlines()]
    calls = [
        call["function"] for one in conversations for message in one for call in message.get("tool_calls", ())
    ]
    return Counter((call["arguments"]["file_path"].rpartition(".")[2], call["name"]) for call in calls)


@pytest.mark.timeout(2400)
def test_every_rung_is_climbed_and_none_twice(tmp_path: Path) -> None:
    sizes = ("batch_size=4", "microbatch_size=8", "steps=2", "val_every=0")
    # One worker, whose servers start once for each of eight environments.
    one = ("env.workers=1", "rollout.n=2")
    short = ("--backend", "process", "--limit", "46", *one, *(f"trainer.{size}" for size in sizes))
    output = climb(tmp_path, *short, **forked())
    assert all(f"eval-{rung}" in output for rung in RUNGS)
    calls = called_tools(tmp_path / "transcripts.jsonl")
    assert {tool for _, tool in calls} == {READERS[kind] for kind in KINDS}
    assert sum(calls.values()) == 39
    for rung in ("sft", "rl", "distill"):
        summary = summary_of(tmp_path, f"files-cpu-{rung}")
        assert (summary["status"], summary["steps_done"]) == ("completed", 2)
    assert {summary_of(tmp_path, f"eval-{rung}")["n"] for rung in RUNGS} == {7}
    assert "Training" not in climb(tmp_path, *short, **forked())


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rewards_teach_which_tool_reads_which_document(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """At least 20 points more than before, through the tools that can read the documents."""
    need_docker()
    folder = tmp_path_factory.getbasetemp() / "gaia-mini"  # data and transcripts are those of the first seed
    climb(folder, "--seed", str(seed))
    suffix = f"-seed{seed}" if seed else ""
    accuracy = {rung: summary_of(folder, f"eval-{rung}{suffix}")["accuracy"] for rung in RUNGS}
    assert accuracy["rl"] >= accuracy["sft"] + 0.2, accuracy
    right = folder / f"right-{seed}.jsonl"
    options = (
        "--format",
        "messages",
        "--where",
        "reward>=1",
        "--runs",
        f"{folder}/runs",
        "--out",
        f"{right}",
    )
    done = warm.run("-m", "aworld_train", "runs", "export", f"eval-rl{suffix}", *options, timeout=300)
    assert done.returncode == 0, done.stderr
    through = sum(count for (kind, tool), count in called_tools(right).items() if READERS[kind] == tool)
    assert through >= 0.9 * len(right.read_text().splitlines()) > 0
