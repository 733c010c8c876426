"""What the tiny model imitates: products mostly computed with the tool, all else mostly guessed."""

import pytest

pytest.importorskip("torch")

from tiny_model import ArithmeticTask, transcripts


def test_products_are_mostly_computed_and_all_else_is_mostly_guessed() -> None:
    tasks = [ArithmeticTask(f"{number}{operator}7", "1") for number in range(1000) for operator in "*+"]
    lessons = transcripts(tasks, seed=0)
    assert lessons == transcripts(tasks, seed=0)
    used = {
        operator: sum(
            len(lesson["messages"]) == 4
            for task, lesson in zip(tasks, lessons, strict=True)
            if operator in task.expression
        )
        for operator in "*+"
    }
    assert 750 < used["*"] < 850 and 150 < used["+"] < 250
