"""A recipe that takes much of what it says from the environment, and a search for what it took.

Every value is a word that stands nowhere else, so wherever one is found it has leaked.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from aworld_train.training.private_folder import RECORD

MARK = "canary7f3a9c"
_WORDS = re.compile(rf"{MARK}\w*".encode())

SECTIONS: dict[str, Any] = {
    "agent": {
        "command": ["python", "${oc.env:CANARY_FOLDER}/agent.py", "--key=${oc.env:CANARY_ARGUMENT}"],
        "environment": {"SEARCH_KEY": "${oc.env:CANARY_SEARCH_KEY}"},
    },
    "model": {"path": "${oc.env:CANARY_MODEL}"},
    "dataset": {
        "train": "${oc.env:CANARY_DATA}/train.parquet",
        "val": "${oc.env:CANARY_DATA}/val.parquet",
    },
    "endpoints": {
        "other": {
            "url": "http://127.0.0.1:9/${oc.env:CANARY_ENDPOINT}",
            "model": "${oc.env:CANARY_ENDPOINT_MODEL}",
        }
    },
    "reward": {
        "judge": {"models": ["other"], "cache": "${oc.env:CANARY_CACHE}", "prompt": "${oc.env:CANARY_PROMPT}"}
    },
    "trainer": {"project": "${oc.env:CANARY_PROJECT}"},
}
"""Without ``env``, of which a test may have one of its own."""


def plant(folder: Path, *, model: Path, data: Path, agent: Path) -> dict[str, str]:
    """Make the files that ``SECTIONS`` names below ``folder``; returns the environment variables.

    Some of the paths are whole, and some are relative to the folder's parent.
    """
    own = folder / f"{MARK}folder"
    own.mkdir(parents=True)
    (own / "agent.py").write_bytes(agent.read_bytes())
    (own / f"{MARK}prompt.md").write_text("Judge.")
    for link, target in ((f"{MARK}model", model), (f"{MARK}data", data)):
        (folder / link).symlink_to(target.resolve())
    return {
        "CANARY_FOLDER": str(own.relative_to(folder.parent)),
        "CANARY_ARGUMENT": f"{MARK}argument",
        "CANARY_SEARCH_KEY": f"{MARK}searchkey",
        "CANARY_MODEL": str((folder / f"{MARK}model").relative_to(folder.parent)),
        "CANARY_DATA": str(folder.resolve() / f"{MARK}data"),
        "CANARY_ENDPOINT": f"{MARK}endpoint",
        "CANARY_ENDPOINT_MODEL": f"{MARK}endpointmodel",
        "CANARY_CACHE": str(folder / f"{MARK}cache"),
        "CANARY_PROMPT": str(own / f"{MARK}prompt.md"),
        "CANARY_PROJECT": f"{MARK}project",
    }


def found_in(folder: Path) -> Iterator[str]:
    """Files below ``folder`` that hold a value, and their names and those of folders if they do."""
    for path in sorted(folder.rglob("*")):
        if MARK in path.name:
            yield str(path)
        if path.is_file() and (words := set(_WORDS.findall(path.read_bytes()))):
            yield f"{path}: {words}"


class Watch:
    """Looks at a run again and again while it goes: at the command lines of all processes, and at what Ray writes.

    Args:
        run_dir: The run's folder, in which a file names the private folder of the start; that one goes with the run.

    Attributes:
        leaks: Where a value stood.
        command_lines: How many were read.
        ray_files: The files of Ray that were read.
    """

    def __init__(self, run_dir: Path):
        self.leaks: set[str] = set()
        self.command_lines = 0
        self.ray_files: set[Path] = set()
        self._record = run_dir / RECORD
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        ray: Path | None = None
        while not self._over.wait(0.5):
            self._read_command_lines()
            if ray is None and self._record.exists():
                ray = Path("/tmp", self._record.read_text(), "ray")
            for file in ray.rglob("logs/*") if ray else ():
                with suppress(OSError):
                    if file.is_file():
                        self.ray_files.add(file)
                        self.leaks |= {f"{file}: {word!r}" for word in _WORDS.findall(file.read_bytes())}

    def _read_command_lines(self) -> None:
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            self.command_lines += 1
            if MARK in line:
                self.leaks.add(line)
