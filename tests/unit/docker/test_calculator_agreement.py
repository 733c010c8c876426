"""What the shipped calculator answers is, to the letter, the ground truth that datasets hold."""

import importlib.util
from fractions import Fraction
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.expressions import format_number
from aworld_train.dataset.sources.arithmetic import arithmetic_tasks
from tests.locations import REPOSITORY

SOURCE = REPOSITORY / "docker" / "calculator-mcp-server" / "arithmetic.py"


@pytest.fixture(scope="module")
def calculator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calculator_arithmetic", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(st.fractions(max_denominator=10**6))
def test_numbers_are_written_alike(calculator: ModuleType, value: Fraction) -> None:
    assert calculator.write(value) == format_number(value)


def test_generated_tasks_have_the_answer_that_the_tool_gives(calculator: ModuleType) -> None:
    tasks = arithmetic_tasks(seed=3)
    for _ in range(500):
        task = next(tasks)
        assert calculator.calculate(task.subject) == task.answer
