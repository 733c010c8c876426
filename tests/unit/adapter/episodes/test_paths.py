"""Paths from the environment become absolute too, and files hold their reference and no value."""

from pathlib import Path

import pytest

from aworld_train.adapter.episodes.paths import absolute_argument, absolute_function, absolute_path
from aworld_train.recipe.env_text import EnvText


def from_environment(text: str) -> EnvText:
    return EnvText(text, "${oc.env:PLACE}", {"${oc.env:PLACE}": text})


@pytest.mark.parametrize(
    ("text", "path", "argument", "function"),
    [
        ("here.py", True, True, False),
        ("missing.py", False, False, False),
        ("folder", True, False, False),
        ("here.py:build", False, False, True),
        ("missing.py:build", False, False, True),
        ("package.agent:build", False, False, False),
    ],
)
def test_a_reference_is_made_absolute_where_a_text_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, path: bool, argument: bool, function: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").touch()
    (tmp_path / "folder").mkdir()
    for absolute, is_changed in (
        (absolute_path, path),
        (absolute_argument, argument),
        (absolute_function, function),
    ):
        result, base = absolute(from_environment(text)), f"{tmp_path}/" if is_changed else ""
        assert isinstance(result, EnvText)
        assert (result, result.reference) == (f"{base}{text}", f"{base}${{oc.env:PLACE}}")
    other = absolute_function(from_environment("here.py:build"), "/other")
    assert (other, other.reference) == ("/other/here.py:build", "/other/${oc.env:PLACE}")  # type: ignore[attr-defined]
