"""Groups: the episodes of one task, which are compared with one another, and when a group is too small for that."""

import asyncio

from aworld_train.recipe.schema import Recipe


class Group:
    """A group whose episodes are being played; with fewer healthy ones than ``min_healthy`` it is not trained on."""

    def __init__(self, size: int, min_healthy: int):
        self._missing = size
        self._min_healthy = min_healthy
        self._healthy = 0
        self._complete = asyncio.Event()

    def report(self, healthy: bool) -> None:
        self._missing -= 1
        self._healthy += healthy
        # A group that is already large enough does not wait for its other episodes.
        if self._missing <= 0 or self._healthy >= self._min_healthy:
            self._complete.set()

    async def too_small(self) -> bool:
        """Wait until it is known whether too few episodes are healthy; the episodes' time limits end the wait."""
        await self._complete.wait()
        return self._healthy < self._min_healthy


def min_group(recipe: Recipe) -> int:
    return recipe.rollout.min_group or (min(2, recipe.rollout.n) if recipe.compares_rewards else 1)
