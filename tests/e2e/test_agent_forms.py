"""Each form in which a program may give its agent trains two steps, with real AWorld and a real environment."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train.env import EnvConnection, down, up
from tests.aworld_environment import aworld_python
from tests.e2e.conftest import REPOSITORY, STARTED_BY, Workspace
from tests.openai_stub import OpenAIStub

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PROGRAM = REPOSITORY / "tests/data/agents/forms.py"
OTHER_FORMS = (
    "agent",
    "function",
    "class",
    "file",
    "module",
    "aworld-yaml",
    "section",
    "mapping",
    "section-file",
)


@pytest.fixture(scope="module", name="tools")
def tools_fixture(workspace: Workspace) -> Iterator[EnvConnection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWORLD_TRAIN_STATE", str(workspace.path / "state"))
        name = f"forms-{os.getpid()}"
        yield up("calculator-mcp-server", name=name, backend="process", owner_pid=os.getpid(), wait=120)
        down(name)


@pytest.mark.parametrize(
    "form", ["swarm", *(pytest.param(form, marks=pytest.mark.slow) for form in OTHER_FORMS)]
)
def test_an_agent_is_trained_in_every_form(
    workspace: Workspace, tools: EnvConnection, tmp_path: Path, form: str
) -> None:
    runs = tmp_path / "runs"
    with OpenAIStub() as trap:
        done = subprocess.run(
            [str(aworld_python()), str(PROGRAM), form, str(runs)],
            cwd=workspace.path,
            env={
                **os.environ,
                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{PROGRAM.parent}",
                "MCP_SERVER_URL": tools.mcp_url,
                "MCP_SERVER_TOKEN": tools.token,
                # What no agent names, no agent asks.
                "OPENAI_ENDPOINT": trap.url(),
                "OPENAI_BASE_URL": trap.url(),
                "OPENAI_API_KEY": "sk-of-the-user-1234",
                "AWORLD_LOG_PATH": str(tmp_path / "logs"),
                "AWORLD_DISABLE_CONSOLE_LOG": "true",
                STARTED_BY: str(os.getpid()),
            },
            capture_output=True,
            text=True,
            timeout=800,
        )
    assert done.returncode == 0, done.stderr
    assert not trap.requests
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["status"], summary["steps_done"], summary["episodes"]) == ("completed", 2, 8)
    lines = (runs / form / "traces/episodes.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    assert {line["outcome"] for line in episodes} <= {"answered", "overlong", "format", "max_turns"}
    assert {name for line in episodes for name in line["agents"]} == (
        {"solver", "checker"} if form == "swarm" else {"solver"}
    )
    # In a swarm only the named agent is trained: the checker's conversation gives no training row.
    assert {line["rows"] for line in episodes} == {1}
    secrets = [tools.token.encode(), b"sk-of-the-user-1234"]
    files = [file for file in runs.rglob("*") if file.is_file()]
    assert files and not [file for file in files if any(secret in file.read_bytes() for secret in secrets)]
