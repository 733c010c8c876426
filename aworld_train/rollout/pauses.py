"""Garbage collection stops all episodes of a process, so it runs between episodes.

Reference counting frees nearly all objects of an episode.
"""

import gc

_NEW_OBJECTS = 200_000  # after which a collection runs anyway; Python's default is 700


def keep_pauses_short() -> None:
    """Exclude all present objects from collection, and make automatic collections rare.

    A pass over all loaded modules takes a fifth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def while_nobody_waits() -> None:
    """Collect all garbage; call it while no episode runs.

    Objects of long episodes have survived collections, and only a whole one finds them: 120 kB an episode of 20 turns.
    """
    gc.collect()
