"""The folder of a run: locked while in use, and resumed only for the recipe and data it was made with.

Its files are listed in docs/reference/run-folder.md. Only their owner can read records; the directories follow the
umask, so that the user can give others access to checkpoints. No file holds the value of an environment variable that
the recipe refers to: files hold the reference, and messages are masked.
"""

import platform
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import yaml

from aworld_train import __version__
from aworld_train.adapter.base import Checkpoint, TrainingFramework
from aworld_train.atomic import sha256_of, write_text
from aworld_train.errors import UsageError
from aworld_train.json_lines import read_json
from aworld_train.masking import masked
from aworld_train.recipe import changes, dump
from aworld_train.recipe.env_text import shown
from aworld_train.training.provenance import command, hardware, model_identity, source_code
from aworld_train.training.run_files import (
    LAUNCH_FOLDER,
    LAUNCH_RECORD,
    LOCK,
    MANIFEST,
    METRICS,
    RECIPE,
    SETTINGS,
    has_run,
    in_use_error,
    is_in_use,
    lock_folder,
    write_object,
)
from aworld_train.training.start import log_file

_PACKAGES = ("mcp", "omegaconf")
FREE = (
    "trainer.steps.",
    "trainer.epochs.",
    "trainer.val_every.",
    "trainer.val_ends.",
    "trainer.save_every.",
    "trainer.keep_checkpoints.",
    "trainer.early_stop.",
    "trainer.log_val_generations.",
    "trainer.loggers.",
    "cluster.launcher.",
    "cluster.slurm.",
    "trainer.max_restarts.",
    "trainer.stall_timeout.",
    "store.keep.",
    "store.redact.",
    "store.max_gb.",
    "store.otlp.",
)
"""Keys that say how far a run goes, when it is measured and saved, where it runs and what is kept: a step computes the
same with any value of them."""
_BEFORE_A_RUN = (LOCK, LAUNCH_RECORD, LAUNCH_FOLDER)


class RunFolder:
    """The folder of a run, which this process locks until ``close``."""

    def __init__(self, path: Path, framework: TrainingFramework, lock: TextIO):
        self.path = path
        self.framework = framework
        self.metrics = path / METRICS
        self.episodes = path / "traces" / "episodes.jsonl"
        self.superseded = path / "traces" / "superseded.jsonl"
        """The episodes that a resumed run plays again."""
        self.log = log_file(path, framework)
        self.checkpoints = path / "checkpoints"
        self._lock = lock

    def close(self) -> None:
        self._lock.close()

    def add_attempt(self, changed: Mapping[str, tuple[Any, Any]] | None = None) -> None:
        """Add an attempt that begins now, with what it changed in the recipe as (old, new) by key."""
        manifest = read_json(self.path / MANIFEST)
        facts = start_facts(self.saved_step)
        manifest["attempts"].append(facts | ({"changes": changed} if changed else {}))
        write_object(self.path / MANIFEST, manifest)

    def note_environment(self, origin: Mapping[str, str | None]) -> None:
        manifest = read_json(self.path / MANIFEST)
        manifest["attempts"][-1]["environment"] = dict(origin)
        write_object(self.path / MANIFEST, manifest)

    def last_checkpoint(self) -> Checkpoint | None:
        return self.framework.last_checkpoint(self.checkpoints)

    @property
    def saved_step(self) -> int:
        """The step of the last checkpoint; 0 without one."""
        checkpoint = self.last_checkpoint()
        return checkpoint.step if checkpoint else 0


def start_facts(from_step: int) -> dict[str, Any]:
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "from_step": from_step,
        "python": sys.executable,
        "command": command(),
        **hardware(),
    }


