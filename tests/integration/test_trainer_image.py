"""The trainer's image, built for CPUs on the base that environments have, and started as pods and jobs start it."""

import functools
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

import aworld_train
from tests.environments import eventually, need_docker
from tests.locations import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

POD = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--shm-size=1g")
"""What the pods of a run may do, and no network."""
JOB = (*POD, "--read-only", "--tmpfs=/tmp", "--user=4321:4321", "--env=HOME=/tmp", "--env=USER=somebody")
"""As enroot and apptainer run a container: it cannot be written to, and its user is not the image's."""
IMPORTS = "torch, ray, verl.trainer.main_ppo, aworld_train.adapter.verl.task_runner"
# https://github.com/ray-project/kuberay/blob/v1.5.1/ray-operator/controllers/ray/common/pod.go
PROBE = " && ".join(
    f"wget --tries 1 -T 2 -q -O- http://localhost:{path} | grep success"
    for path in ("52365/api/local_raylet_healthz", "8265/api/gcs_healthz")
)
HEAD = (
    "ulimit -n 65536; ray start --head --block --num-gpus=0 --dashboard-host=0.0.0.0 "
    "--dashboard-agent-listen-port=52365"
)


def docker(*arguments: str | Path, timeout: float = 300) -> str:
    """What a command of Docker prints."""
    done = subprocess.run(
        ["docker", *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@contextmanager
def torch_index(folder: Path, python: str) -> Iterator[str]:
    """An index with the torch that pip finds on this machine: where there is a choice, the one without CUDA."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    constraints = REPOSITORY / "requirements" / "cpu.txt"
    command += ["--python-version", python, "-c", str(constraints), "--dest", str(folder / "torch"), "torch"]
    subprocess.run(command, check=True, timeout=600)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_docker()
    dockerfile = REPOSITORY / "docker" / "calculator-mcp-server" / "Dockerfile"
    base = re.search(r"(?m)^FROM (python:(\d\.\d+)\S*)$", dockerfile.read_text())
    assert base
    name = f"aworld-train-tests:{uuid4().hex[:12]}"
    with torch_index(tmp_path_factory.mktemp("index"), base[2]) as index:
        arguments = {"BASE": base[1], "PROFILE": "cpu", "TORCH_INDEX_URL": index}
        options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        file = "docker/trainer/Dockerfile"
        docker("build", "--network=host", "-f", file, "-t", name, *options, ".", timeout=1500)
    yield name
    docker("rmi", "--force", name)


@pytest.mark.parametrize("options", [POD, JOB], ids=["pod", "job"])
def test_what_a_run_needs_is_there_for_whoever_runs_it(image: str, options: tuple[str, ...]) -> None:
    script = f"""set -e
        id -u
        aworld-train --version
        ray --version
        aworld-train recipe check quickstart --no-files
        python -P -c 'import {IMPORTS}'
        touch ~/written"""
    user, *lines = docker("run", "--rm", *options, image, "bash", "-c", script).splitlines()
    assert user == ("4321" if options is JOB else "1000")
    assert lines[0] == f"aworld-train {aworld_train.__version__}"
    assert re.match(r"ray, version 2\.", lines[1])


def test_the_image_holds_the_package_and_nothing_else_of_the_repository(image: str) -> None:
    script = "pip check && ls -A /usr/src/aworld-train && find /usr/src/aworld-train -name tests"
    first, *names = docker("run", "--rm", *POD, image, "bash", "-c", script).splitlines()
    assert first == "No broken requirements found."
    assert set(names) == {
        "LICENSE",
        "README.md",
        "aworld_train",
        "docker",
        "pyproject.toml",
        "recipes",
        "requirements",
    }


def test_ray_starts_as_kuberay_starts_it_and_runs_a_job(image: str) -> None:
    token = ("--env=RAY_AUTH_MODE=token", f"--env=RAY_AUTH_TOKEN={secrets.token_hex(32)}")
    head = docker("run", "--detach", *POD, *token, image, "/bin/bash", "-c", "--", HEAD).strip()
    try:
        probe = ["docker", "exec", head, "bash", "-c", PROBE]

        def is_ready() -> bool:
            return subprocess.run(probe, capture_output=True, timeout=60).returncode == 0

        assert eventually(is_ready, 180), docker("logs", head)
        job = ("ray", "job", "submit", "--address=http://localhost:8265", "--")
        printed = docker("exec", head, *job, "python", "-P", "-m", "aworld_train", "--version")
        assert f"aworld-train {aworld_train.__version__}" in printed
    finally:
        docker("rm", "--force", head)
