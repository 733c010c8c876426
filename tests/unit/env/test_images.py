"""The files that are copied into images are enough to run each program there."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aworld_train.env import egress_image, images
from aworld_train.env.directory import find_directory
from aworld_train.serving import egress, env_gateway, worker


@pytest.mark.parametrize(
    ("program", "first_error"),
    [
        (env_gateway, "KeyError: 'AWORLD_GATEWAY'"),
        (worker, "KeyError: 'AWORLD_WORKER'"),
        (egress, "AWORLD_EGRESS cannot be used"),
    ],
)
def test_a_program_starts_from_the_files_of_its_image(
    program: ModuleType, first_error: str, tmp_path: Path
) -> None:
    runtime = images._runtime(find_directory("calculator-mcp-server"))
    files = egress_image._files() if program is egress else runtime
    script = images.RUN_SCRIPT.format(folder=tmp_path).encode()
    for name, content in {**files, "run.py": script}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    finished = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "run.py"), program.__name__],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 1
    assert first_error in finished.stderr
    traced = [line for line in finished.stderr.splitlines() if "aworld_train/serving" in line]
    assert all(str(tmp_path) in line for line in traced)
