"""GSM8K's JSONL files as tasks: one per calculator annotation, or one per problem.

A row holds a ``question`` and an ``answer``; the answer is a worked solution with annotations such as
``<<48/2=24>>`` and ends with ``#### 72`` (format: https://github.com/openai/grade-school-math). The ground
truth is always what the expression comes to; the result that the row states only serves to find annotations
that are wrong.
"""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from aworld_train.dataset.expressions import ExpressionError, evaluate, format_number, normalize
from aworld_train.dataset.sources.expression_task import BY_NUMBER, ScoringFields, expression_task, judged_as
from aworld_train.dataset.sources.input_files import input_files, read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.values import NOT_UNICODE
from aworld_train.dataset.tasks import Dropped, Task, TaskKind
from aworld_train.errors import UsageError

LARGEST = 10**15  # beyond it a calculator that works in doubles is no longer exact

_MARK = re.compile(r"<<|>>|\n")
_OPERATOR = re.compile(r"(?<=[0-9)])[-+*/]")
_PLAIN = re.compile(r"[-+]?[0-9]*(?:\.([0-9]*))?")
_TASKS = ("annotations", "questions")


def gsm8k(options: SourceOptions) -> Iterator[Task | Dropped]:
    """The tasks of GSM8K's JSONL files, as ``options.tasks`` asks: ``annotations`` or ``questions``.

    Raises:
        UsageError: ``options.tasks`` is neither.
        DatasetError: A file is not there or cannot be read.
    """
    if options.tasks not in _TASKS:
        raise UsageError(f"--tasks {options.tasks!r} is not one of {', '.join(_TASKS)}.")
    read = annotation_tasks if options.tasks == "annotations" else question_tasks
    judging = judged_as(options, "number" if options.tasks == "annotations" else "math")
    for path in input_files(options, (".jsonl",)):
        yield from read(path, judging)


def annotation_tasks(path: Path, judging: ScoringFields = BY_NUMBER) -> Iterator[Task | Dropped]:
    """One item per annotation of the file, and one per row that has none.

    Raises:
        DatasetError: The file cannot be read.
    """
    for line, row in _rows(path):
        if isinstance(row, Dropped):
            yield row
            continue
        empty = True
        for text, closed in annotations(row["answer"]):
            empty = False
            try:
                if not closed:
                    raise ExpressionError("annotation without its other bracket")
                expression, answer = read_annotation(text)
            except ExpressionError as error:
                yield Dropped(path.name, line, text, error.message)
                continue
            yield expression_task("gsm8k_annotations", expression, answer, judging, path.name, line)
        if empty:
            yield Dropped(path.name, line, row["answer"], "no annotation in the row")


def question_tasks(path: Path, judging: ScoringFields = BY_NUMBER) -> Iterator[Task | Dropped]:
    """One item per row of the file: the problem and its final answer.

    Raises:
        DatasetError: The file cannot be read.
    """
    for line, row in _rows(path):
        if isinstance(row, Dropped):
            yield row
            continue
        _, mark, final = row["answer"].rpartition("####")
        try:
            if not mark:
                raise ExpressionError("no final answer")
            answer = _answer(_final_number(final))
        except ExpressionError as error:
            yield Dropped(path.name, line, row["answer"], error.message)
            continue
        question = row["question"].strip()
        yield Task(
            data_source="gsm8k",
            ability="math",
            kind=TaskKind.question,
            subject=question,
            message=question,
            answer=answer,
            file=path.name,
            line=line,
            **judging,
        )


def annotations(text: str) -> Iterator[tuple[str, bool]]:
    """The inside of each ``<<...>>`` in order, and whether both its brackets are there, in one line.

    A bracket without its partner comes out with the text between it and the next bracket or line end.
    """
    opened, last = False, 0
    for mark in _MARK.finditer(text + "\n"):
        inside, bracket = text[last : mark.start()], mark.group()
        if opened or bracket == ">>":
            yield inside, opened and bracket == ">>"
        opened, last = bracket == "<<", mark.end()


def read_annotation(text: str) -> tuple[str, str]:
    """The normalised expression of an annotation such as ``48/2=24``, and the answer it comes to.

    Raises:
        ExpressionError: It does not become a task, with the reason.
    """
    left, equals, stated = text.partition("=")
    if not equals:
        raise ExpressionError("no equals sign")
    if "=" in stated:
        raise ExpressionError("more than one equals sign")
    expression = normalize(left)
    if not _OPERATOR.search(expression):
        raise ExpressionError("nothing to compute")
    value = evaluate(expression)
    if not stated.strip():
        raise ExpressionError("no stated result")
    try:
        claimed = evaluate(stated)
    except ExpressionError:
        raise ExpressionError("stated result is not a number") from None
    if not agrees(value, claimed, _last_place(stated)):
        raise ExpressionError("result disagrees")
    return expression, _answer(value)


def agrees(value: Fraction, stated: Fraction, unit: Fraction) -> bool:
    """Whether ``stated`` is ``value`` rounded to its last written place, or, where decimals are written, cut
    there.

    Args:
        value: What the expression comes to.
        stated: What the annotation says.
        unit: One in the last place that ``stated`` is written with; 0 where it must be exact.
    """
    error = abs(value - stated)
    if 2 * error < unit or error == 0:
        return True
    away_from_zero = abs(stated) > abs(value)
    return 2 * error == unit if away_from_zero else unit < 1 and error < unit


def _last_place(stated: str) -> Fraction:
    digits = re.sub(r"[\s$,]", "", stated)
    percent = digits.endswith("%")
    plain = _PLAIN.fullmatch(digits.removesuffix("%"))
    if plain is None:
        return Fraction(0)
    return Fraction(1, 10 ** (len(plain[1] or "") + (2 if percent else 0)))


def _final_number(text: str) -> Fraction:
    """The final answer, a single number: ``1,080``, ``-3``, ``$2.50``; a percent sign there is a unit."""
    try:
        number = normalize(text.strip().removesuffix("%"))
    except ExpressionError:
        number = ""
    if not number or _OPERATOR.search(number):
        raise ExpressionError("final answer is not a number")
    return evaluate(number)


def _answer(value: Fraction) -> str:
    if abs(value) >= LARGEST:
        raise ExpressionError("result too large")
    return format_number(value)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str] | Dropped]]:
    for line, raw in read_lines(path):
        yield (
            line,
            Dropped(path.name, line, "", "line is too long") if raw is None else _row(path.name, line, raw),
        )


def _row(file: str, line: int, raw: bytes) -> dict[str, str] | Dropped:
    reason = ""
    try:
        row = json.loads(raw)
        if not isinstance(row, dict) or not {"question", "answer"} <= row.keys():
            reason = "no question and answer in the row"
        elif not all(isinstance(row[field], str) and row[field].strip() for field in ("question", "answer")):
            reason = "question or answer is not text"
        else:
            (row["question"] + row["answer"]).encode()  # a lone surrogate is legal JSON but no text
    except UnicodeError:
        reason = NOT_UNICODE
    except (ValueError, RecursionError):
        reason = "not JSON" if raw.strip() else "blank line"
    return Dropped(file, line, raw.decode("utf-8", errors="replace").strip(), reason) if reason else row
