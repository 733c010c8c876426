"""GAIA's rule for answers as it is published, and nothing else: what the scorer ``gaia`` is held against."""

import re
import string

PUNCTUATION = str.maketrans("", "", string.punctuation)


def published_rule(answer: str, truth: str) -> bool:
    """arXiv 2311.12983 and the scorer of its leaderboard; what is no number there reads as infinity."""
    wanted = as_float(truth)
    if wanted is not None:
        return undressed_float(answer) == wanted
    if "," in truth or ";" in truth:
        parts, elements = re.split("[,;]", answer), re.split("[,;]", truth)
        return len(parts) == len(elements) and all(map(same_element, parts, elements))
    return squeezed(answer).translate(PUNCTUATION) == squeezed(truth).translate(PUNCTUATION)


def same_element(part: str, element: str) -> bool:
    wanted = as_float(element)
    return squeezed(part) == squeezed(element) if wanted is None else undressed_float(part) == wanted


def undressed_float(text: str) -> float:
    value = as_float(text.replace("$", "").replace("%", "").replace(",", ""))
    return float("inf") if value is None else value


def as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text).lower()
