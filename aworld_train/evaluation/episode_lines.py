"""What an evaluation reads from the lines of its episodes (``traces/episodes.jsonl``), without a database."""

from collections.abc import Mapping
from typing import Any

PHASE = "eval"
"""The phase of an evaluation's episodes in the store."""
_MILLION = 1e6


def cost_of(line: Mapping[str, Any], prices: Mapping[str, float] | None) -> float | None:
    """What an attempt costs by the prices of a million tokens, ``input`` and ``output``; None without prices."""
    if prices is None:
        return None
    given, sampled = int(line.get("given_tokens") or 0), int(line.get("sampled_tokens") or 0)
    return (given * prices["input"] + sampled * prices["output"]) / _MILLION


def score_of(line: Mapping[str, Any]) -> float | None:
    """The score of an attempt, from 0 to 1; None if it could not be scored."""
    reward = line.get("reward")
    accuracy = (line.get("scores") or {}).get("acc", reward)
    return None if accuracy is None else float(accuracy)
