"""`aworld-train dataset synthesize` with a scripted model over a real socket and the real calculator environment."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build, check_file
from tests.openai_stub import OpenAIStub
from tests.synthesis import CASES, PUBLISHED, SEEDS, SynthesisModel

CONCURRENCY = 2
RECIPE = f"""
name: pears
env: {{docker_dir: calculator-mcp-server, backend: process, workers: {CONCURRENCY}}}
eval: {{concurrency: {CONCURRENCY}}}
"""
TABLE = {
    "kept": 2,
    "not made: the model proposed no task": 1,
    "not made: the model called no tool": 1,
    "left out by the build: repeated, nearly another, or of --against": 2,
    "inconsistent: the solver's most frequent answer is another one": 1,
    "too hard: solved less often than --min-solved": 1,
    "too easy: solved more often than --max-solved": 1,
    "needs no tools: solved without them more often than --max-without-tools": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, seeds, and a published dataset."""
    made = tmp_path_factory.mktemp("synthesis")
    (made / "recipe.yaml").write_text(RECIPE)
    (made / "seeds.txt").write_text(SEEDS)
    (made / "published.jsonl").write_text(json.dumps({"query": PUBLISHED, "answer": "456"}) + "\n")
    build("jsonl", made / "published", files=[made / "published.jsonl"], splits={"test": 1.0})
    return made


def start(folder: Path, stub: OpenAIStub, name: str, *arguments: str) -> "subprocess.Popen[str]":
    command = (
        f"dataset synthesize recipe.yaml --seeds seeds.txt --out data/{name} --model-url {stub.url()} --model mock "
        f"--against published --name {name} --json"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "aworld_train", *command.split(), *arguments],
        cwd=folder,
        env=dict(os.environ),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: "subprocess.Popen[str]", code: int = 0) -> dict[str, Any]:
    output, errors = process.communicate(timeout=540)
    assert process.returncode == code, errors
    printed: dict[str, Any] = json.loads(output.splitlines()[-1] if code else output)
    return printed


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """The report of a synthesis that nothing interrupts, and the requests that it took."""
    model = SynthesisModel()
    with OpenAIStub(model) as stub:
        report = finish(start(folder, stub, "whole"))
        return {"report": report, "requests": len(stub.requests), "stages": model.requests}


def test_what_is_kept_and_what_is_dropped_and_why(folder: Path, whole: dict[str, Any]) -> None:
    report = whole["report"]
    assert report["tasks"] == TABLE
    assert report["proposals"] == len(CASES) == sum(TABLE.values())
    assert report["changes"] == {"proposed": 8, "verified": 1}
    assert sum(report["dataset"]["rows"].values()) == 2
    rows = [
        row
        for file in sorted((folder / "data" / "whole").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert all(check_file(file).rows for file in (folder / "data" / "whole").glob("*.parquet"))
    by_question = {row["extra_info"]["question"].split()[5]: row for row in rows}
    assert set(by_question) == {"kept", "fine"}
    assert by_question["kept"]["extra_info"]["level"] == "1"
    assert by_question["kept"]["reward_model"]["ground_truth"] == str(11 * 16)
    # What its change added was found again.
    assert by_question["fine"]["extra_info"]["level"] == "2"
    assert by_question["fine"]["extra_info"]["question"].endswith("Count the whole year.")


def test_each_stage_asks_what_it_needs(whole: dict[str, Any]) -> None:
    stages = whole["stages"]
    assert stages["explore"] == 2 * len(CASES) - 1  # one calls no tool
    assert stages["change"] == 2 * 8
    assert stages["verify"] == 7  # what was added to both twins is the same
    assert stages["solve"] == 2 * 4 * 6
    assert stages["without"] == 4 * 3
    assert sum(stages.values()) == whole["requests"]


def test_the_solvers_episodes_are_in_the_store(folder: Path, whole: dict[str, Any]) -> None:
    solver = Path(whole["report"]["solver_episodes"])
    command = ["runs", "episodes", str(solver), "--where", "reward=1", "--json"]
    listed = subprocess.run(
        [sys.executable, "-m", "aworld_train", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    episodes = json.loads(listed.stdout)["episodes"]
    assert len(episodes) == 2 + 3 + 4 + 2  # kept, fine, easy, known
    assert all(episode["tool_calls"] == 1 for episode in episodes)


def test_a_killed_synthesis_asks_nothing_again_that_was_answered(folder: Path, whole: dict[str, Any]) -> None:
    model = SynthesisModel()
    with OpenAIStub(model, delay=0.05) as stub:
        lost = 0
        for stage, count in (("explore", 7), ("solve", 15)):
            process = start(folder, stub, "killed", *(["--resume"] if lost else []))
            deadline = time.monotonic() + 400
            while model.requests[stage] < count:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            lost += CONCURRENCY
        report = finish(start(folder, stub, "killed", "--resume"))
        asked = Counter(json.dumps(request.body, sort_keys=True) for request in stub.requests)
    assert report["tasks"] == TABLE
    repeated = sum(asked.values()) - len(asked)
    assert repeated <= lost  # at most what was under way
    assert len(asked) == whole["requests"]


def test_other_settings_and_an_existing_name_are_refused(folder: Path, whole: dict[str, Any]) -> None:
    with OpenAIStub(SynthesisModel()) as stub:
        refused = finish(start(folder, stub, "whole"), code=2)
        assert "continue that synthesis with --resume" in refused["error"]["message"]
        refused = finish(start(folder, stub, "whole", "--resume", "--k", "3"), code=2)
        assert "other settings: k" in refused["error"]["message"]
        refused = finish(start(folder, stub, "new", "--min-solved", "0.9"), code=2)
        assert "--min-solved is 0.9 and --max-solved 0.75" in refused["error"]["message"]
        assert stub.requests == []


def test_other_bounds_are_applied_without_asking(folder: Path, whole: dict[str, Any]) -> None:
    with OpenAIStub(SynthesisModel()) as stub:
        report = finish(start(folder, stub, "whole", "--resume", "--max-solved", "0.5"))
        assert stub.requests == []
    assert report["tasks"]["kept"] == 1
    assert report["tasks"]["too easy: solved more often than --max-solved"] == 2
