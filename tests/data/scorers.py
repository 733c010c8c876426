"""Scorers of one's own, as recipes name them."""

import asyncio
import time
from typing import Any


def stuck_at_times(answer: str, ground_truth: str, context: Any) -> dict[str, float]:
    """Right or wrong, with a part of its own; of every fourth task it never comes to an end."""
    if context.info["index"] % 4 == 0:
        time.sleep(3600)
    right = float(answer == ground_truth)
    return {"score": right, "correct": right, "characters": len(answer)}


async def slow(answer: str, ground_truth: str, context: Any) -> float:
    """Right or wrong, after eight seconds: steps that last, and cost no processor time."""
    await asyncio.sleep(8)
    return float(answer == ground_truth)
