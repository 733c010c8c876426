"""What cannot be measured is said before anything starts."""

import pytest

from aworld_train import recipe as recipes
from aworld_train.errors import UsageError
from aworld_train.evaluation.measure import evaluate
from aworld_train.training.progress import Status


class Silent:
    """Nobody watches."""

    def __enter__(self) -> "Silent":
        raise AssertionError("it has begun")

    def __exit__(self, *error: object) -> None: ...

    def note(self, message: str) -> None: ...

    def update(self, status: Status, milestone: bool = False) -> None: ...


def test_without_a_dataset_it_says_how_to_name_one() -> None:
    loaded = recipes.read({"name": "mine", "model": {"path": "org/model"}})
    with pytest.raises(UsageError, match=r"The recipe mine has no dataset to measure on: set dataset\.val"):
        evaluate(loaded, checkpoint=None, dataset=None, limit=-1, progress=Silent())
