"""How many of the evaluated tasks a checkpoint was trained on: the same ones, or nearly the same.

A run's folder names its training files and their hashes. Their rows are read one after the other and compared with an
index of the evaluated tasks, as `dataset build --against` compares them (see `dataset.contamination`), so memory grows
with the evaluated tasks alone; time is limited, and what was not compared in time is said. A training row counts for
the evaluated task that it is closest to.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aworld_train.atomic import sha256_of
from aworld_train.dataset.contamination import EvaluationQuestions
from aworld_train.dataset.exclusion import Subject, subjects
from aworld_train.dataset.expressions import ExpressionError, normalize
from aworld_train.dataset.matches import MatchKind
from aworld_train.dataset.shingles import shingles
from aworld_train.dataset.tasks import TaskKind, question_key
from aworld_train.errors import AworldTrainError, RecipeError
from aworld_train.recipe.interpolation import resolved
from aworld_train.training.recorded_run import RecordedRun, open_run
from aworld_train.training.run_files import MANIFEST, RECIPE

EXACT = "exact"
"""The kind of a match of tasks that are the same, but for case and spacing; the others are those of `MatchKind`."""
_KINDS = (EXACT, *(kind.value for kind in MatchKind))
_MAX_EXAMPLES = 10
_MAX_QUOTED = 160  # characters of a question in an example
_MAX_LEVELS = 6  # folders between a checkpoint's files and the folder of its run


@dataclass(frozen=True)
class ContaminatedTask:
    """An evaluated task that is in a ``row`` of a training ``file``; ``kind`` is ``exact`` or that of a `MatchKind`."""

    index: int
    question: str
    kind: str
    file: str
    row: int


@dataclass(frozen=True)
class Contamination:
    """How many of the ``n`` evaluated tasks the training data has: exactly, nearly, or with other figures.

    ``near`` counts those that differ in a word or a comma, or are a part of a longer text. ``changed`` names files
    whose content is no longer what the run was trained on, ``missing`` those that could not be compared, with the
    reason. ``is_complete`` is False if the time was not enough for all rows.
    """

    n: int
    exact: int
    near: int
    figure_variants: int
    examples: tuple[ContaminatedTask, ...]
    files: tuple[str, ...]
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    rows: int
    is_complete: bool


def find_contamination(
    evaluated: Sequence[str | Path], checkpoint: str | Path, *, max_seconds: float = 120.0
) -> Contamination | None:
    """Compare evaluated tasks with the training data of a run or of a checkpoint inside one.

    None where the checkpoint is in no folder of a run, or the run names no training files. Hashing these does not count
    towards ``max_seconds``.
    """
    run = _run_of(Path(checkpoint).expanduser())
    names = _training_files(run) if run else []
    if run is None or not names:
        return None
    tasks = _EvaluatedTasks([Path(file).expanduser() for file in evaluated])
    compared, changed, missing = [], [], []
    deadline: float | None = None
    is_complete = True
    for name in names:
        try:
            file, sha256 = _found(name, run)
            is_changed = sha256 not in (None, sha256_of(file))
            deadline = deadline or time.monotonic() + max_seconds
            is_complete &= tasks.compare(name, file, deadline)
        except (AworldTrainError, OSError) as error:
            missing.append(f"{name}: {error.message if isinstance(error, AworldTrainError) else error}")
            continue
        compared.append(name)
        changed += [name] if is_changed else []
    counts = tasks.counts()
    return Contamination(
        n=tasks.n,
        exact=counts[EXACT],
        near=counts[MatchKind.near_duplicate.value] + counts[MatchKind.contained.value],
        figure_variants=counts[MatchKind.figure_variant.value],
        examples=tasks.examples(),
        files=tuple(compared),
        changed=tuple(changed),
        missing=tuple(missing),
        rows=tasks.rows,
        is_complete=is_complete,
    )


class _EvaluatedTasks:
    """The evaluated tasks, and of each the closest match in training data so far.

    Tasks with the same text are one entry, and all of them are counted.
    """

    def __init__(self, files: Sequence[Path]):
        self.n = self.rows = 0
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._indices: list[list[int]] = []
        self._closest: dict[int, ContaminatedTask] = {}
        self._questions = EvaluationQuestions(self._read(file) for file in files)

    def compare(self, name: str, file: Path, deadline: float) -> bool:
        """Compare all rows of a training file; returns whether the time was enough for it."""
        for subject in subjects([file]):
            if time.monotonic() > deadline:
                return False
            self.rows += 1
            if (match := self._match(subject)) is not None:
                self._note(*match, name, subject.row)
        return True

    def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(_KINDS, 0)
        for number, example in self._closest.items():
            counts[example.kind] += len(self._indices[number])
        return counts

    def examples(self) -> tuple[ContaminatedTask, ...]:
        ordered = sorted(self._closest.values(), key=lambda each: (_KINDS.index(each.kind), each.index))
        return tuple(ordered[:_MAX_EXAMPLES])

    def _read(self, file: Path) -> Iterator[tuple[str, str]]:
        """Remember the tasks of a file; yields its questions, each once, with the number of its entry."""
        for subject in subjects([file]):
            index, self.n = self.n, self.n + 1
            number = self._numbers.setdefault(_key(subject), len(self._texts))
            if number < len(self._texts):
                self._indices[number].append(index)
                continue
            self._texts.append(subject.text[:_MAX_QUOTED])
            self._indices.append([index])
            if subject.kind is TaskKind.question:
                yield subject.text, str(number)

    def _match(self, subject: Subject) -> tuple[int, str] | None:
        if (number := self._numbers.get(_key(subject))) is not None:
            return number, EXACT
        if subject.kind is not TaskKind.question:
            return None
        match = self._questions.match(shingles(subject.text))
        return (int(match.name), match.kind.value) if match else None

    def _note(self, number: int, kind: str, file: str, row: int) -> None:
        known = self._closest.get(number)
        if known is None or _KINDS.index(kind) < _KINDS.index(known.kind):
            task = ContaminatedTask(self._indices[number][0], self._texts[number], kind, file, row)
            self._closest[number] = task


def _key(subject: Subject) -> str:
    if subject.kind is TaskKind.question:
        return f"question {question_key(subject.text)}"
    try:
        return f"expression {normalize(subject.text)}"
    except ExpressionError:  # of another program
        return f"expression {subject.text}"


def _run_of(path: Path) -> RecordedRun | None:
    path = path.resolve()
    for folder in (path, *path.parents)[:_MAX_LEVELS]:
        if (folder / RECIPE).is_file() and (folder / MANIFEST).is_file():
            return open_run(str(folder), folder.parent)
    return None


def _training_files(run: RecordedRun) -> list[str]:
    section = run.recipe.get("dataset")
    train = section.get("train") if isinstance(section, Mapping) else None
    files = train if isinstance(train, list) else [train]
    return [file for file in files if isinstance(file, str) and file]


def _found(name: str, run: RecordedRun) -> tuple[Path, str | None]:
    """A training file, and the hash that it had; None where the run does not say."""
    text = resolved(name)
    if not isinstance(text, str):
        raise RecipeError(f"{name} is not the name of a file")
    path = Path(text).expanduser()
    hashes = run.manifest.get("data_sha256") or {}
    # A relative path started from the folder that runs/<name> was made in.
    for candidate in (path, run.path.parent.parent / path, run.path.parent / path):
        if candidate.is_file():
            return candidate, hashes.get(name, hashes.get(str(path)))
    raise FileNotFoundError("it is not there")
