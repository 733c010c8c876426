"""The tasks of `dataset build files` are solved by the tools of gaia-mcp-server, through `eval`, to the last one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from aworld_train.dataset import build
from aworld_train.dataset.made_files.drafts import TAGS
from aworld_train.env import EnvSettings, down, up
from tests import warm
from tests.environments import all_ready, need_docker, parts_on_engine
from tests.locations import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

SERVERS = (
    *("terminal-server", "documents-csv-server", "documents-docx-server", "documents-pptx-server"),
    *("documents-pdf-server", "documents-txt-server", "documents-html-server", "documents-epub-server"),
    "documents-zip-server",
)
MEDIA = ("media-image-server", "media-audio-server")
MEDIA_TAGS = ("png", "jpg", "picture", "wav", "recording")
_SECONDS = 3000


@contextmanager
def solver() -> Iterator[str]:
    """The address of the script's endpoint."""
    command = [sys.executable, str(REPOSITORY / "scripts" / "files_solver.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def solved(
    folder: Path,
    backend: str,
    tasks: int,
    sessions: int,
    servers: tuple[str, ...],
    tags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What `eval` reports of the solver on so many tasks, after which every worker is ready for another session."""
    data, name = folder / "data", f"made-files-{backend}"
    at = "/attachments" if backend == "docker" else f"{data}/attachments"
    build("files", data, limit=tasks, splits={"val": 1.0}, attachments_at=at, tags=tags)
    settings = EnvSettings(
        backend=backend, workers=sessions, servers=servers, data=data / "attachments", wait=300.0
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
        with solver() as url:
            command = ("eval", "recipe.yaml", "--model-url", url, "--json")
            done = warm.run(
                *("-m", "aworld_train", *command),
                cwd=folder,
                env={**os.environ, **address},
                timeout=_SECONDS,
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


@pytest.mark.timeout(400)
def test_the_solver_is_right_on_every_task(tmp_path: Path) -> None:
    """Without pictures and sound, whose tools take seconds."""
    tags = tuple(tag for sort in TAGS for tag in sort if tag not in MEDIA_TAGS)
    check(solved(tmp_path, "process", tasks=15, sessions=2, servers=SERVERS, tags=tags), 15)


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS)
def test_the_solver_is_right_on_a_thousand_tasks_with_eight_sessions_in_docker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_docker()
    began = time.monotonic()
    report = solved(tmp_path, "docker", tasks=1000, sessions=8, servers=(*SERVERS, *MEDIA))
    seconds = time.monotonic() - began
    with capsys.disabled():
        sys.stdout.write(
            f"\n{1000 / seconds * 60:.0f} tasks a minute, the start of the environment included\n"
        )
    check(report, 1000)
    assert parts_on_engine("made-files-docker") == []
