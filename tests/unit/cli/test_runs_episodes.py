"""The commands that read a run's store: lists, one episode, the origin of a token, and pruning."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aworld_train.cli.runs import app
from aworld_train.errors import UsageError
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import store_location
from tests.stored_runs import make_stored_run, task_row, write_run_files


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_stored_run(tmp_path / "runs", say="\x1b[31mred")
    return tmp_path / "runs"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_episodes_are_listed_and_counted() -> None:
    done = run("episodes", "one", "--where", "phase=train and reward=0", "--json", "-n", "2")
    found = json.loads(done.stdout)
    assert found["total"] == 12 and len(found["episodes"]) == 2
    assert {each["reward"] for each in found["episodes"]} == {0.0}
    done = run("episodes", "one", "--where", "outcome=timeout", "-n", "3")
    assert done.stdout.count("timeout (dropped)") == 3
    assert "3 of 16 episodes; --limit shows more." in done.stderr


def test_a_condition_that_cannot_be_read_is_a_usage_error() -> None:
    done = run("episodes", "one", "--where", "rewrad=0")
    assert isinstance(done.exception, UsageError) and "Did you mean 'reward'?" in str(done.exception)
    assert isinstance(run("episodes", "one", "--sort", "nothing").exception, UsageError)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("phase=trian", "phase is never 'trian'. Did you mean 'train'?"),
        ("step>1 and not (outcome=timeot)", "outcome is never 'timeot'. Did you mean 'timeout'?"),
        ("treatment!=zzz", "treatment is never 'zzz'. There are dropped, masked, trained."),
        ("status=endet", "Did you mean 'ended'?"),
    ],
)
@pytest.mark.parametrize("command", ["episodes", "prune", "export"])
def test_a_value_that_no_episode_can_have_is_refused(command: str, condition: str, hint: str) -> None:
    options = {"prune": ["--yes"], "export": ["--format", "messages", "--out", "x"]}.get(command, [])
    done = run(command, "one", "--where", condition, *options)
    assert isinstance(done.exception, UsageError) and hint in str(done.exception)
    assert not Path("x").exists()


@pytest.mark.parametrize("condition", ["outcome=agent", "phase=null", "scorer=none", "status=superseded"])
def test_a_value_that_no_episode_has_is_none_of_a_mistake(condition: str) -> None:
    done = run("episodes", "one", "--where", condition)
    assert done.exit_code == 0 and "No episodes match the condition." in done.stderr


def test_an_episode_is_shown_without_doing_anything_to_the_terminal() -> None:
    found = json.loads(
        run("episodes", "one", "--where", "failed_tool and phase=train", "--json", "-n", "1").stdout
    )
    name = found["episodes"][0]["id"]
    done = run("episode", "one", name[:10])
    assert "Error: out of order" in done.stdout and "→ calculator(" in done.stdout
    assert "\x1b[31m" not in done.stdout and "\\x1b[31mred" in done.stdout
    assert "advantage -1" in done.stdout
    plain = json.loads(run("episode", "one", name, "--json").stdout)
    sampled = [node for node in plain["content"]["agents"][0]["nodes"] if node["sampled"]]
    assert all(len(node["token_ids"]) == len(node["logprobs"]) == 5 for node in sampled)
    assert isinstance(run("episode", "one", "nothing").exception, UsageError)


def test_a_token_leads_to_its_call_its_episode_and_its_task() -> None:
    origin = json.loads(
        run("trace-token", "one", "--step", "2", "--row", "3", "--token", "9", "--json").stdout
    )
    assert origin["under_mask"] and origin["call_number"] == 0 and origin["place"] == 1
    assert origin["logprob"] < 0 and origin["advantage"] in (0.5, -1.0)
    assert origin["episode"]["step"] == 2
    context = json.loads(
        run("trace-token", "one", "--step", "2", "--row", "3", "--token", "0", "--json").stdout
    )
    assert not context["under_mask"] and context["call"] is None and context["token_id"] == 100
    assert (
        "no, it is context" in run("trace-token", "one", "--step", "2", "--row", "3", "--token", "0").stdout
    )
    for row, token in (("99", "0"), ("3", "99")):
        refused = run("trace-token", "one", "--step", "2", "--row", row, "--token", token)
        assert isinstance(refused.exception, UsageError)


def test_pruning_asks_and_removes_texts(runs: Path) -> None:
    assert isinstance(run("prune", "one").exception, UsageError)
    assert run("prune", "one", "--where", "step=0").exit_code == 1  # nobody confirms
    done = run("prune", "one", "--where", "step=0", "--json")
    assert json.loads(done.stdout)["episodes"] == 16
    name = json.loads(run("episodes", "one", "--where", "step=0", "--json", "-n", "1").stdout)["episodes"][0][
        "id"
    ]
    assert "are not kept" in run("episode", "one", name).stderr


def test_what_a_killed_run_has_left_is_entered_by_the_next_reader(runs: Path) -> None:
    recorder = StoreRecorder(runs / "one", parse_keep("all"), Redactor())
    recorder.begin("left", recorder.task(task_row(7, 2, 2)), step=9, phase="train", attempt=0, key="")
    recorder.close()
    found = json.loads(run("episodes", "one", "--where", "step=9", "--json").stdout)
    assert [(each["id"], each["status"]) for each in found["episodes"]] == [("left", "lost")]
    place = store_location(runs / "one")
    assert place is not None and not list(place.events.iterdir())


def test_a_run_without_a_store_is_a_usage_error(runs: Path) -> None:
    (runs / "bare").mkdir()
    write_run_files(runs / "bare", "bare", 1)
    done = run("episodes", "bare")
    assert isinstance(done.exception, UsageError) and "has no store" in str(done.exception)
