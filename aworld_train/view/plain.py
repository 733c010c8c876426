"""JSON that every browser reads."""

import json
import math
from typing import Any


def to_json(value: Any) -> str:
    """Plain data as JSON.

    NaN and infinities, which JSON does not have, are the texts ``NaN``, ``Infinity`` and ``-Infinity``. Escaping all
    but ASCII makes halves of surrogate pairs, which UTF-8 does not have, harmless.
    """
    try:
        return json.dumps(value, allow_nan=False, default=str, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=str, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def shortened(text: str, max_chars: int) -> str:
    """A text without its middle, if it is longer than ``max_chars``."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
