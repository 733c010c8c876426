"""Questions about one table, and about two that are joined: each has one answer, which is computed from the rows."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import NamedTuple

from aworld_train.dataset.made_files.tables import Table, Value

Rates = Mapping[str, int]
"""The fee of each group for one unit of a column."""

_LISTED = "List their names in alphabetical order, with commas between them."


class Question(NamedTuple):
    text: str
    answer: str


class _NumberColumn(NamedTuple):
    """The column that a question is about, with its numbers by row."""

    name: str
    unit: str
    numbers: list[Decimal]

    @classmethod
    def choose(cls, table: Table, rng: Random) -> "_NumberColumn":
        index = rng.randrange(len(table.topic.columns))
        chosen = table.topic.columns[index]
        return cls(chosen.name, chosen.unit, [Decimal(row[2 + index]) for row in table.rows])

    def of_groups(self, table: Table, groups: Sequence[Value]) -> dict[Decimal, Value]:
        """The numbers of the groups' rows, and the rows' names."""
        return {
            number: row[0] for number, row in zip(self.numbers, table.rows, strict=True) if row[1] in groups
        }


def value(table: Table, rng: Random) -> Question:
    column, row = _NumberColumn.choose(table, rng), rng.randrange(len(table.rows))
    return _with_unit(f"what is the {column.name} of {table.rows[row][0]}?", column.numbers[row], column.unit)


def place(table: Table, rng: Random) -> Question:
    row = rng.choice(table.rows)
    return Question(f"which {table.topic.group} does {row[0]} belong to?", str(row[1]))


def highest(table: Table, rng: Random) -> Question:
    column, group = _NumberColumn.choose(table, rng), rng.choice(table.groups)
    numbers = column.of_groups(table, [group])
    text = f"which {table.topic.thing} of the {table.topic.group} {group} has the highest {column.name}?"
    return Question(text, str(numbers[max(numbers)]))


def total(table: Table, rng: Random) -> Question:
    column, group = _NumberColumn.choose(table, rng), rng.choice(table.groups)
    text = f"what is the total {column.name} of all {table.topic.things} of the {table.topic.group} {group}?"
    return _with_unit(text, sum(column.of_groups(table, [group]), Decimal()), column.unit)


def difference(table: Table, rng: Random) -> Question:
    column = _NumberColumn.choose(table, rng)
    text = f"by how much do the highest and the lowest {column.name} differ?"
    return _with_unit(text, max(column.numbers) - min(column.numbers), column.unit)


def listing(table: Table, rng: Random) -> Question:
    column = _NumberColumn.choose(table, rng)
    return _above(
        f"which {table.topic.things} have a {column.name} of", table, column.numbers, column.unit, rng
    )


def fees(table: Table, rng: Random, rates: Rates) -> Question:
    column, groups = _NumberColumn.choose(table, rng), rng.sample(table.groups, 2)
    amount = sum(
        number * rates[str(row[1])]
        for number, row in zip(column.numbers, table.rows, strict=True)
        if row[1] in groups
    )
    text = f"what do all {table.topic.things} of {groups[0]} and {groups[1]} together pay"
    return _with_unit(f"{text}, {_if_paid(table, column)}?", Decimal(amount), "EUR")


def payers(table: Table, rng: Random, rates: Rates) -> Question:
    column = _NumberColumn.choose(table, rng)
    amounts = [number * rates[str(row[1])] for number, row in zip(column.numbers, table.rows, strict=True)]
    text = f"{_if_paid(table, column)}, which {table.topic.things} pay"
    return _above(text, table, amounts, "EUR", rng)


QUESTIONS: dict[str, Callable[[Table, Random], Question]] = {
    "value": value,
    "place": place,
    "highest": highest,
    "total": total,
    "difference": difference,
    "list": listing,
}
JOINS: dict[str, Callable[[Table, Random, Rates], Question]] = {"fees": fees, "payers": payers}


def _above(text: str, table: Table, numbers: Sequence[Decimal], unit: str, rng: Random) -> Question:
    """Which two, three or four rows are above a number that is between theirs and the others'."""
    bound = sorted(numbers, reverse=True)[rng.randint(2, min(4, len(numbers) - 1))]
    names = sorted(str(row[0]) for row, number in zip(table.rows, numbers, strict=True) if number > bound)
    return Question(
        f"{text} more than {' '.join(filter(None, (_plain(bound), unit)))}? {_LISTED}", ", ".join(names)
    )


def _with_unit(text: str, number: Decimal, unit: str) -> Question:
    if not unit:
        return Question(text, _plain(number))
    return Question(f"{text} Answer with the number and its unit, {unit}.", f"{_plain(number)} {unit}")


def _plain(number: Decimal) -> str:
    """The number without an exponent, and without zeros that say nothing."""
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


def _if_paid(table: Table, column: _NumberColumn) -> str:
    each = f"{column.unit or 'unit'} of {column.name}"
    return f"if each {table.topic.thing} pays the fee of its {table.topic.group} for every {each}"
