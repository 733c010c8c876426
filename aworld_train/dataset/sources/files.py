"""Tasks in GAIA's form over documents that are made for them, with known answers: nothing is read.

Task ``n`` of a seed is the same whatever else is asked for. Its ``file`` is the document that holds the answer, and its
tags are the kinds of documents on the way there and what is asked.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from random import Random

from aworld_train.dataset.made_files.drafts import FOLDER, LEVELS, TAGS, Drafting
from aworld_train.dataset.made_files.kinds import MAX_ROWS, MIN_ROWS, CannotMake
from aworld_train.dataset.prompts.gaia import gaia_prompts
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import DEFAULT_SCHEMA
from aworld_train.dataset.tasks import Dropped, Task, TaskKind
from aworld_train.errors import UsageError, suggestion

DEFAULT_TASKS = 1000

_NAME_DIGITS = 10
_MAX_DROPPED_PER_TASK = 10


def files(options: SourceOptions) -> Iterator[Task | Dropped]:
    """Tasks until ``options.limit`` (1000) are made; those that this machine cannot make are dropped."""
    _check_known("--level", options.levels, LEVELS)
    _check_known("--tag", options.tags, [tag for tags in TAGS for tag in tags])
    # Where none of a sort is asked for, such as of kinds of documents, all of it are.
    tags = frozenset(tag for sort in TAGS for tag in (set(sort) & set(options.tags) or sort))
    max_rows = MAX_ROWS if options.max_rows is None else options.max_rows
    if max_rows < MIN_ROWS:
        raise UsageError(f"--max-rows {max_rows}: lists have {MIN_ROWS} rows at least.")
    schema = options.answer_schema or DEFAULT_SCHEMA
    system, compose = gaia_prompts(schema)
    at = options.attachments_at.rstrip("/")
    max_tasks = DEFAULT_TASKS if options.limit is None else options.limit
    made = dropped = 0
    for number in count():
        # What is missing may be all that was asked for.
        if made == max_tasks or dropped > _MAX_DROPPED_PER_TASK * (made + 1):
            return
        level = tuple(LEVELS)[number % len(LEVELS)]
        if options.levels and level not in options.levels:
            continue
        identity = f"files-{options.seed}-{number}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:_NAME_DIGITS]
        try:
            draft = LEVELS[level](Drafting(Random(identity), name, at, tags, max_rows))
        except CannotMake as reason:
            dropped += 1
            yield Dropped("", number, identity, str(reason))
            continue
        made += 1
        paths = [f"{at}/{path}" for path in draft.files]
        if options.workspace is not None:
            for tool_path, (path, content) in zip(paths, draft.files.items(), strict=True):
                file = options.workspace / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                options.attached(tool_path, file)
        yield Task(
            id=identity,
            data_source="files",
            ability="general assistance",
            kind=TaskKind.question,
            subject=draft.question,
            message=compose(draft.question, [] if FOLDER in draft.tags else paths),
            answer=draft.answer,
            scorer=options.scorer or "gaia",
            answer_schema=schema,
            system=options.system or system,
            level=level,
            tags=tuple(dict.fromkeys(draft.tags)),
            attachments=tuple(paths),
            file=draft.holder,
        )


def _check_known(flag: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{flag} {name}: there are {', '.join(known)}.{suggestion(name, known)}")
