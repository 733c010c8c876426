"""What a source is told, whichever it is: one set of options, of which each source uses some."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class SourceOptions:
    """What a build asks of one source.

    Attributes:
        files: Input files, directories, or the name of a dataset, as the user wrote them.
        columns: Columns of the input by the field they give (``query``: ``problem``), where names differ.
        part: Part of the input to read, by the input's own name for it (``validation``).
        config: Configuration of a hub dataset.
        levels: Levels to read; empty for all.
        scorer: Scorer of every task; None leaves it to the input and the source.
        answer_schema: Answer schema of every task; None leaves it to the input and the source.
        system: System prompt of every task, its text; None leaves it to the source.
        attachments_at: Directory inside the tool environment where attachments are found.
        seed: Seed of what a source makes up.
        tasks: What gsm8k asks for: ``annotations`` or ``questions``.
        limit: Most tasks that are wanted, so how many a source that makes them up yields; None for its default.
        read: The files that `opened` was told of.
        attachments: The files that `attached` was told of: the path that a task has for one, and where it is.
    """

    files: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    part: str | None = None
    config: str | None = None
    levels: tuple[str, ...] = ()
    scorer: str | None = None
    answer_schema: str | None = None
    system: str | None = None
    attachments_at: str = "/attachments"
    seed: int = 0
    tasks: str = "annotations"
    limit: int | None = None
    read: list[Path] = field(default_factory=list, compare=False, repr=False)
    attachments: set[tuple[str, Path]] = field(default_factory=set, compare=False, repr=False)

    def opened(self, path: str | Path) -> Path:
        """Say that a file is read, so that its hash is kept in ``dataset.json``; returns its path."""
        path = Path(path)
        if path not in self.read:
            self.read.append(path)
        return path

    def attached(self, place: str, path: Path) -> None:
        """Say that a task comes with a file, which it has at ``place``, so that the dataset comes with it too."""
        self.attachments.add((place, path))
