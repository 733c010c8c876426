"""The tasks of `dataset build files` are solved by the tools of gaia-mcp-server, through `eval`, to the last one."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from files_solver import next_message

from aworld_train.dataset import build
from aworld_train.env import EnvSettings, down, up
from tests import warm
from tests.environments import all_ready, need_docker, parts_on_engine
from tests.openai_stub import OpenAIStub

SERVERS = (
    *("terminal-server", "documents-csv-server", "documents-docx-server", "documents-pptx-server"),
    *("documents-pdf-server", "documents-txt-server", "documents-html-server", "documents-epub-server"),
    *("documents-zip-server", "media-image-server", "media-audio-server"),
)
_SECONDS = 3000


def solved(folder: Path, backend: str, tasks: int, sessions: int) -> dict[str, Any]:
    """What `eval` reports of the solver on so many tasks, after which every worker is ready for another session."""
    data, name = folder / "data", f"made-files-{backend}"
    at = "/attachments" if backend == "docker" else f"{data}/attachments"
    build("files", data, limit=tasks, splits={"val": 1.0}, attachments_at=at)
    settings = EnvSettings(
        backend=backend, workers=sessions, servers=SERVERS, data=data / "attachments", wait=300.0
    )
    connection = up("gaia-mcp-server", settings, name=name)
    try:
        recipe = {
            "name": "made-files",
            "dataset": {"val": str(data / "val.parquet")},
            "eval": {"concurrency": sessions},
        }
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        address = {"MCP_SERVER_URL": connection.mcp_url, "MCP_SERVER_TOKEN": connection.token}
        with OpenAIStub(lambda request: next_message(request.messages)) as stub:
            command = ("eval", "recipe.yaml", "--model-url", stub.url(), "--model", "solver", "--json")
            done = warm.run(
                "-m", "aworld_train", *command, cwd=folder, env={**os.environ, **address}, timeout=_SECONDS
            )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        assert all_ready(connection)
    finally:
        down(name)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check(report: dict[str, Any], tasks: int) -> None:
    assert (report["n"], report["errors"], report["unscored"], report["tool_errors"]) == (tasks, 0, {}, 0)
    assert report["accuracy"] == 1.0, report["groups"]


@pytest.mark.skipif(not shutil.which("tesseract"), reason="pictures are read by tesseract")
@pytest.mark.timeout(400)
def test_the_solver_is_right_on_every_task(tmp_path: Path) -> None:
    check(solved(tmp_path, "process", tasks=15, sessions=2), 15)


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS)
def test_the_solver_is_right_on_a_thousand_tasks_with_eight_sessions_in_docker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_docker()
    began = time.monotonic()
    report = solved(tmp_path, "docker", tasks=1000, sessions=8)
    seconds = time.monotonic() - began
    with capsys.disabled():
        sys.stdout.write(
            f"\n{1000 / seconds * 60:.0f} tasks a minute, the start of the environment included\n"
        )
    check(report, 1000)
    assert parts_on_engine("made-files-docker") == []
