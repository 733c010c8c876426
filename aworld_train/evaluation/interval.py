"""The confidence interval of a share measured on a number of tasks."""

import math


def wilson_interval(correct: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """95 % score interval of a share (Wilson 1927, JASA 22, 209-212)."""
    share = correct / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
