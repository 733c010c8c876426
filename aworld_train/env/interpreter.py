"""The Python that runs an environment directory's servers as processes: this one, if it has what ``requirements.txt``
names, or a virtual environment made once for each set of requirements.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from aworld_train.env.backend import ProgressReporter
from aworld_train.env.client_servers import cache_folder
from aworld_train.env.directory import EnvDirectory
from aworld_train.errors import EnvironmentFailure

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_INSTALL_SECONDS = 1800.0
_LOG_LINES = 15


def find_interpreter(directory: EnvDirectory, report_progress: ProgressReporter) -> str:
    requirements = directory.path / "requirements.txt"
    if not requirements.is_file() or all(map(_is_installed, requirements.read_text().splitlines())):
        return sys.executable
    digest = hashlib.sha256(f"{sys.version}\n{requirements.read_text()}".encode()).hexdigest()
    venv = cache_folder("venvs") / digest[:16]
    python = venv / "bin" / "python"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{venv}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / "complete").exists():
            report_progress(
                f"Installing what {directory.name} needs into {venv}; the first time takes some minutes."
            )
            shutil.rmtree(venv, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(venv)])
            pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
            _run([*pip, "-r", str(requirements)])
            (venv / "complete").touch()
    return str(python)


def lock_packages(directory: EnvDirectory, report_progress: ProgressReporter, *, renew: bool = False) -> None:
    """Look up the versions of the packages that the directory names in ``packages.json``, unless they are locked."""
    packages, script = directory.path / "packages.json", directory.path / "install.py"
    if not packages.is_file() or not script.is_file():
        return
    named = json.loads(packages.read_text(encoding="utf-8"))
    locks = [
        directory.path / (f"python/{name}.txt" if "python" in package else "package-lock.json")
        for name, package in named.items()
    ]
    if renew or not all(lock.is_file() for lock in locks):
        python = find_interpreter(directory, report_progress)
        report_progress(f"Looking up the packages of {directory.name}.")
        _run([python, str(script), "--lock"])


def install_packages(directory: EnvDirectory, python: str, report_progress: ProgressReporter) -> None:
    if (directory.path / "packages.json").is_file():
        report_progress(f"Fetching the packages of {directory.name}; the first time may take minutes.")
        _run([python, str(directory.path / "install.py")])


def _is_installed(line: str) -> bool:
    """Whether the package that a line of requirements names is installed, whatever its version."""
    line = line.partition("#")[0].strip()
    if not line or ";" in line:
        return True
    name = _REQUIREMENT.match(line)
    try:
        return name is not None and bool(metadata.version(name[0]))
    except metadata.PackageNotFoundError:
        return False


def _run(command: list[str]) -> None:
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"`{' '.join(command)}` took longer than {_INSTALL_SECONDS:g} s.") from error
    if finished.returncode != 0:
        last_lines = "\n".join((finished.stdout + finished.stderr).strip().splitlines()[-_LOG_LINES:])
        raise EnvironmentFailure(f"`{' '.join(command)}` failed:\n{last_lines}")
