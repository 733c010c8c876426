"""Arithmetic tasks without any file: a seeded stream of expressions that look like GSM8K's annotations.

The weights are those of GSM8K's distinct annotations: three of four have one operator, a quarter of the numbers have
one digit and two of five have two, one in fifteen is a decimal, and most divisions leave no remainder.
"""

import random
from collections.abc import Iterator
from fractions import Fraction

from aworld_train.dataset.expressions import evaluate, format_number
from aworld_train.dataset.sources.expression_task import (
    BY_NUMBER,
    ScoringFields,
    expression_task,
    scoring_fields,
)
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Task
from aworld_train.errors import DatasetError

DEFAULT_TASKS = 4000
MAX_RESULT = 10**7
MAX_DECIMALS = 4

_OPERATOR_COUNTS, _COUNT_WEIGHTS = (1, 2, 3), (73, 23, 4)
_OPERATORS, _OPERATOR_WEIGHTS = "*+-/", (33, 29, 25, 13)
_DIGITS, _DIGIT_WEIGHTS = (1, 2, 3, 4), (25, 44, 23, 8)
_DECIMAL_SHARE = 0.07
_UNEVEN_SHARE = 0.1
_PARENTHESES_SHARE = 0.3

# Draws per requested task after which the limit is reported as too high.
_DRAWS_PER_TASK = 50


def arithmetic(options: SourceOptions) -> Iterator[Task]:
    """Tasks until ``options.limit`` (4000) distinct ones are drawn; repeats are yielded too."""
    count = DEFAULT_TASKS if options.limit is None else options.limit
    expressions: set[str] = set()
    for draws, task in enumerate(arithmetic_tasks(options.seed, scoring_fields(options, "number")), 1):
        expressions.add(task.subject)
        yield task
        if len(expressions) == count:
            return
        if draws >= count * _DRAWS_PER_TASK:
            raise DatasetError(
                f"Only {len(expressions)} distinct tasks were found for --limit {count} in {draws} draws. "
                "Ask for fewer."
            )


def arithmetic_tasks(seed: int, scoring: ScoringFields = BY_NUMBER) -> Iterator[Task]:
    """An endless stream of tasks, the same for the same seed; a task can come twice."""
    rng = random.Random(seed)
    while True:
        expression = _expression(rng)
        value = evaluate(expression)
        # In GSM8K only one result in a thousand is negative, and a plain calculator shows no long decimals.
        if 0 <= value < MAX_RESULT and (value * 10**MAX_DECIMALS).denominator == 1:
            yield expression_task("arithmetic", expression, format_number(value), scoring)


def _expression(rng: random.Random) -> str:
    count = rng.choices(_OPERATOR_COUNTS, _COUNT_WEIGHTS)[0]
    text, term, is_sum = "", Fraction(0), False
    for operator in rng.choices(_OPERATORS, _OPERATOR_WEIGHTS, k=count):
        if not text:
            text, term = _first_number(rng, operator)
        if operator in "+-":
            text, term = text + operator + (right := _number(rng)), Fraction(right)
            is_sum = True
            continue
        if is_sum and rng.random() < _PARENTHESES_SHARE:
            text, is_sum = f"({text})", False
            term = evaluate(text)
        right = _number(rng, max_digits=2) if operator == "*" else _divisor(rng, term)
        text += operator + right
        term = term * Fraction(right) if operator == "*" else term / Fraction(right)
    return text


def _first_number(rng: random.Random, operator: str) -> tuple[str, Fraction]:
    number = _number(rng)
    if operator == "/" and "." not in number:
        number = str(int(number) * rng.randint(2, 12))
    return number, Fraction(number)


def _divisor(rng: random.Random, dividend: Fraction) -> str:
    even = [n for n in range(2, 100) if (dividend / n).denominator == 1]
    if even and rng.random() >= _UNEVEN_SHARE:
        return str(rng.choice(even))
    return str(rng.choice((2, 4, 5, 8, 10, 100)))


def _number(rng: random.Random, max_digits: int = 4) -> str:
    digits = min(max_digits, rng.choices(_DIGITS, _DIGIT_WEIGHTS)[0])
    if rng.random() < _DECIMAL_SHARE:
        return format_number(
            Fraction(rng.randint(1, 10 ** (min(digits, 2) + 2) - 1), 10 ** rng.randint(1, 2))
        )
    return str(rng.randint(2 if digits == 1 else 10 ** (digits - 1), 10**digits - 1))