def open_run_folder(
    path: Path,
    framework: TrainingFramework,
    recipe: Mapping[str, Any],
    data: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    resume: bool,
    model: str | None = None,
    seed: int | None = None,
    steps: int | None = None,
    written: Collection[str] = (),
    more: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Make the folder of a run, or resume that of an earlier one; ``recipe`` is unresolved, ``steps`` the last step."""
    path = path.resolve()
    check_run_folder(path, written, resume=resume)
    path.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(path)
    try:
        _refuse_content(path, written, resume=resume)  # since another process may have had the lock
        for part in ("logs", "checkpoints", "traces/validation"):
            (path / part).mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path, framework, lock)
        hashes = file_hashes(data)
        changed: dict[str, tuple[Any, Any]] = {}
        attempts: list[Any] = []
        if has_run(path):
            changed = refuse_changes(path, recipe, hashes)
            _refuse_fewer_steps(folder, steps)
        else:
            attempts = read_json(path / MANIFEST).get("attempts", [])
            (path / MANIFEST).unlink(missing_ok=True)
        write_manifest(
            path,
            packages=framework.packages,
            hashes=hashes,
            environment=environment or {},
            model=model,
            seed=seed,
            more={"attempts": attempts, **(more or {})},
        )
        write_text(path / RECIPE, dump(dict(recipe)))
        folder.add_attempt(changed)
    except BaseException:
        lock.close()
        raise
    return folder


def check_run_folder(path: Path, written: Collection[str] = (), *, resume: bool) -> None:
    """Check that a run can begin, or resume, in a folder.

    ``written`` are the framework's files, which an interrupted start or a dry run may have left.
    """
    if is_in_use(path):
        raise in_use_error(path)
    _refuse_content(path, written, resume=resume)


def _refuse_content(path: Path, written: Collection[str], *, resume: bool) -> None:
    if has_run(path):
        if not resume:
            raise UsageError(
                f"The folder {path} holds a run that has trained. Continue it with --resume, give this run another "
                "name (name=...), or remove the folder."
            )
        if not (path / RECIPE).is_file():
            raise UsageError(f"The run in {path} cannot be resumed: its {RECIPE} is missing.")
        return
    if resume and not path.is_dir():
        raise UsageError(f"No run to resume: {path} does not exist. Start it without --resume.")
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    other = names - {*_BEFORE_A_RUN, *written}
    if other and not _is_of_a_run(path):
        raise UsageError(
            f"The folder {path} is not empty, and no run has left what is in it ({', '.join(sorted(other)[:3])}). Give "
            "the run another name (name=...), or remove the folder."
        )


def _is_of_a_run(path: Path) -> bool:
    """Whether a folder's manifest is that of a training run, not of an evaluation or of rollouts."""
    manifest = read_json(path / MANIFEST)
    return "data_sha256" in manifest and SETTINGS not in manifest


def _refuse_fewer_steps(folder: RunFolder, steps: int | None) -> None:
    saved = folder.saved_step
    if steps is not None and steps < saved:
        raise UsageError(
            f"The run in {folder.path} has trained {saved} steps, more than the {steps} of this recipe "
            "(trainer.steps). Give at least as many, or start a new run with another name."
        )


def refuse_changes(
    path: Path, recipe: Mapping[str, Any], hashes: Mapping[str, str], free: tuple[str, ...] = FREE
) -> dict[str, tuple[Any, Any]]:
    """Refuse to resume a run that was made with another recipe or with other data.

    Returns the changes that are allowed, as (old, new) by key; ``free`` are the beginnings of keys that may differ.
    """
    previous = yaml.safe_load((path / RECIPE).read_text(encoding="utf-8"))
    changed = changes(previous, dict(recipe))
    refused = sorted(key for key in changed if not f"{key}.".startswith(free))
    if refused:
        raise UsageError(
            f"The run in {path} was made with another recipe and cannot be resumed with this one, because its results "
            f"would be those of neither. Changed: {', '.join(refused)}. Undo the change, or start a new run with "
            "another name."
        )
    recorded = read_json(path / MANIFEST).get("data_sha256", {})
    files = [file for file, sha in hashes.items() if recorded.get(file, sha) != sha]
    if files:
        raise UsageError(
            f"The run in {path} cannot be resumed: its data changed since it began: {', '.join(files)}. Restore the "
            "data, or start a new run with another name."
        )
    return changed


def write_manifest(
    path: Path,
    *,
    packages: Sequence[str],
    hashes: Mapping[str, str],
    environment: Mapping[str, str],
    model: str | None,
    seed: int | None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest of a run, unless there is one that can be read; ``more`` are other entries."""
    if read_json(path / MANIFEST):
        return
    source, diff = source_code(Path.cwd())
    manifest = {
        "aworld_train": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _versions(packages),
        "data_sha256": dict(hashes),
        "model": masked(model_identity(model)),
        "seed": seed,
        "source": source,
        "environment": dict(environment),
        "attempts": [],
        **(more or {}),
    }
    if diff:
        write_text(path / "source.diff", diff)
    write_object(path / MANIFEST, manifest)


def _versions(packages: Sequence[str]) -> dict[str, str]:
    versions = {}
    for package in (*packages, *_PACKAGES):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def file_hashes(files: Sequence[str | Path]) -> dict[str, str]:
    # A name may be the reference to an environment variable.
    return {shown(file) if isinstance(file, str) else str(file): sha256_of(Path(file)) for file in files}
