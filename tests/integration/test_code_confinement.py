"""`code_tests` where the kernel cannot confine an answer's code: every command refuses before it plays or scores.

The kernel without Landlock is real for the processes under test: a seccomp filter takes its system calls away
(`tests.without_landlock`), from a worker of the environment alone or from everything.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.dataset import build
from aworld_train.env import down
from aworld_train.episode.score import ScoreOutcome
from aworld_train.recipe.locate import shipped_folder
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings, ToolSettings
from tests import warm
from tests.models import shipped_tokenizer, tiny_qwen3_of

CLI = [sys.executable, "-m", "aworld_train"]
WITHOUT_LANDLOCK = [sys.executable, "-m", "tests.without_landlock"]
REPOSITORY = str(Path(__file__).parents[2])
QUICKSTART = str(shipped_folder() / "quickstart.yaml")
CODE = ["reward.scorer=code_tests", "env.servers=[python-server]"]
TOKENIZER = shipped_tokenizer()
TRUTH = json.dumps({"tests": "assert add(1, 2) == 3"})


def run(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": REPOSITORY, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def run_warm(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with this kernel; some commands load a model first."""
    environment = {**os.environ, "PYTHONPATH": REPOSITORY, **variables}
    arguments = ("-m", "aworld_train", *command)
    return warm.run(*arguments, cwd=folder, env=environment, timeout=240, kind=warm.VERL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the quickstart needs, with a model of random weights, and a prediction to score."""
    made = tmp_path_factory.mktemp("confinement")
    build("arithmetic", made / "data" / "arithmetic", limit=40)
    TOKENIZER.save_pretrained(made / "models" / "tiny")
    tiny_qwen3_of(TOKENIZER).save_pretrained(made / "models" / "tiny")
    line = {"id": 1, "prediction": "<answer>def add(a, b): return a + b</answer>", "answer": TRUTH}
    (made / "predictions.jsonl").write_text(json.dumps({**line, "scorer": "code_tests"}) + "\n")
    return made


@pytest.fixture(scope="module")
def unconfined(state: None, folder: Path) -> Iterator[dict[str, Any]]:
    """An environment whose workers have a kernel without Landlock."""
    options = ["--docker-dir", "gaia-mcp-server", "--name", "unconfined", "--backend", "process"]
    options += ["--servers", "python-server", "--workers", "1", "--scoring-workers", "1", "--json"]
    started = run(folder, *WITHOUT_LANDLOCK, *CLI, "env", "up", *options)
    assert started.returncode == 0, started.stderr
    yield json.loads(started.stdout)
    down("unconfined")


def assert_refused(ended: "subprocess.CompletedProcess[str]", place: str) -> None:
    """It ended with one paragraph that says what is wrong, where, and what to do."""
    assert ended.returncode == 1, ended.stderr
    message = " ".join(ended.stderr.split())
    assert "code_tests cannot be used" in message, message
    for part in (
        place,
        f"Linux {os.uname().release}",
        "lacks Landlock",
        "Function not implemented",
        "Linux 5.13",
    ):
        assert part in message, message
    assert message.count("code_tests cannot be used") == 1
    assert "Traceback" not in message


def test_a_training_run_ends_before_its_framework_starts(folder: Path, state: None) -> None:
    started = ["env.docker_dir=gaia-mcp-server", "env.workers=1", "trainer.steps=2"]
    ended = run(folder, *WITHOUT_LANDLOCK, *CLI, "train", QUICKSTART, "name=refused", *started, *CODE)
    assert_refused(ended, "with the tools at http://127.0.0.1")
    run_folder = folder / "runs" / "refused"
    summary = json.loads((run_folder / "summary.json").read_text())
    assert (summary["status"], summary["error"]["kind"], summary["episodes"]) == ("failed", "reward", 0)
    assert not (run_folder / "traces" / "episodes.jsonl").exists()
    assert not list((run_folder / "logs").glob("verl*"))


@pytest.mark.parametrize(
    "command",
    [
        ["eval", QUICKSTART, "--checkpoint", "models/tiny"],
        ["rollout", QUICKSTART],
        ["recipe", "check", QUICKSTART, "--no-files"],
    ],
    ids=["eval", "rollout", "recipe check"],
)
def test_what_uses_a_running_environment_asks_its_worker_for_scoring(
    folder: Path, unconfined: dict[str, Any], command: list[str]
) -> None:
    running = ["env.docker_dir=null", f"env.url={unconfined['mcp_url']}"]
    ended = run_warm(folder, *command, *running, *CODE, MCP_SERVER_TOKEN=unconfined["token"])
    assert_refused(ended, unconfined["mcp_url"])
    assert ended.stdout == ""


def test_no_line_of_a_file_is_scored(folder: Path, unconfined: dict[str, Any]) -> None:
    variables = {"MCP_SERVER_URL": unconfined["mcp_url"], "MCP_SERVER_TOKEN": unconfined["token"]}
    ended = run_warm(folder, "reward", "score", "predictions.jsonl", "--json", **variables)
    assert_refused(ended, unconfined["mcp_url"])
    (line,) = ended.stdout.splitlines()
    assert json.loads(line)["error"]["kind"] == "reward"


def test_recipe_check_knows_the_kernel_of_processes_that_a_run_would_start(folder: Path) -> None:
    check = ["recipe", "check", QUICKSTART, "--no-files", "env.docker_dir=gaia-mcp-server", *CODE]
    assert_refused(run(folder, *WITHOUT_LANDLOCK, *CLI, *check), "on this machine")
    confined = run_warm(folder, *check)
    assert confined.returncode == 0, confined.stderr


async def test_no_answer_is_run_where_it_is_not_confined(
    unconfined: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVER_TOKEN", unconfined["token"])
    settings = RewardSettings(tools=ToolSettings(unconfined["mcp_url"]), timeout=60.0)
    for answer in ("def add(a, b): return a + b", "def add(a, b): return 0"):
        text = f"<answer>{answer}</answer>"
        scored = await score(text, ground_truth=TRUTH, scorer="code_tests", settings=settings)
        assert (scored.score, scored.outcome) == (None, ScoreOutcome.abstained)
        assert scored.cause is not None and "lacks Landlock" in scored.cause
