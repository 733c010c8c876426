"""The limits of tool calls that an environment tells its clients."""

from typing import Any

import pytest

from aworld_train.serving.mcp_messages import experiments, read_limits


def test_limits_are_read_as_they_were_told() -> None:
    limits = {"terminal-server": 660.0, "documents-csv-server": 120.0, "quick": 0.5}
    assert read_limits({"tools": {}, "experimental": experiments(limits)}) == limits


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        [],
        {},
        {"experimental": None},
        {"experimental": {"other": {}}},
        {"experimental": {"aworld-train": []}},
        {"experimental": {"aworld-train": {"tool_timeouts": [60]}}},
        {"experimental": {"aworld-train": {"tool_timeouts": {"a": "60", "b": None, "c": -1, "d": 0}}}},
    ],
)
def test_what_tells_no_limits_has_none(capabilities: Any) -> None:
    assert read_limits(capabilities) == {}
