"""GAIA's published rule for answers, and nothing else: the scorer ``gaia`` is compared with it."""

import re
import string

PUNCTUATION = str.maketrans("", "", string.punctuation)


def published_rule(answer: str, truth: str) -> bool:
    """arXiv 2311.12983 and the scorer of its leaderboard; a text that is no number counts as infinity."""
    expected = as_float(truth)
    if expected is not None:
        return float_without_signs(answer) == expected
    if "," in truth or ";" in truth:
        parts, elements = re.split("[,;]", answer), re.split("[,;]", truth)
        return len(parts) == len(elements) and all(map(same_element, parts, elements))
    return squeezed(answer).translate(PUNCTUATION) == squeezed(truth).translate(PUNCTUATION)


def same_element(part: str, element: str) -> bool:
    expected = as_float(element)
    return squeezed(part) == squeezed(element) if expected is None else float_without_signs(part) == expected


def float_without_signs(text: str) -> float:
    value = as_float(text.replace("$", "").replace("%", "").replace(",", ""))
    return float("inf") if value is None else value


def as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text).lower()
