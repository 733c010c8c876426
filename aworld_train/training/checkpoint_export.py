"""A run's checkpoint as a folder of its own, which loads wherever its input model does."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aworld_train import atomic, module_process
from aworld_train.adapter.base import StoredCheckpoint, find, val_quality
from aworld_train.errors import (
    NO_SPACE,
    TRAINING_PROFILE,
    DependencyMissing,
    DiskFull,
    ExportError,
    UsageError,
    one_line,
)
from aworld_train.masking import remember
from aworld_train.model.portable import make_portable
from aworld_train.model.weights import copy, dtype_of, parameters_of
from aworld_train.training.recorded_run import RecordedRun

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKEN = "HF_TOKEN"
CARD = "README.md"
CARD_MARK = (
    "<!-- By `aworld-train runs checkpoint`, which replaces this file as long as it has this line. -->"
)
_NEEDED = ("torch", "transformers")
_MAX_PROOF_SECONDS = 3600
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


@dataclass(frozen=True)
class CheckpointExport:
    """What was exported: ``folder`` is None if it was only pushed, ``hub`` is the address of the commit."""

    folder: str | None
    step: int
    adapter: bool
    dtype: str
    parameters: int
    bytes: int
    proof: Mapping[str, Any] | None
    hub: str | None


def choose(run: RecordedRun, step: str) -> StoredCheckpoint:
    """A run's checkpoint: of a step, the last whole one, or of these the one with the best validation."""
    stored = find(run.framework).checkpoints(run.path / "checkpoints")
    whole = [checkpoint for checkpoint in stored if not checkpoint.fault]
    if not stored:
        raise UsageError(
            f"The run {run.name} has no checkpoint yet: trainer.save_every says when it writes one."
        )
    steps = ", ".join(str(checkpoint.step) for checkpoint in stored)
    if step not in ("last", "best"):
        for checkpoint in stored:
            if str(checkpoint.step) == step:
                return checkpoint
        raise UsageError(
            f"The run {run.name} has no checkpoint of step {step}; there are those of {steps}, and `last` and `best`."
        )
    if not whole:
        raise UsageError(
            f"The run {run.name} has no whole checkpoint: of step {stored[-1].step}, {stored[-1].fault}."
        )
    if step == "last":
        return whole[-1]
    qualities = {row["step"]: quality for row in run.rows if (quality := val_quality(row)) is not None}
    validated = [checkpoint for checkpoint in whole if checkpoint.step in qualities]
    if not validated:
        raise UsageError(
            f"No checkpoint of the run {run.name} was validated, so that none is the best; there are those of {steps}."
        )
    return max(validated, key=lambda checkpoint: (qualities[checkpoint.step], checkpoint.step))


def export(
    run: RecordedRun,
    checkpoint: StoredCheckpoint,
    target: Path | None,
    *,
    dtype: str | None,
    adapter: bool,
    prove: bool,
    hub: str | None,
    card: str,
) -> CheckpointExport:
    """Write a checkpoint's model into a folder, which is there whole and proved to load, or not at all.

    Without ``target`` it is only pushed to the repository ``hub``; without ``dtype`` weights are not rounded.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise DependencyMissing(f"{missing[0]} is not installed: {TRAINING_PROFILE}.")
    if hub:
        _check_hub(hub)
    if target is not None:
        _check_empty(target)
    with tempfile.TemporaryDirectory(prefix="aworld-train-") as temporary:
        place = target or Path(temporary) / "model"
        try:
            with atomic.replacing(place.resolve(), _check_empty) as folder:
                source = _write(run, checkpoint, folder, dtype=dtype, adapter=adapter)
                atomic.write_text(folder / CARD, card)
                proof = _prove(folder, source, run) if prove and not adapter else None
        except Exception as error:
            # safetensors wraps what the system says.
            if not isinstance(error, OSError) and NO_SPACE not in str(error):
                raise
            raise DiskFull(
                f"{place} cannot be written: {getattr(error, 'strerror', None) or error}."
            ) from error
        commit = _push(place, hub, checkpoint.step) if hub else None
        return CheckpointExport(
            str(target) if target else None,
            checkpoint.step,
            adapter,
            dtype_of(place),
            parameters_of(place),
            sum(file.stat().st_size for file in place.rglob("*") if file.is_file()),
            proof,
            commit,
        )


def _check_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"--to {target} is not an empty folder. Name another, or remove it.")


def _check_hub(repository: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    if not os.environ.get(TOKEN):
        raise UsageError(f"--hub needs a token that may write to {repository}, in the variable {TOKEN}.")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UsageError(f"--hub {repository} is not the name of a repository: {one_line(error)}") from error


def _write(
    run: RecordedRun, checkpoint: StoredCheckpoint, folder: Path, *, dtype: str | None, adapter: bool
) -> Path:
    model, of_lora = find(run.framework).extract_model(checkpoint.path, folder.parent)
    if adapter:
        if of_lora is None:
            raise UsageError(
                f"The run {run.name} trained all weights: it has no adapter. Leave --adapter out."
            )
        model = of_lora
    shutil.copytree(model, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_WEIGHTS))
    copy(model, folder, dtype)
    if not adapter:
        make_portable(folder, None)
    return model


def _prove(folder: Path, source: Path, run: RecordedRun) -> dict[str, Any]:
    trusted = bool((run.recipe.get("model") or {}).get("trust_remote_code"))
    question = {"folder": str(folder), "reference": str(source), "trust_remote_code": trusted}
    process = module_process.start("aworld_train.model.load_proof", question)
    try:
        output, _ = process.communicate(timeout=_MAX_PROOF_SECONDS)
        answer: dict[str, Any] = json.loads(output)
    except subprocess.TimeoutExpired:
        answer = {"error": f"the process that loads it took more than {_MAX_PROOF_SECONDS} s"}
    except ValueError:
        answer = {"error": f"the process that loads it ended with code {process.returncode}"}
    finally:
        process.kill()
        process.communicate()
    if "error" in answer:
        raise ExportError(
            f"The model of {source} was not exported, because what was written does not load: {answer['error']}. "
            "--no-proof keeps it without loading it, as where the memory does not suffice."
        )
    return answer


def _push(folder: Path, repository: str, step: int) -> str:
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    token = os.environ[TOKEN]
    remember(token, f"${TOKEN}")
    disable_progress_bars()
    api = HfApi(token=token)
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=f"The model after step {step}",
            # Weights of another number of files than the ones before would stay beside them.
            delete_patterns=list(_WEIGHTS),
            ignore_patterns=[CARD] if _has_own_card(api, repository) else None,
        )
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
        raise ExportError(f"{repository} cannot be pushed to: {one_line(error)}") from error
    return str(commit.commit_url)


def _has_own_card(api: "HfApi", repository: str) -> bool:
    if not api.file_exists(repository, CARD):
        return False
    with tempfile.TemporaryDirectory(prefix="aworld-train-") as temporary:
        file = api.hf_hub_download(repository, CARD, local_dir=temporary)
        return CARD_MARK not in Path(file).read_text(encoding="utf-8", errors="replace")
