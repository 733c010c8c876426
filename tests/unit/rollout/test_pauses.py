"""What is there before the first episode is never looked through again, and the garbage of episodes is freed."""

import gc
import weakref

from aworld_train.rollout import pauses


class Cycle:
    """An object that reference counting does not free."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_freed_before_episodes_and_between_them_and_what_stays_is_passed_over() -> None:
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        kept, early = Cycle(), weakref.ref(Cycle())
        pauses.keep_pauses_short()
        assert early() is None
        assert not any(each is kept for each in gc.get_objects())
        assert gc.get_threshold() == (200_000, *thresholds[1:])
        episode = Cycle()
        gc.collect(1)  # which moves it to the last generation
        late = weakref.ref(episode)
        del episode
        pauses.while_nobody_waits()
        assert late() is None
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)
        gc.unfreeze()
