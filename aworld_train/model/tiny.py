"""A model that solves about half of its tasks: the one that comes with the package, or one that is made.

That of `SHIPPED_SEED` was made by this code (`model tiny --anew`) and is copied. A model that is made is accepted by
its measurements on validation tasks, never by how long it was trained; an attempt that misses the gate is repeated with
another seed.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aworld_train import __version__
from aworld_train.atomic import check_writable
from aworld_train.errors import TRAINING_PROFILE, DependencyMissing, ModelError, UsageError
from aworld_train.model import portable, storage, tasks, tokenizer
from aworld_train.model.build_progress import BuildStatus, OutOfTime, TinyBuildProgress
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

if TYPE_CHECKING:
    from aworld_train.model.attempt import AcceptedModel

SHIPPED = Path(__file__).parent / "shipped"
SHIPPED_SEED = 0
ATTEMPTS = 4
MAX_CPU_SECONDS = 600.0
"""Processor time, so that a build on a busy machine is slow but succeeds; several times what it takes."""


@dataclass(frozen=True)
class TinyReport:
    """A tiny model and what was measured on it, greedily or, in ``sampled_*`` and ``mixed_groups``, at temperature 1.

    The tokens are those of the episode of ``What is 48/2?`` with one tool call. ``fingerprint`` is a hash of the seed,
    the input files, the code and the libraries.
    """

    out: Path
    seed: int
    accuracy: float
    tool_use: float
    mixed_groups: float
    sampled_accuracy: float
    sampled_tool_use: float
    val_tasks: int
    parameters: int
    vocab_size: int
    prompt_tokens: int
    episode_tokens: int
    attempts: int
    seconds: float
    cpu_seconds: float
    fingerprint: str
    history: list[dict[str, Any]] = field(repr=False)
    reused: bool = False
    shipped: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "out": str(self.out)}


def build(
    out: str | Path,
    *,
    seed: int = 0,
    train: str | Path | None = None,
    val: str | Path | None = None,
    progress: Callable[[BuildStatus], None] | None = None,
    max_cpu_seconds: float = MAX_CPU_SECONDS,
    anew: bool = False,
) -> TinyReport:
    """Put a tiny model at ``out``, a directory that loads like any Hugging Face model, without a download.

    An earlier tiny model there is kept if it has the same seed and inputs, else replaced; anything else is refused.
    With the default seed and no files it is a copy of the one in the package, unless ``anew``. The model learns the
    expressions of ``train`` together with generated ones, and never those of ``val``, on which the gate is measured.
    """
    out, train, val = Path(out), Path(train) if train else None, Path(val) if val else None
    check_writable(out.parent, "the model (--out)")
    if not anew and seed == SHIPPED_SEED and train is None and val is None:
        return _copy_shipped(out)
    _require_torch()
    for file in filter(None, (train, val)):
        if not file.is_file():
            raise UsageError(f"{file} is not a file; name a parquet file of tasks.")
    current_fingerprint = fingerprint(seed, train, val)
    marker = storage.read_marker(out)
    if marker and marker["complete"] and marker["report"]["fingerprint"] == current_fingerprint and not anew:
        return TinyReport(**marker["report"], out=out, reused=True)
    record = TinyBuildProgress(progress, max_cpu_seconds)
    train_tasks, val_tasks = tasks.gather(train, val, seed)
    with _one_thread():
        accepted = _make(train_tasks, val_tasks, seed, record)
    report = _report(accepted, out, seed, len(val_tasks), record, current_fingerprint)
    saved = {
        name: value for name, value in report.to_json().items() if name not in ("out", "reused", "shipped")
    }
    with storage.replacing(out) as folder, _no_progress_bars():
        accepted.model.save_pretrained(folder)
        tokenizer.save(accepted.encoder.tokenizer, folder)
        portable.make_portable(folder, None)
        storage.write_marker(folder, {"version": __version__, "report": saved})
    return report


def _copy_shipped(out: Path) -> TinyReport:
    shipped, present = storage.read_marker(SHIPPED), storage.read_marker(out)
    assert shipped is not None
    reused = present is not None and present["complete"] and present["report"] == shipped["report"]
    if not reused:
        with storage.replacing(out) as folder:
            shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    return TinyReport(**shipped["report"], out=out, reused=reused, shipped=True)


def fingerprint(seed: int, train: Path | None = None, val: Path | None = None) -> str:
    package = Path(__file__).parent
    code = [*package.glob("*.py"), *package.glob("*.jinja"), *package.parent.joinpath("dataset").glob("*.py")]
    files = [path for path in (train, val) if path]
    libraries = [f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers")]
    facts = [str(seed), str(train is None), str(val is None), __version__, *libraries]
    return storage.digest([*sorted(code), *files], *facts)


def _make(
    train_tasks: Sequence[ArithmeticTask],
    val_tasks: Sequence[ArithmeticTask],
    seed: int,
    record: TinyBuildProgress,
) -> "AcceptedModel":
    from aworld_train.model import attempt

    encoder = TranscriptEncoder(tokenizer.build())
    try:
        for number in range(1, ATTEMPTS + 1):
            record.attempt = number
            model_seed = random.Random(f"{seed}/{number}").getrandbits(32)
            model = attempt.new_model(encoder.tokenizer, model_seed)
            accepted = attempt.run(
                attempt.TinyModelAttempt(model, encoder, train_tasks, val_tasks, model_seed, record)
            )
            if accepted:
                return accepted
    except OutOfTime:
        pass
    last = record.history[-1] if record.history else {"nothing": "yet"}
    raise ModelError(
        f"No model met the gate ({attempt.GATE}) in {record.attempt} attempts and {record.cpu_seconds:.0f} s of "
        f"processor time. Last measured: {', '.join(f'{name} {value}' for name, value in last.items())}. "
        "Try another --seed, or give more time with --max-cpu-seconds."
    )


def _report(
    accepted: "AcceptedModel",
    out: Path,
    seed: int,
    val_tasks: int,
    record: TinyBuildProgress,
    current_fingerprint: str,
) -> TinyReport:
    episode = accepted.encoder.encode(ArithmeticTask("48/2", "24"), with_tool=True)
    return TinyReport(
        out=out,
        seed=seed,
        accuracy=accepted.greedy.accuracy,
        tool_use=accepted.greedy.tool_use,
        mixed_groups=accepted.sampled.mixed_groups,
        sampled_accuracy=accepted.sampled.accuracy,
        sampled_tool_use=accepted.sampled.tool_use,
        val_tasks=val_tasks,
        parameters=accepted.model.num_parameters(),
        vocab_size=len(accepted.encoder.tokenizer),
        prompt_tokens=episode.mask.index(1),
        episode_tokens=len(episode.ids),
        attempts=record.attempt,
        seconds=record.seconds,
        cpu_seconds=record.cpu_seconds,
        fingerprint=current_fingerprint,
        history=record.history,
    )


def _require_torch() -> None:
    missing = [name for name in ("torch", "transformers", "tokenizers") if find_spec(name) is None]
    if missing:
        raise DependencyMissing(f"{missing[0]} is not installed: {TRAINING_PROFILE}.")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: a second core helps little, and the result does not depend on the number of cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
