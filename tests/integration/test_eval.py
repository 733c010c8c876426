"""`aworld-train eval` against an endpoint over a real socket: its figures, its folder, its ends and its resumption."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aworld_train.dataset import build
from aworld_train.recipe.locate import shipped_folder
from tests import warm
from tests.faulty_endpoint import FAULTS, FaultyEndpoint

TASKS = 40
RECIPE = """
name: sums
env: {backend: none}
dataset: {val: data/test.parquet}
trainer: {batch_size: 5, microbatch_size: 3}
eval: {attempts: 3, temperature: 1.0, concurrency: 8, prices: {mock: {input: 1.0, output: 10.0}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe and its tasks; what only training uses in it does not fit together."""
    made = tmp_path_factory.mktemp("eval")
    rows = [
        {"id": f"t{i}", "query": f"What is {i} plus {i + 3}?", "answer": str(2 * i + 3), "scorer": "number"}
        for i in range(TASKS)
    ]
    (made / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build("jsonl", made / "data", files=[made / "tasks.jsonl"], splits={"test": 1.0})
    (made / "recipe.yaml").write_text(RECIPE)
    return made


def start(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "aworld_train", "eval", "recipe.yaml", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def evaluate(
    folder: Path, *arguments: str, code: int = 0, notes: str = "", **environment: str
) -> dict[str, Any]:
    """The object that the command prints, an error included; stderr has ``notes``."""
    command = ("-m", "aworld_train", "eval", "recipe.yaml", *arguments, "--json")
    done = warm.run(*command, cwd=folder, env={**os.environ, **environment}, timeout=300)
    assert done.returncode == code and notes in done.stderr, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1] if code else done.stdout)
    return printed


def at(endpoint: FaultyEndpoint, name: str) -> list[str]:
    return ["--model-url", endpoint.url, "--name", name]


def attempts(folder: Path, name: str) -> list[tuple[str, str, str | None]]:
    """Key, status and scored answer of every attempt that counts, in order of keys."""
    with sqlite3.connect(folder / "runs" / f"eval-{name}" / "store" / "episodes.db") as database:
        rows = database.execute(
            "SELECT key, status, json_extract(figures, '$.extracted') FROM episodes WHERE status != 'superseded'"
        )
        return sorted(rows)


def summary(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "runs" / f"eval-{name}" / "summary.json").read_text())
    return content


@pytest.fixture(scope="module")
def faultless(folder: Path) -> dict[str, Any]:
    """What an endpoint without faults comes to."""
    with FaultyEndpoint() as endpoint:
        figures = evaluate(folder, *at(endpoint, "faultless"))
        return figures | {"requests": endpoint.requests, "bodies": endpoint.bodies}


def test_every_attempt_is_made_once_and_counted(folder: Path, faultless: dict[str, Any]) -> None:
    assert faultless["attempts"] == faultless["attempts_expected"] == TASKS * 3 == faultless["requests"]
    assert (faultless["n"], faultless["errors"]) == (TASKS, 0)
    low, high = faultless["interval"]
    assert low < faultless["accuracy"] < high
    assert 0.5 < faultless["accuracy"] < 0.9
    assert faultless["pass_all"]["3"] < faultless["accuracy"] < faultless["pass_at"]["3"]
    assert faultless["tokens"]["sampled"]["total"] == 12 * TASKS * 3
    assert faultless["cost"]["total"] == pytest.approx((30 * 1.0 + 12 * 10.0) * TASKS * 3 / 1e6)
    assert len(attempts(folder, "faultless")) == TASKS * 3


def test_an_endpoint_is_measured_without_torch_verl_and_ray(folder: Path) -> None:
    script = (
        "import sys\n"
        "from aworld_train.cli.main import main\n"
        "sys.argv = ['aworld-train', 'eval', 'recipe.yaml', *sys.argv[1:]]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "print(sorted({'ray', 'torch', 'transformers', 'verl', 'vllm'} & set(sys.modules)))\n"
    )
    with FaultyEndpoint() as endpoint:
        command = [sys.executable, "-c", script, *at(endpoint, "light"), "--limit", "2"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_sampling_and_seeds_reach_the_endpoint_and_are_recorded(
    folder: Path, faultless: dict[str, Any]
) -> None:
    bodies = faultless["bodies"]
    assert {body["temperature"] for body in bodies} == {1.0}
    assert {body["model"] for body in bodies} == {"mock"}
    assert len({body["seed"] for body in bodies}) == len(bodies)
    with sqlite3.connect(folder / "runs" / "eval-faultless" / "store" / "episodes.db") as database:
        recorded = {
            row[0] for row in database.execute("SELECT json_extract(figures, '$.seed') FROM episodes")
        }
    assert {body["seed"] for body in bodies} <= recorded


def test_an_endpoint_that_fails_in_every_way_comes_to_the_same_numbers(
    folder: Path, faultless: dict[str, Any]
) -> None:
    with FaultyEndpoint(fault_share=0.35) as endpoint:
        figures = evaluate(folder, *at(endpoint, "faults"), "eval.request_timeout=1")
        assert set(endpoint.failed) == set(FAULTS)
        assert sum(figures["faults"].values()) == sum(endpoint.failed.values())
    for name in ("accuracy", "interval", "pass_at", "pass_all", "majority", "errors", "outcomes", "tokens"):
        assert figures[name] == faultless[name], name
    assert attempts(folder, "faults") == attempts(folder, "faultless")
    assert set(figures["faults"]) == {
        "429",
        "5xx",
        "timeout",
        "cut",
        "no_json",
        "no_completion",
        "connection",
    }


def test_fewer_requests_are_sent_where_too_many_are_refused(folder: Path, faultless: dict[str, Any]) -> None:
    with FaultyEndpoint(max_at_once=3, seconds=lambda rng: 0.02) as endpoint:
        figures = evaluate(folder, *at(endpoint, "limited"), "--concurrency", "32")
        assert endpoint.failed["429"] < TASKS * 3
    assert figures["accuracy"] == faultless["accuracy"]
    assert figures["errors"] == 0


@pytest.mark.parametrize("rounds", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_an_evaluation_killed_at_any_moment_loses_and_repeats_nothing(
    folder: Path, faultless: dict[str, Any], rounds: int
) -> None:
    name, rng = f"killed-{rounds}", random.Random(rounds)
    with FaultyEndpoint(seconds=lambda rng: 0.3 * rng.random()) as endpoint:
        for number in range(rounds):
            process = start(folder, *at(endpoint, name), "--quiet", *(["--resume"] if number else []))
            store = folder / "runs" / f"eval-{name}" / "store"
            deadline = time.monotonic() + 60
            while not list(store.glob("events/*")) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 1.0))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        figures = evaluate(folder, *at(endpoint, name), "--resume")
    assert attempts(folder, name) == attempts(folder, "faultless")
    assert figures["accuracy"] == faultless["accuracy"]
    assert summary(folder, name)["status"] == "completed"


def test_an_interrupt_ends_it_at_once_and_resume_makes_what_is_missing(folder: Path) -> None:
    with FaultyEndpoint(seconds=lambda rng: 0.2) as endpoint:
        process = start(folder, *at(endpoint, "interrupted"), "--quiet")
        deadline = time.monotonic() + 60
        while endpoint.requests < 20:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "interrupted" in err
        before = summary(folder, "interrupted")
        assert before["status"] == "interrupted"
        done = before["attempts"]
        assert 0 < done < TASKS * 3
        made = endpoint.requests
        figures = evaluate(folder, *at(endpoint, "interrupted"), "--resume")
        assert endpoint.requests - made == TASKS * 3 - done
    assert figures["attempts"] == TASKS * 3


def test_a_wrong_key_ends_it_with_one_sentence_and_no_score(folder: Path) -> None:
    with FaultyEndpoint(key="right") as endpoint:
        printed = evaluate(folder, *at(endpoint, "key"), code=1, OPENAI_API_KEY="wrong-key")
        assert endpoint.requests == 0
    assert printed["error"]["kind"] == "model"
    assert "Put its key into OPENAI_API_KEY" in printed["error"]["message"]
    assert "wrong-key" not in printed["error"]["message"]
    assert summary(folder, "key")["accuracy"] is None


def test_a_spent_quota_and_judges_that_refuse_end_it_at_once(folder: Path) -> None:
    with FaultyEndpoint(fault_share=1.0, faults=["quota"]) as spent, FaultyEndpoint() as endpoint:
        printed = evaluate(folder, *at(spent, "quota"), "eval.concurrency=1", code=1)
        assert "refuses requests: HTTP 429 'You exceeded your current quota.'" in printed["error"]["message"]
        judge = [f"endpoints.judge.url={spent.url}", "endpoints.judge.model=m", "reward.judge.models=[judge]"]
        arguments = [*judge, "reward.scorer=llm_judge", "eval.concurrency=1"]
        printed = evaluate(folder, *at(endpoint, "judge-quota"), *arguments, code=1)
        assert "The judges refuse all requests: " in printed["error"]["message"]
        assert (spent.requests, endpoint.requests) <= (4, 4)


def test_a_key_is_in_no_file(folder: Path) -> None:
    with FaultyEndpoint(key="sEcReT-1234567") as endpoint:
        process = start(
            folder,
            *at(endpoint, "secret"),
            "--limit",
            "2",
            "--key-variable",
            "MY_KEY",
            MY_KEY="sEcReT-1234567",
        )
        process.communicate(timeout=120)
        assert process.returncode == 0
    files = [file for file in (folder / "runs" / "eval-secret").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"sEcReT-1234567" in file.read_bytes()]


def test_errors_are_no_wrong_answers_fail_the_command_and_are_made_again(folder: Path) -> None:
    arguments = ["--limit", "10", "agent.episode_timeout=0.4"]
    with FaultyEndpoint(fault_share=0.3, faults=["500"]) as endpoint:
        printed = evaluate(folder, *at(endpoint, "errors"), *arguments, code=1)
    assert printed["error"]["kind"] == "evaluation"
    before = summary(folder, "errors")
    assert 0 < before["errors"] < 30
    assert before["attempts"] == 30
    with FaultyEndpoint() as endpoint:
        unchanged = evaluate(folder, *at(endpoint, "errors"), *arguments, "--resume", code=1)
        assert endpoint.requests == 0
        assert unchanged["error"]["kind"] == "evaluation"
        figures = evaluate(folder, *at(endpoint, "errors"), *arguments, "--resume", "--retry-errors")
        assert endpoint.requests == before["errors"]
    assert (figures["errors"], figures["attempts"]) == (0, 30)


def test_some_errors_may_be_allowed(folder: Path) -> None:
    with FaultyEndpoint(fault_share=0.3, faults=["500"]) as endpoint:
        figures = evaluate(
            folder,
            *at(endpoint, "allowed"),
            *("--limit", "10", "agent.episode_timeout=0.4", "--max-errors", "29"),
        )
    assert 0 < figures["errors"] < 30


def test_an_endpoint_that_never_answers_right_ends_the_evaluation_early(folder: Path) -> None:
    with FaultyEndpoint(fault_share=1.0, faults=["500"]) as endpoint:
        printed = evaluate(folder, *at(endpoint, "broken"), "agent.episode_timeout=0.3", code=1)
        assert endpoint.requests < TASKS * 3
    assert "in a row could not be scored" in printed["error"]["message"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["agent.system_prompt=Be brief."], "agent.system_prompt"),
        (["eval.temperature=0.5"], "eval.temperature"),
        (["--k", "2"], "eval.attempts"),
        (["--limit", "7"], "tasks"),
        (["--model", "other"], "model"),
    ],
)
def test_a_changed_evaluation_is_not_resumed_and_says_what_differs(
    folder: Path, faultless: dict[str, Any], change: list[str], named: str
) -> None:
    with FaultyEndpoint(models=("mock", "other")) as endpoint:
        arguments = [*at(endpoint, "faultless"), "--resume", *change]
        if "--model" not in change:
            arguments += ["--model", "mock"]
        printed = evaluate(folder, *arguments, code=2)
        assert endpoint.requests == 0
    assert named in printed["error"]["message"].partition("Changed:")[2]


def test_what_only_says_how_fast_may_change_and_reports_of_the_same_figures_stay(
    folder: Path, faultless: dict[str, Any]
) -> None:
    report = folder / "runs" / "eval-faultless" / "report.html"
    with FaultyEndpoint() as endpoint:
        figures = evaluate(folder, *at(endpoint, "faultless"), "--resume", "--concurrency", "2")
        written = report.stat().st_mtime_ns
        assert evaluate(folder, *at(endpoint, "faultless"), "--resume", "--concurrency", "2") == figures
        assert report.stat().st_mtime_ns == written
        assert endpoint.requests == 0
    assert figures["accuracy"] == faultless["accuracy"]


@pytest.mark.parametrize("limit", ["eval.max_tokens=400", "eval.max_cost=0.001", "eval.max_seconds=0.5"])
def test_a_limit_ends_it_and_resume_goes_on(folder: Path, limit: str) -> None:
    name = limit.partition("=")[0].rpartition(".")[2]
    with FaultyEndpoint(seconds=lambda rng: 0.2) as endpoint:
        printed = evaluate(folder, *at(endpoint, name), limit, "--limit", "20", code=1)
        assert limit.partition("=")[0] in printed["error"]["message"]
        done = summary(folder, name)["attempts"]
        assert 0 < done < 60
        figures = evaluate(folder, *at(endpoint, name), "--limit", "20", "--resume")
        assert figures["attempts"] == 60 == endpoint.requests


def test_a_taken_name_is_refused_and_without_a_name_a_number_is_added(
    folder: Path, faultless: dict[str, Any]
) -> None:
    with FaultyEndpoint() as endpoint:
        printed = evaluate(folder, *at(endpoint, "faultless"), code=2)
        assert "is not empty" in printed["error"]["message"]
        for name, notes in (
            ("eval-sums", ""),
            ("eval-sums-2", "so this evaluation is eval-sums-2; --name gives"),
        ):
            figures = evaluate(folder, "--model-url", endpoint.url, "--limit", "1", notes=notes)
            assert figures["run_dir"].endswith(f"/{name}")


def test_the_model_is_the_only_one_or_has_to_be_named(folder: Path) -> None:
    with FaultyEndpoint(models=("a", "b")) as endpoint:
        printed = evaluate(folder, *at(endpoint, "several"), code=2)
    assert "several models: a, b. Name one with --model" in printed["error"]["message"]


def test_a_program_asks_the_endpoint_through_the_gateway_with_the_same_result(
    folder: Path, faultless: dict[str, Any]
) -> None:
    script = shipped_folder() / "agents" / "openai_script.py"
    command = json.dumps([sys.executable, str(script)])
    with FaultyEndpoint() as endpoint:
        figures = evaluate(
            folder, *at(endpoint, "program"), f"agent.command={command}", "--limit", "8", "--k", "1"
        )
        assert endpoint.requests == 8
    assert (figures["attempts"], figures["errors"]) == (8, 0)
    played = {key: answer for key, _, answer in attempts(folder, "program")}
    same = {key: answer for key, _, answer in attempts(folder, "faultless") if key in played}
    assert played == same
