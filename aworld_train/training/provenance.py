"""What a run came from, for its manifest: code, model, machine and command.

Values of environment variables that a recipe refers to are masked.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from aworld_train.masking import mask
from aworld_train.model.files import is_hub_name, local_folder

MAX_DIFF_BYTES = 1_000_000
_SECONDS = 10
_EDGE_BYTES = 1 << 20
_REVISION = re.compile(r"[0-9a-f]{40}")


def source_code(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The commit of the Git repository around ``folder`` and the change since then, masked; None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None, ""
    status = (_git(folder, "status", "--porcelain", "--untracked-files=normal") or "").splitlines()
    untracked = [line[3:] for line in status if line.startswith("??")]
    diff = mask(_git(folder, "diff", "--no-ext-diff", "HEAD") or "")
    if len(diff) > MAX_DIFF_BYTES:
        diff = f"{diff[:MAX_DIFF_BYTES]}\n[cut off: the change has {len(diff)} characters]\n"
    facts = {
        "commit": commit.strip(),
        "branch": (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "changed_files": len(status) - len(untracked),
        "untracked_files": len(untracked),
    }
    return facts, diff


def model_identity(model: str | None) -> dict[str, Any] | None:
    """A model's name, and its revision on the hub or the fingerprint of its files, where they are on this machine.

    The fingerprint is the SHA-256 over each file's name, size, first and last MiB, which takes milliseconds.
    """
    if model is None:
        return None
    identity: dict[str, Any] = {"name": model}
    folder = local_folder(model)
    if folder is None or not folder.is_dir():
        return identity
    if is_hub_name(model) and _REVISION.fullmatch(folder.name):
        return identity | {"revision": folder.name}
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(folder)}\0{size}\0".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_EDGE_BYTES))
            if size > 2 * _EDGE_BYTES:
                stream.seek(-_EDGE_BYTES, os.SEEK_END)
            digest.update(stream.read(_EDGE_BYTES))
    return identity | {"fingerprint": digest.hexdigest()}


def hardware() -> dict[str, Any]:
    import psutil

    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": _gpus(),
    }


def command() -> str:
    return mask(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))


def resume_command() -> str:
    """What continues this process's run: its command with ``--resume``, or the argument in Python."""
    program, *arguments = sys.argv
    if Path(program).name not in ("aworld-train", "__main__.py"):
        return "train(resume=True)"
    return mask(shlex.join(["aworld-train", *(name for name in arguments if name != "--resume"), "--resume"]))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return (_output(query) or "").splitlines()


def _git(folder: Path, *arguments: str) -> str | None:
    # Neither the user's aliases nor a pager, and no lock on the index of a repository that others work in.
    return _output(["git", "--no-optional-locks", "--no-pager", "-C", str(folder), *arguments])


def _output(arguments: list[str]) -> str | None:
    """What a program prints; None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
