"""Superscripts and subscripts are written so that no value changes."""

import pytest
from gaia_tools.superscripts import joined, marks


@pytest.mark.parametrize(
    ("script", "level", "before", "after", "written"),
    [
        ("20", 1, "10", " ", "^20"),
        ("-3", 1, "10", "", "^-3"),
        ("−3", 1, "10", ".", "^−3"),
        ("a+b", 1, "10", "", "^{a+b}"),
        ("2+", 1, "Ca", "", "^{2+}"),
        ("2", -1, "H", "O", "_2"),
        ("12", -1, "x", "3", "_{12}"),
        ("2", 1, "10", ".5", "^{2}"),
        ("2", 1, "m", ". T", "^2"),
        ("i", -1, "x", "y", "_{i}"),
        ("th", 1, "14", " ", "th"),
        ("n", 1, "x", "", "^n"),
        ("[1]", 1, "so.", "", "[1]"),
        ("*", 1, "so", "", "*"),
    ],
)
def test_a_script_is_marked_unless_it_is_no_value(
    script: str, level: int, before: str, after: str, written: str
) -> None:
    opening, closing = marks(script, level, before, after)
    assert opening + script + closing == written


def test_pieces_of_one_script_are_one() -> None:
    pieces = [("x", 0), ("-", 1), ("1 ", 1), ("2", -1), ("5", 0), ("  ", 1), ("kg", 0)]
    assert joined(pieces) == "x^-1 _{2}5  kg"
