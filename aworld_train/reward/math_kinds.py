"""What looks like mathematics to SymPy and is something else: dates, addresses, derivatives.

As arithmetic 2024-01-02 is 2021, and so is 2024-02-01; math-verify drops the prime of f'(x).
"""

import re

# A date, a version or an address of numbers, a telephone number, a number in another base.
_NAME_OF_DIGITS = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{4}|[0-9]+(?:\.[0-9]+){2,}"
    r"|(?:[0-9]{3}-)?[0-9]{3}-[0-9]{4}|0[xob][0-9a-f]+",
    re.IGNORECASE,
)
_PRIME = re.compile(r"'|′|\^\s*\{?\s*(?:\\prime\s*)+\}?")
_FUNCTION_PRIME = re.compile(r"[A-Za-z]\s*(?:'|′|\^\s*\{?\s*\\prime)")


def other_kind(actual: str, expected: str) -> str | None:
    """Why an answer is not the ground truth although math-verify may read both alike."""
    actual, expected = actual.strip(), expected.strip()
    if actual.casefold() == expected.casefold():
        return None
    if _NAME_OF_DIGITS.fullmatch(actual) or _NAME_OF_DIGITS.fullmatch(expected):
        return "a date, an address or another name of digits, and not the same"
    actual_side, expected_side = _without_name(actual, expected), _without_name(expected, actual)
    primes = _primes(actual_side), _primes(expected_side)
    if primes[0] != primes[1] and (
        all(primes) or any(map(_FUNCTION_PRIME.search, (actual_side, expected_side)))
    ):
        return "other derivatives, or other units"
    return None


def _without_name(text: str, other: str) -> str:
    """What stands after the equals sign, where the other text has none: ``2x`` of ``f'(x) = 2x``."""
    return text.rpartition("=")[2] if "=" in text and "=" not in other else text


def _primes(text: str) -> int:
    return sum(max(1, match[0].count("prime")) for match in _PRIME.finditer(text))
