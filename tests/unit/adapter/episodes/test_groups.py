"""When it is known whether a group has too few healthy episodes."""

import asyncio

import pytest

from aworld_train.adapter.episodes.groups import Group


@pytest.mark.parametrize(
    ("reports", "is_too_small"),
    [
        ([], None),
        ([True, False], None),
        ([False, False], None),
        ([True, True], False),
        ([True, False, True], False),
        ([True, False, False], True),
        ([False, False, False], True),
    ],
)
async def test_a_group_is_known_once_it_is_large_enough_or_all_its_episodes_are_over(
    reports: list[bool], is_too_small: bool | None
) -> None:
    group = Group(3, min_healthy=2)
    waiting = asyncio.create_task(group.too_small())
    for healthy in reports:
        group.report(healthy)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (waiting.result() if waiting.done() else None) is is_too_small
    waiting.cancel()
