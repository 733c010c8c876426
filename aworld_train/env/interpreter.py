"""The Python that runs an environment directory's servers as processes: this one, or one of the directory's own.

Where this interpreter has what ``requirements.txt`` names, it will do. Otherwise a virtual environment is made, once
for each set of requirements, under ``~/.cache/aworld-train``.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from aworld_train.env.backend import ProgressReporter
from aworld_train.env.directory import EnvDirectory
from aworld_train.errors import EnvironmentFailure

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_INSTALL_SECONDS = 1800.0
_LOG_LINES = 15


def find_interpreter(directory: EnvDirectory, report_progress: ProgressReporter) -> str:
    """Path of a Python that has what the directory's requirements name.

    Raises:
        EnvironmentFailure: One could not be made.
    """
    listed = directory.path / "requirements.txt"
    if not listed.is_file() or all(map(_is_met, listed.read_text().splitlines())):
        return sys.executable
    own = _cache() / hashlib.sha256(f"{sys.version}\n{listed.read_text()}".encode()).hexdigest()[:16]
    python = own / "bin" / "python"
    own.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{own}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (own / "complete").exists():
            report_progress(
                f"Installing what {directory.name} needs into {own}; the first time takes some minutes."
            )
            shutil.rmtree(own, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(own)])
            _run(
                [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", "-r", str(listed)]
            )
            (own / "complete").touch()
    return str(python)


def _is_met(line: str) -> bool:
    """Whether the package that a line of requirements names is installed, whatever its version.

    What has an environment marker does not count; what names no package, a path or an option, is for pip to read.
    """
    line = line.partition("#")[0].strip()
    if not line or ";" in line:
        return True
    found = _REQUIREMENT.match(line)
    try:
        return found is not None and bool(metadata.version(found[0]))
    except metadata.PackageNotFoundError:
        return False


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "aworld-train" / "venvs"


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"`{' '.join(command)}` took longer than {_INSTALL_SECONDS:g} s.") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_LOG_LINES:])
        raise EnvironmentFailure(f"`{' '.join(command)}` failed:\n{said}")
