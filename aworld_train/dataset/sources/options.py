"""The options of a source, each declared once: as a field of `SourceOptions` with the `UserOption` that sets it.

The options and help texts of ``dataset build``, the keys of a dataset recipe and the checks are derived from these
declarations. The table `SOURCES` lists which source uses which option.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from aworld_train.dataset.prompts.choices import check_template
from aworld_train.dataset.sources.encodings import UTF8, encoding_name
from aworld_train.errors import UsageError

INPUT = "What is read"
SCORING = "How it is asked and judged"


@dataclass(frozen=True)
class UserOption:
    """How users write a field of `SourceOptions`: ``key`` in a dataset recipe, below ``panel`` in ``--help``."""

    key: str
    panel: str
    metavar: str
    help: str
    short: str = ""
    convert: Callable[[Any], Any] = str

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"


def read_system_prompt(path: str | Path, *, may_be_empty: bool = False) -> str:
    return _read_text("system prompt", path, may_be_empty=may_be_empty)


def read_choices_prompt(path: str | Path) -> str:
    text = _read_text("choices prompt", path)
    check_template(text, str(path))
    return text


def _read_text(name: str, path: str | Path, *, may_be_empty: bool = False) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The {name} {path} cannot be read: {reason}.") from error
    if not (text or may_be_empty):
        raise UsageError(f"The {name} {path} is empty; leave it out for none.")
    return text


def read_max_rows(value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"--max-rows {value!r} is not a whole number.") from None


def _option(default: Any, key: str, panel: str, metavar: str, help: str, **more: Any) -> Any:
    metadata = {"option": UserOption(key, panel, metavar, help, **more)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class SourceOptions:
    """What a build asks of one source.

    ``columns`` are columns of the input by the field they give, where names differ. ``limit`` is the most tasks of the
    build, and so how many a source generates. ``workspace`` is where a source may write attachments that it makes,
    until the build ends. ``read``, ``attachments`` and ``unused_columns`` hold what the source has passed to `opened`,
    `attached` and `left_unused`.
    """

    files: tuple[str, ...] = _option(
        (),
        "file",
        INPUT,
        "F",
        "Input file, snapshot directory or name on the hub; repeatable.",
        short="-f",
        convert=tuple,
    )
    columns: Mapping[str, str] = _option(
        dict,
        "map",
        INPUT,
        "FIELD=COLUMN",
        "Column that has a field (id, query, answer, ...), where the names differ; repeatable.",
        convert=dict,
    )
    part: str | None = _option(None, "part", INPUT, "NAME", "Part of the input: gaia, hf (validation).")
    config: str | None = _option(None, "config", INPUT, "NAME", "Configuration of a dataset on the hub.")
    encoding: str = _option(
        UTF8, "encoding", INPUT, "NAME", "Encoding of text files, such as cp1252.", convert=encoding_name
    )
    levels: tuple[str, ...] = _option((), "level", INPUT, "L", "Levels to take; repeatable.", convert=tuple)
    tags: tuple[str, ...] = _option(
        (),
        "tag",
        INPUT,
        "T",
        "files: kinds of documents, ways to them and questions to make (csv, zip, total, ...); repeatable.",
        convert=tuple,
    )
    max_rows: int | None = _option(
        None, "max_rows", INPUT, "N", "files: most rows of a document's list (24).", convert=read_max_rows
    )
    scorer: str | None = _option(None, "scorer", SCORING, "NAME", "Scorer of every task.")
    answer_schema: str | None = _option(
        None, "answer_schema", SCORING, "NAME", "How every answer is taken out of what is said."
    )
    system: str | None = _option(
        None, "system_prompt", SCORING, "FILE", "System prompt of every task.", convert=read_system_prompt
    )
    choices_prompt: str | None = _option(
        None,
        "choices_prompt",
        SCORING,
        "FILE",
        "How a question with choices is put: a text with {question}, and a line with {label} and {choice}.",
        convert=read_choices_prompt,
    )
    attachments_at: str = _option(
        "/attachments", "attachments_at", SCORING, "PATH", "Where the tool environment has the attachments."
    )
    seed: int = 0
    tasks: str = _option(
        "annotations",
        "tasks",
        INPUT,
        "annotations|questions",
        "gsm8k: a task per calculator annotation, or per problem.",
    )
    limit: int | None = None
    workspace: Path | None = None
    read: list[Path] = field(default_factory=list, compare=False, repr=False)
    attachments: set[tuple[str, Path]] = field(default_factory=set, compare=False, repr=False)
    unused_columns: dict[str, list[str]] = field(default_factory=dict, compare=False, repr=False)

    def opened(self, path: str | Path) -> Path:
        """Note that a file is read, so that ``dataset.json`` has its hash; returns its path."""
        path = Path(path)
        if path not in self.read:
            self.read.append(path)
        return path

    def attached(self, tool_path: str, path: Path) -> None:
        self.attachments.add((tool_path, path))

    def left_unused(self, file: str, columns: Sequence[str]) -> None:
        if columns:
            known = self.unused_columns.setdefault(file, [])
            known += [column for column in columns if column not in known]


def user_options() -> Iterator[tuple[Field[Any], UserOption]]:
    for option_field in fields(SourceOptions):
        if option_field.metadata:
            yield option_field, option_field.metadata["option"]


def default_value(option_field: Field[Any]) -> Any:
    factory = option_field.default_factory
    return option_field.default if factory is MISSING else factory()


class OptionError(UsageError):
    def __init__(self, message: str, option_key: str) -> None:
        super().__init__(message)
        self.option_key = option_key


def make_options(values: Mapping[str, Any]) -> SourceOptions:
    converted = {}
    for option_field, option in user_options():
        if values.get(option.key) is not None:
            try:
                converted[option_field.name] = option.convert(values[option.key])
            except UsageError as error:
                raise OptionError(error.message, option.key) from error
    return SourceOptions(**converted)


def nondefault_flags(options: SourceOptions) -> list[str]:
    return [
        option.flag
        for option_field, option in user_options()
        if getattr(options, option_field.name) != default_value(option_field)
    ]
