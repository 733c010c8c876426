"""GSM8K's JSONL files as tasks: one per calculator annotation, or one per problem.

An ``answer`` is a worked solution with annotations such as ``<<48/2=24>>`` and ends with ``#### 72`` (format:
https://github.com/openai/grade-school-math). The ground truth of an annotation is the computed value of its expression;
the stated result only serves to find wrong annotations.
"""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from aworld_train.dataset.expressions import ExpressionError, evaluate, format_number, normalize
from aworld_train.dataset.sources.expression_task import (
    BY_NUMBER,
    ScoringFields,
    expression_task,
    scoring_fields,
)
from aworld_train.dataset.sources.input_files import input_files, read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.values import NOT_UNICODE
from aworld_train.dataset.tasks import Dropped, Task, TaskKind
from aworld_train.errors import UsageError

MAX_RESULT = 10**15  # above it a calculator that uses doubles is no longer exact

_BRACKET = re.compile(r"<<|>>|\n")
_OPERATOR = re.compile(r"(?<=[0-9)])[-+*/]")
_DECIMAL = re.compile(r"[-+]?[0-9]*(?:\.([0-9]*))?")
_TASKS = ("annotations", "questions")


def gsm8k(options: SourceOptions) -> Iterator[Task | Dropped]:
    if options.tasks not in _TASKS:
        raise UsageError(f"--tasks {options.tasks!r} is not one of {', '.join(_TASKS)}.")
    read = annotation_tasks if options.tasks == "annotations" else question_tasks
    scoring = scoring_fields(options, "number" if options.tasks == "annotations" else "math")
    for path in input_files(options, (".jsonl",)):
        yield from read(path, scoring)


def annotation_tasks(path: Path, scoring: ScoringFields = BY_NUMBER) -> Iterator[Task | Dropped]:
    for line, record in _records(path):
        if isinstance(record, Dropped):
            yield record
            continue
        empty = True
        for text, closed in annotations(record["answer"]):
            empty = False
            try:
                if not closed:
                    raise ExpressionError("annotation without its other bracket")
                expression, answer = read_annotation(text)
            except ExpressionError as error:
                yield Dropped(path.name, line, text, error.message)
                continue
            yield expression_task("gsm8k_annotations", expression, answer, scoring, path.name, line)
        if empty:
            yield Dropped(path.name, line, record["answer"], "no annotation in the row")


def question_tasks(path: Path, scoring: ScoringFields = BY_NUMBER) -> Iterator[Task | Dropped]:
    for line, record in _records(path):
        if isinstance(record, Dropped):
            yield record
            continue
        _, separator, final = record["answer"].rpartition("####")
        try:
            if not separator:
                raise ExpressionError("no final answer")
            answer = _answer(_final_number(final))
        except ExpressionError as error:
            yield Dropped(path.name, line, record["answer"], error.message)
            continue
        question = record["question"].strip()
        yield Task(
            data_source="gsm8k",
            ability="math",
            kind=TaskKind.question,
            subject=question,
            message=question,
            answer=answer,
            file=path.name,
            line=line,
            **scoring,
        )


def annotations(text: str) -> Iterator[tuple[str, bool]]:
    """The text inside each ``<<...>>``, to the next bracket or line end if one is missing, and whether none is."""
    opened, last = False, 0
    for match in _BRACKET.finditer(text + "\n"):
        inside, bracket = text[last : match.start()], match.group()
        if opened or bracket == ">>":
            yield inside, opened and bracket == ">>"
        opened, last = bracket == "<<", match.end()


def read_annotation(text: str) -> tuple[str, str]:
    """The normalised expression of an annotation such as ``48/2=24``, and its answer."""
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
    """Whether ``stated`` is ``value`` rounded to its last written digit, or, where it has decimals, truncated there.

    ``unit`` is the place value of that digit (0.01 for 2.50); 0 where it must be exact.
    """
    error = abs(value - stated)
    if 2 * error < unit or error == 0:
        return True
    away_from_zero = abs(stated) > abs(value)
    return 2 * error == unit if away_from_zero else unit < 1 and error < unit


def _last_place(stated: str) -> Fraction:
    digits = re.sub(r"[\s$,]", "", stated)
    percent = digits.endswith("%")
    plain = _DECIMAL.fullmatch(digits.removesuffix("%"))
    if plain is None:
        return Fraction(0)
    return Fraction(1, 10 ** (len(plain[1] or "") + (2 if percent else 0)))


def _final_number(text: str) -> Fraction:
    """The final answer; a percent sign there is a unit."""
    try:
        number = normalize(text.strip().removesuffix("%"))
    except ExpressionError:
        number = ""
    if not number or _OPERATOR.search(number):
        raise ExpressionError("final answer is not a number")
    return evaluate(number)


def _answer(value: Fraction) -> str:
    if abs(value) >= MAX_RESULT:
        raise ExpressionError("result too large")
    return format_number(value)


def _records(path: Path) -> Iterator[tuple[int, dict[str, str] | Dropped]]:
    for line, raw in read_lines(path):
        yield line, _parse_record(path.name, line, raw)


def _parse_record(file: str, line: int, raw: bytes | None) -> dict[str, str] | Dropped:
    if raw is None:
        return Dropped(file, line, "", "line is too long")
    reason = ""
    try:
        record = json.loads(raw)
        if not isinstance(record, dict) or not {"question", "answer"} <= record.keys():
            reason = "no question and answer in the row"
        elif not all(
            isinstance(record[field], str) and record[field].strip() for field in ("question", "answer")
        ):
            reason = "question or answer is not text"
        else:
            (record["question"] + record["answer"]).encode()  # a lone surrogate is legal JSON but no text
    except UnicodeError:
        reason = NOT_UNICODE
    except (ValueError, RecursionError):
        reason = "not JSON" if raw.strip() else "blank line"
    return Dropped(file, line, raw.decode("utf-8", errors="replace").strip(), reason) if reason else record
