"""The episodes of one task, which are compared with one another: who waits for whom before a group is given up."""

import asyncio

from aworld_train.recipe.schema import Recipe


class Group:
    """A group in the making.

    Args:
        size: How many episodes it has.
        least: Fewest healthy ones that it is of use with.
    """

    def __init__(self, size: int, least: int):
        self._missing = size
        self._least = least
        self._healthy = 0
        self._complete = asyncio.Event()

    def report(self, healthy: bool) -> None:
        """An episode is over, for the first time."""
        self._missing -= 1
        self._healthy += healthy
        # Nobody has to wait for the rest of a group that is large enough already.
        if self._missing <= 0 or self._healthy >= self._least:
            self._complete.set()

    async def too_small(self) -> bool:
        """Whether there are too few healthy episodes, once that is known; others' time limits end the wait."""
        await self._complete.wait()
        return self._healthy < self._least


def min_group(recipe: Recipe) -> int:
    """Fewest healthy episodes that a group is trained on with."""
    return recipe.rollout.min_group or min(2, recipe.rollout.n)
