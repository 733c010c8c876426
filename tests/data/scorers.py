"""Scorers of one's own, as recipes name them."""

import time
from typing import Any


def stuck_at_times(answer: str, ground_truth: str, context: Any) -> dict[str, float]:
    """Right or wrong, with a part of its own; of every fourth task it never comes to an end."""
    if context.info["index"] % 4 == 0:
        time.sleep(3600)
    right = float(answer == ground_truth)
    return {"score": right, "correct": right, "characters": len(answer)}
