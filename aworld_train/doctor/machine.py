"""All that probes read of a machine: files, programs, environment variables, installed packages.

Tests give another root folder, PATH and environment, in which real files and programs are a machine's faults.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import Distribution
from pathlib import Path

from packaging.utils import canonicalize_name

COMMAND_SECONDS = 1.5
"""For one program; below the limit of a probe, so that the probe can say which program hangs."""
_DIST_INFO = ".dist-info"


class NoAnswer(Exception):
    """A program or server did not answer in time; the message says which."""


class CommandFailed(Exception):
    """A program ended with an error; the message is the first line that it wrote."""


@dataclass(frozen=True)
class Machine:
    """A machine, by default this one; system folders are below ``root``, programs are found in its ``PATH``."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    site_paths: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    folder: Path = field(default_factory=Path.cwd)
    python: tuple[int, int] = sys.version_info[:2]
    command_seconds: float = COMMAND_SECONDS

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str:
        """The content of a system file; empty if it cannot be read."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def variable(self, name: str) -> str:
        """Without surrounding white space; empty if it is not set."""
        return self.environment.get(name, "").strip()

    def home(self) -> Path:
        return Path(self.variable("HOME") or Path.home())

    def program(self, name: str) -> str | None:
        return shutil.which(name, path=self.environment.get("PATH", os.defpath))

    def output(self, name: str, *arguments: str) -> str:
        """What a program writes to its standard output; one that takes too long is killed with all that it started."""
        program = self.program(name)
        if program is None:
            raise CommandFailed(f"there is no program {name}")
        process = subprocess.Popen(
            [program, *arguments],
            env={**self.environment, "LC_ALL": "C"},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=self.command_seconds)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NoAnswer(f"`{name}` did not answer within {self.command_seconds:g} s") from error
        if process.returncode != 0:
            lines = f"{errors}\n{output}".split("\n")
            message = next((line.strip() for line in lines if line.strip()), "no message")
            raise CommandFailed(f"`{name}` ended with {process.returncode}: {message}")
        return output

    @cached_property
    def packages(self) -> dict[str, tuple[str, Path]]:
        """Version and metadata folder of every installed package, by normalised name.

        They are read from the folders' names, ``NAME-VERSION.dist-info``: parsing the metadata of 250 packages would
        take a second.
        """
        packages: dict[str, tuple[str, Path]] = {}
        for folder in map(Path, self.site_paths):
            for entry in sorted(folder.glob(f"*{_DIST_INFO}")) if folder.is_dir() else ():
                name, _, version = entry.name.removesuffix(_DIST_INFO).partition("-")
                packages.setdefault(canonicalize_name(name), (version, entry))
        return packages

    def version(self, package: str) -> str | None:
        installed = self.packages.get(canonicalize_name(package))
        return installed[0] if installed else None

    def distribution(self, package: str) -> Distribution | None:
        installed = self.packages.get(canonicalize_name(package))
        return Distribution.at(installed[1]) if installed else None
