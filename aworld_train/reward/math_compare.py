"""Whether two answers that math-verify has read are equal: exactly where both are exact, whatever their size.

Numbers are equal if their difference is 0 as a fraction, by simplification, or to thousands of digits; a decimal number
is equal to what differs from it by at most a millionth. Expressions in variables are compared at several points.
"""

from collections.abc import Sequence
from typing import Any

import sympy
from latex2sympy2_extended import is_expr_of_only_symbols
from latex2sympy2_extended.logic import And
from sympy import (
    Complement,
    Eq,
    Expr,
    FiniteSet,
    Float,
    Intersection,
    Interval,
    MatrixBase,
    MatrixExpr,
    Rational,
    Set,
    Symbol,
    Tuple,
    Union,
    nan,
    zoo,
)
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean
from sympy.sets.sets import EmptySet

TOLERANCE = Rational(1, 10**6)
_DIGITS, _MAX_DIGITS = 100, 3000
_POINTS = ((13, 1), (17, 1), (-19, 1), (23, -1))
"""Points at which expressions are compared: a numerator, and the sign of every second coordinate."""
_NOT_EVALUATED = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)
_ORDERED = (Tuple, Interval, MatrixBase)
_NOT_VALUES = (Set, Tuple, Boolean, MatrixBase)
_COORDINATES = {"x", "y", "z"}
_STRICT = (sympy.StrictLessThan, sympy.StrictGreaterThan, sympy.Ne)
_ORDERS = {sympy.StrictLessThan: 1, sympy.LessThan: 1, sympy.StrictGreaterThan: -1, sympy.GreaterThan: -1}


def equal(expected: Any, actual: Any) -> bool:
    if _is_relation(actual, Eq) and not _is_relation(expected, Eq):
        actual = _ends(actual).rhs
    elif _is_assignment(expected) and not _is_relation(actual, Eq):
        expected = _ends(expected).rhs
    expected, actual = (each.doit() if isinstance(each, MatrixExpr) else each for each in (expected, actual))
    if expected == actual:
        return expected not in (nan, zoo)
    if _is_relation(expected) and _is_relation(actual):
        return _equal_relations(expected, actual)
    regions = region(expected), region(actual)
    if regions[0] is not None and regions[1] is not None:
        return _equal_regions(*regions)
    if isinstance(expected, MatrixBase) and isinstance(actual, MatrixBase):
        return expected.shape == actual.shape and all(map(equal, expected, actual))
    elements, others = _elements(expected), _elements(actual)
    if elements is not None and others is not None:
        ordered = any(isinstance(each, _ORDERED) or _coordinates(each) for each in (expected, actual))
        return (_same_list if ordered else _same_elements)(elements, others)
    if any(isinstance(each, _NOT_VALUES) for each in (expected, actual)):
        return False
    return isinstance(expected, Expr) and isinstance(actual, Expr) and _equal_values(expected, actual)


def region(value: Any) -> Set | None:
    """The real numbers that an interval, a union or an inequality in one variable names; None for anything else."""
    if _is_assignment(value) and isinstance(value, Eq):
        value = value.rhs
    if isinstance(value, Union | Complement | Intersection):
        parts = [region(part) or part for part in value.args]
        return value.func(*parts) if all(isinstance(part, Set) for part in parts) else None
    if isinstance(value, Interval | EmptySet):
        return value
    if not _is_relation(value) or _is_relation(value, Eq):
        return None
    variable = Symbol("x", real=True)
    value = value.replace(AppliedUndef, lambda *_: variable)
    if len(value.free_symbols) != 1:
        return None
    try:
        named = value.subs(next(iter(value.free_symbols)), variable)
        numbers = (sympy.And(*named.args) if isinstance(value, And) else named).as_set()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    parts = numbers.args if isinstance(numbers, Union) else [numbers]
    return numbers if all(isinstance(part, Interval | FiniteSet | EmptySet) for part in parts) else None


def _equal_regions(expected: Set, actual: Set) -> bool:
    if isinstance(expected, Interval) and isinstance(actual, Interval):
        opens = [(each.left_open, each.right_open) for each in (expected, actual)]
        return bool(opens[0] == opens[1]) and _same_list(expected.args[:2], actual.args[:2])
    intervals, points = [], []
    for each in (expected, actual):
        parts = each.args if isinstance(each, Union) else [each]
        intervals.append([part for part in parts if isinstance(part, Interval)])
        points.append([point for part in parts if isinstance(part, FiniteSet) for point in part.args])
    return bool(expected == actual) or (_same_elements(*intervals) and _same_elements(*points))


