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
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CONSTRAINTS = REPOSITORY / "requirements/aworld.txt"
KEPT_IN = "AWORLD_TRAIN_TESTS_CACHE"
"""The folder in which the environment is kept; by default the user's cache."""
_INSTALL_SECONDS = 600


@cache
def aworld_python() -> Path:
    """The interpreter; this one, if it has AWorld."""
    if _have("aworld") == _pinned()["aworld"]:
        return Path(sys.executable)
    kept = Path(os.environ.get(KEPT_IN) or Path.home() / ".cache/aworld-train/tests")
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / f"aworld-{_fingerprint()}"
    python = place / "bin/python"
    # One test run makes it, others wait; a half-made one has no mark.
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _make(place, python)
            (place / "complete").touch()
    return python


@pytest.fixture(scope="session", name="aworld_python")
def aworld_python_fixture() -> Path:
    """As `aworld_python`."""
    return aworld_python()


def run_with_aworld(
    *arguments: str, timeout: float = 120, cwd: Path | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run that interpreter on this checkout; it must end with 0."""
    done = subprocess.run(
        [aworld_python(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd or REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | variables,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


def _make(place: Path, python: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    below = sysconfig.get_path("purelib")
    above = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    # Not a bare path: an editable installation below is a .pth file itself, which only `addsitedir` reads.
    (above / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.writelines(
            f"{name}=={needed}\n" for name, needed in _pinned().items() if _have(name) != needed
        )
        wanted.flush()
        # The constraints are complete, so nothing has to be resolved.
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "-r", wanted.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def _pinned() -> dict[str, str]:
    lines = CONSTRAINTS.read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def _have(name: str) -> str | None:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None


def _fingerprint() -> str:
    installed = sorted(f"{one.name}=={one.version}" for one in distributions())
    seen = [sys.version, sysconfig.get_path("purelib"), CONSTRAINTS.read_text(), *installed]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
