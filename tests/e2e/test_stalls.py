"""A part of a run hangs: the run ends with the part's name, and the stacks of its processes are in its logs.

pytest -m slow tests/e2e/test_stalls.py
"""

import signal

import psutil
import pytest

from tests.e2e.conftest import (
    SMALL,
    Workspace,
    assert_all_gone,
    descendants,
    environments_of,
    find,
    wait_for,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

STALL = "trainer.stall_timeout=75"
STOPPED = {
    "engine": "ray::TransformersServer",
    "trainer": "ray::TaskRunner",
    "reward": "ray::RewardLoopWorker",
    "episodes": "ray::EpisodeWorker",
}
"""The part that is to be named, by the process that a signal stops."""
REWARD = """
import time

def score(data_source, solution_str, ground_truth, extra_info=None, **more):
    if extra_info and extra_info["split"] == "train":
        time.sleep(3600)
    return 0.0
"""


def assert_named(workspace: Workspace, name: str, part: str, message: str) -> None:
    assert f"Stuck: {part}." in message, message
    assert "Traceback" not in message
    error = workspace.summary(name)["error"]
    assert f"Stuck: {part}." in error["message"]
    (stacks,) = (workspace.runs / name / "logs").glob("stacks-*.txt")
    text = stacks.read_text()
    assert "ray::EpisodeWorker" in text and "ray::TaskRunner" in text and "Thread " in text


@pytest.mark.parametrize("part", STOPPED)
def test_a_stopped_process_is_named(workspace: Workspace, part: str) -> None:
    name = f"stopped-{part}"
    process = workspace.start("train", "recipes/quickstart.yaml", f"name={name}", *SMALL, STALL)
    metrics = workspace.runs / name / "metrics.jsonl"
    wait_for("step", lambda: metrics.exists() and len(workspace.metrics(name)) > 1, 600, process)
    everything = descendants(process.pid)
    victim = find(everything, STOPPED[part])
    assert victim is not None
    victim.send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert_named(workspace, name, part, err)
    assert f"{STOPPED[part]}" in err  # among the processes that a signal has stopped
    assert_all_gone(everything)


def test_a_reward_function_that_hangs_is_named(workspace: Workspace) -> None:
    (workspace.path / "hanging_reward.py").write_text(REWARD)
    done = workspace.run(
        "train", "recipes/quickstart.yaml", "name=hanging-reward", *SMALL, STALL,
        "reward.function=hanging_reward.py:score", "reward.timeout=3600",
    )  # fmt: skip
    assert done.returncode == 1
    assert_named(workspace, "hanging-reward", "reward", done.stderr)


def test_an_environment_that_hangs_is_named(workspace: Workspace) -> None:
    name = "hanging-environment"
    process = workspace.start(
        "train",
        "recipes/quickstart.yaml",
        f"name={name}",
        *SMALL,
        STALL,
        "agent.tool_timeout=3600",
        "env.recovery_timeout=600",
    )
    metrics = workspace.runs / name / "metrics.jsonl"
    wait_for("validation", lambda: metrics.exists() and workspace.metrics(name), 600, process)
    run = [psutil.Process(process.pid), *descendants(process.pid)]
    environment = environments_of(run)
    victims = [each for each in environment if "aworld_train.serving.worker" in " ".join(each.cmdline())]
    assert victims
    for victim in victims:
        victim.send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Stuck: environment." in err, err
    assert_all_gone([*run, *environment])


def test_an_agent_whose_own_code_hangs_is_named(workspace: Workspace) -> None:
    (workspace.path / "hanging.py").write_text("import time\ntime.sleep(3600)\n")
    done = workspace.run(
        "train", "recipes/quickstart.yaml", "name=hanging-agent", *SMALL, STALL,
        "agent.command=[python,hanging.py]", "agent.episode_timeout=3600",
    )  # fmt: skip
    assert done.returncode == 1
    assert_named(workspace, "hanging-agent", "agent", done.stderr)
