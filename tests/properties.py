"""How many examples a property is tried with: a quarter by default, all by ``scripts/test.sh --all``.

What fails with a random example fails on some day anyhow; the default run holds what each example is made for.
"""

import os

from hypothesis import HealthCheck, settings

TRY_ALL = "AWORLD_TRAIN_TESTS_TRY_ALL"
"""The environment variable that makes properties be tried with all examples."""
_PART = 1 if os.environ.get(TRY_ALL) else 4
_DEFAULT, _MIN = 100, 10


def examples(number: int) -> settings:
    """Settings by which a property is tried with this many examples, or in a default run with a part of them."""
    return settings(max_examples=min(number, max(_MIN, number // _PART)))


def part_of(number: int) -> int:
    """So much, or in a default run a quarter of it: for texts and rounds whose number proves nothing by itself."""
    return number // _PART


def load_profile() -> None:
    """Make the settings of this run the default: how long an example takes says how busy the machine is."""
    settings.register_profile(
        "tests",
        max_examples=_DEFAULT // _PART,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("tests")
