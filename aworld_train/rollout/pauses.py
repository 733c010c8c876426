"""Python's garbage collector stops every episode of a process while it looks for garbage: it does so between episodes.

Episodes make next to none that does not go away by itself.
"""

import gc

_NEW_OBJECTS = 200_000  # after so many it looks all the same; Python's own number is 700


def keep_pauses_short() -> None:
    """What is loaded by now is never looked at again, and what comes is seldom looked at by itself.

    A pass over everything that is loaded takes a fifth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def while_nobody_waits() -> None:
    """Look for garbage now that no episode is under way, in what came since it was looked for last."""
    gc.collect(1)
