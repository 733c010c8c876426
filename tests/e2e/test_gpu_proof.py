"""The proof for GPU machines does on CPU what it does there, and fails where something does not hold."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.aworld_environment import vllm_python
from tests.locations import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "gpu-proof.sh"
SECONDS = 1500


def proof(out: Path, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, "--out", str(out), *options],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=out.parent,
    )


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(SECONDS)
def test_on_cpu_everything_holds(tmp_path: Path) -> None:
    out = tmp_path / "proof.json"
    done = proof(out, "--device", "cpu", PYTHON=str(vllm_python()))
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert report["ok"] and report["complete"] and report["device"] == "cpu"
    assert {"torch", "verl", "python"} <= set(report["versions"])
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["updates change the weights"]["figure"] > 0
    assert checks["exactness after weights went over"]["figure"] < 1e-5
    assert checks["resume to the last step"]["ok"]
    assert checks["tokens/s of a step"]["figure"] > 0
    assert checks["tokens/s of an update over raw VeRL's"]["ok"]


def test_without_an_interpreter_it_says_what_to_install(tmp_path: Path) -> None:
    done = proof(tmp_path / "proof.json", PYTHON=str(tmp_path / "python"))
    assert done.returncode == 2 and "docs/install.md" in done.stderr
    assert not (tmp_path / "proof.json").exists()