def _equal_relations(expected: Any, actual: Any) -> bool:
    if _is_assignment(expected) and _is_assignment(actual):
        expected, actual = _ends(expected), _ends(actual)
        names = {str(each.lhs) for each in (expected, actual)}
        # y = 2x and f(x) = 2x are the same.
        same_name = len(names) == 1 or (
            "y" in names and not (expected.lhs.is_Symbol and actual.lhs.is_Symbol)
        )
        if same_name and equal(expected.rhs, actual.rhs):
            return True
    if expected.free_symbols != actual.free_symbols:
        return False
    regions = region(expected), region(actual)
    if regions[0] is not None and regions[1] is not None:
        return _equal_regions(*regions)
    if not all(isinstance(side, Expr) for each in (expected, actual) for side in each.args):
        return False
    signs = _ORDERS.get(type(expected), 0), _ORDERS.get(type(actual), 0)
    strict = [isinstance(each, _STRICT) for each in (expected, actual)]
    if bool(signs[0]) != bool(signs[1]) or strict[0] != strict[1]:
        return False
    one, other = expected.lhs - expected.rhs, actual.lhs - actual.rhs
    ratio = sympy.simplify(one / other) if other != 0 else nan
    if ratio.is_number and ratio not in (0, nan, zoo):
        return not signs[0] or bool(ratio * signs[0] * signs[1] > 0)
    return isinstance(expected, Eq) and _equal_solutions(one, other)


def _equal_solutions(one: Expr, other: Expr) -> bool:
    for variable in sorted(one.free_symbols, key=str):
        try:
            solutions = sympy.solve(one, variable), sympy.solve(other, variable)
        except NotImplementedError:
            continue
        return bool(solutions[0]) and _same_elements(*solutions)
    return False


def _elements(value: Any) -> Sequence[Any] | None:
    if isinstance(value, FiniteSet):
        elements = list(getattr(value, "_unsorted_args", value.args))
        names = {str(each.lhs) for each in elements} if _coordinates(value) else set()
        if names and names <= _COORDINATES:
            elements.sort(key=lambda each: str(each.lhs))
        return elements
    if isinstance(value, Tuple):
        return list(value)
    if isinstance(value, Interval) and value.left_open == value.right_open:  # (1,2) or [1,2] may be a pair
        return [value.start, value.end]
    if isinstance(value, MatrixBase):
        return list(value) if 1 in value.shape else [Tuple(*value.row(row)) for row in range(value.rows)]
    return None


def _coordinates(value: Any) -> bool:
    elements = getattr(value, "_unsorted_args", ()) if isinstance(value, FiniteSet) else ()
    names = [str(each.lhs) for each in elements if isinstance(each, Eq) and isinstance(each.lhs, Symbol)]
    return len(set(names)) == len(elements) > 1


def _same_list(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    return len(expected) == len(actual) and all(map(equal, expected, actual))


def _same_elements(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    left = list(actual)
    for element in expected:
        match = next((at for at, each in enumerate(left) if equal(element, each)), None)
        if match is None:
            return False
        del left[match]
    return not left


def _equal_values(expected: Expr, actual: Expr) -> bool:
    """Whether the difference of two expressions is 0, or small beside them where one has decimals."""
    has_decimals = expected.has(Float) or actual.has(Float)
    if has_decimals:
        expected, actual = (
            each.xreplace({part: Rational(str(part)) for part in each.atoms(Float)})
            for each in (expected, actual)
        )
    if expected.is_finite is False or actual.is_finite is False:
        return bool(expected == actual)
    difference = expected - actual
    if difference == 0:
        return True
    if difference.has(*_NOT_EVALUATED):
        return bool(sympy.simplify(difference) == 0)
    if difference.free_symbols:
        return _is_zero_at_points(difference)
    size = _evaluated(difference, _DIGITS)
    if has_decimals:
        return size is not None and size <= TOLERANCE * max(abs(expected.evalf()), abs(actual.evalf()))
    if size is None:
        return bool(sympy.simplify(difference) == 0)
    return not size and not _evaluated(difference, _MAX_DIGITS)


def _is_zero_at_points(difference: Expr) -> bool:
    variables = sorted(difference.free_symbols, key=str)
    for numerator, sign in _POINTS:
        point = {
            variable: Rational((numerator + 2 * at) * sign**at, 11 + at * at)
            for at, variable in enumerate(variables)
        }
        size = _evaluated(difference, _DIGITS, point)
        if size is None:
            return bool(sympy.simplify(difference) == 0)
        if size:
            return False
    return True


def _evaluated(difference: Expr, digits: int, point: dict[Any, Any] | None = None) -> Any:
    """The size of a number: 0 if so many digits do not tell it from 0, None if it cannot be evaluated."""
    value = difference.evalf(15, subs=point, maxn=digits)
    parts = value.as_real_imag()
    if not all(part.is_Float or part.is_Rational for part in parts):
        return None
    # SymPy gives a precision of 1 to what is 0 as far as it knows.
    return max(abs(part) if part.is_Rational or part._prec > 1 else sympy.S.Zero for part in parts)


def _is_relation(value: Any, kind: type = Relational) -> bool:
    parts = value._unsorted_args if isinstance(value, And) else [value]
    return bool(parts) and all(isinstance(part, kind) for part in parts)


def _is_assignment(value: Any) -> bool:
    return _is_relation(value, Eq) and bool(is_expr_of_only_symbols(_ends(value).lhs))


def _ends(equation: Any) -> Eq:
    if isinstance(equation, And):
        return Eq(equation._unsorted_args[0].lhs, equation._unsorted_args[-1].rhs, evaluate=False)
    return equation
