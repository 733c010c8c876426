"""Units after a number, by pint: whether two are the same, and the factor between those of one kind.

What pint does not know, such as apples, is a unit of its own, by its spelling. It takes a quarter of a second to load,
so it is loaded for the first two units that are spelled differently.
"""

from fractions import Fraction
from functools import cache
from typing import Any

from aworld_train.reward.numbers import CURRENCIES, same_unit

_CODES = frozenset(CURRENCIES.values())


def conversion(unit: str, other: str) -> Fraction | None:
    """What a number of ``unit`` is multiplied by to be one of ``other``, or None; an empty unit is the other one."""
    names = _canonical(unit), _canonical(other)
    if not _CODES.isdisjoint(names):
        return Fraction(1) if same_unit(*names) else None
    if not all(names) or names[0] == names[1]:
        return Fraction(1)
    return _factor(unit, other)


def _canonical(unit: str) -> str:
    folded = unit.casefold()
    if unit in _CODES or folded in CURRENCIES:
        return CURRENCIES.get(folded, unit)
    return folded if len(folded) < 3 else folded.removesuffix("s")


@cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(non_int_type=Fraction)


def _factor(unit: str, other: str) -> Fraction | None:
    import pint

    try:
        one, another = (_registry().parse_units(name) for name in (unit, other))
        # A temperature has an offset as well, which is not a factor.
        factor = (2 * one).to(another).magnitude - (1 * one).to(another).magnitude
        return Fraction(factor) if factor == (1 * one).to(another).magnitude else None
    except (pint.PintError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError):
        return None
