"""What the README says of a recipe is what the recipe's schema says."""

import re
from dataclasses import fields

from aworld_train.recipe.schema import OutcomesSection
from tests.locations import REPOSITORY

README = (REPOSITORY / "README.md").read_text("utf-8")
_ROW = re.compile(r"^\| `(\w+)` \| (.+?)\.? \| (trained|masked|dropped) \|$", re.MULTILINE)


def test_the_table_of_outcomes_has_all_of_them_with_their_treatments_and_meanings() -> None:
    rows = [(name, meaning.split(" (")[0], treatment) for name, meaning, treatment in _ROW.findall(README)]
    assert rows == [
        (field.name, field.metadata["help"].rstrip("."), field.default.value)
        for field in fields(OutcomesSection)
    ]
