"""Tasks on their way from a seed to a dataset, and the proposals that a model writes as JSON."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aworld_train.errors import UsageError
from aworld_train.evaluation.synthesis.prompts import CHANGES
from aworld_train.reward.extraction import extract

_MAX_CHARS = 4000
_ID_DIGITS = 12


@dataclass(frozen=True)
class Seed:
    """What tasks are made about: a text, or a file that the tools read."""

    text: str
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True)
class SynthesizedTask:
    """A task with the ``changes`` that made it harder; ``added`` is what the last one added, as question and answer."""

    id: str
    question: str
    answer: str
    attachments: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    added: tuple[str, str] = ("", "")

    def row(self, scorer: str, system: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "query": self.question,
            "answer": self.answer,
            "scorer": scorer,
            "system": system,
            "level": str(1 + len(self.changes)),
            "tags": list(self.changes),
            "attachments": list(self.attachments),
        }


def read_seeds(path: Path, tool_folder: str) -> list[Seed]:
    """The files of a folder, which tools find in ``tool_folder``, or the lines of a text file."""
    if path.is_dir():
        files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        paths = [f"{tool_folder.rstrip('/')}/{name}" for name in files]
        seeds = [Seed(f"the file {tool_path}", (tool_path,)) for tool_path in paths]
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"The seeds {path} cannot be read ({error}). Give a folder with documents, or a UTF-8 text file with a "
                "topic, an address or a short text on each line."
            ) from error
        seeds = [Seed(line.strip()) for line in dict.fromkeys(lines) if line.strip()]
    if not seeds:
        raise UsageError(f"{path} (--seeds) is empty: there is nothing to make tasks about.")
    return seeds


def proposal_id(seed: Seed, number: int) -> str:
    digest = hashlib.sha256(f"{seed.text}\n{number}".encode()).hexdigest()
    return f"synthesized-{digest[:_ID_DIGITS]}"


def change_for(task: SynthesizedTask, number: int) -> str:
    """The way in which a task is changed next: each equally often, and always the same for a task."""
    digest = hashlib.sha256(f"{task.id} {number}".encode()).digest()
    return list(CHANGES)[digest[0] % len(CHANGES)]


def read_proposal(text: str, id: str, attachments: Sequence[str]) -> SynthesizedTask | None:
    """The task that a model proposed; None if it wrote none in the form that it was asked for."""
    fields = _fields(text, ("question", "answer"))
    return SynthesizedTask(id, fields[0], fields[1], tuple(attachments)) if fields else None


def read_change(text: str, task: SynthesizedTask, change: str) -> SynthesizedTask | None:
    fields = _fields(text, ("question", "answer", "added_question", "added_answer"))
    if fields is None:
        return None
    question, answer, added_question, added_answer = fields
    return replace(
        task,
        question=question,
        answer=answer,
        changes=(*task.changes, change),
        added=(added_question, added_answer),
    )


def _fields(text: str, names: Sequence[str]) -> list[str] | None:
    try:
        proposal = json.loads(extract(text, "answer") or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(proposal, dict):
        return None
    values = list(_texts(proposal, names))
    return values if all(0 < len(value) <= _MAX_CHARS for value in values) else None


def _texts(proposal: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The fields as texts: a number is taken as it is written, and a list with commas between its entries."""
    for name in names:
        value = proposal.get(name)
        parts = value if isinstance(value, list) else [value]
        usable = all(isinstance(part, str | int | float) and not isinstance(part, bool) for part in parts)
        yield ", ".join(map(str, parts)).strip() if usable else ""
