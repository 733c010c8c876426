"""Which backend `auto` means: never plain processes for what executes code, and never without a word."""

import json
import os
import subprocess
from pathlib import Path

from tests import warm
from tests.environments import ODD

NOWHERE = "unix:///nonexistent/docker.sock"


def env(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """``aworld-train env`` on a machine without a Docker engine."""
    return warm.run(
        *("-m", "aworld_train", "env", *arguments),
        env={**os.environ, "DOCKER_HOST": NOWHERE, "AWORLD_TRAIN_STATE": str(state)},
        timeout=120,
    )


def single_line(text: str) -> str:
    return " ".join(text.split())


def test_a_server_that_executes_code_is_no_plain_process_unasked(tmp_path: Path) -> None:
    refused = env(tmp_path, "up", "--docker-dir", str(ODD))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"No Docker engine answers at {NOWHERE}, and odd, other can be made to run" in single_line(
        refused.stderr
    )
    assert "--backend process" in refused.stderr
    assert json.loads(env(tmp_path, "status", "--json").stdout) == {"environments": []}


def test_asked_for_by_name_it_is_and_what_is_not_protected_is_said(tmp_path: Path) -> None:
    started = env(tmp_path, "up", "--docker-dir", str(ODD), "--backend", "process", "--name", "by-name")
    try:
        assert started.returncode == 0, started.stderr
        assert "can be made to do whatever your account can" in single_line(started.stderr)
    finally:
        assert env(tmp_path, "down", "by-name").returncode == 0


def test_what_executes_no_code_may_become_a_plain_process_and_that_is_said(tmp_path: Path) -> None:
    started = env(tmp_path, "up", "--docker-dir", "calculator-mcp-server", "--name", "unasked")
    try:
        assert started.returncode == 0, started.stderr
        assert json.loads(started.stdout)["backend"] == "process"
        assert "tools run as plain processes of your account" in single_line(started.stderr)
    finally:
        assert env(tmp_path, "down", "unasked").returncode == 0


def test_what_only_containers_can_do_is_refused_for_processes(tmp_path: Path) -> None:
    process = ("up", "--docker-dir", "calculator-mcp-server", "--backend", "process")
    for option, value in (("--egress", "none"), ("--egress-hosts", "pypi.org"), ("--runtime", "runsc")):
        refused = env(tmp_path, *process, option, value)
        assert (refused.returncode, refused.stdout) == (2, ""), option
        assert "needs the docker backend" in single_line(refused.stderr), option
