"""Code of one's own is found by where it is, as whatever it is wanted for, or refused with the error that fits."""

from pathlib import Path

import pytest

from aworld_train.errors import RewardError, UsageError
from aworld_train.user_code import load_user_code, user_code_location

FILE = """
from dataclasses import dataclass

@dataclass
class Kept:
    value: "int" = 1

def function(): return Kept().value
constant = 3
"""


def test_a_file_may_define_dataclasses_and_two_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(FILE.replace("= 1", f"= {value}"))
    first, second = (load_user_code(f"{tmp_path / folder}/own.py:function", "source") for folder in "ab")
    assert (first(), second()) == (1, 2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}/own.py:functon", "Did you mean 'function'"),
        ("{}/own.py:constant", "of type int, not a function"),
        ("{}/none.py:function", "no such file"),
        ("no_such_module_anywhere:function", "PYTHONPATH"),
        ("own code:function", "neither a module nor a path"),
        ("function", "not of the form"),
        (":function", "not of the form"),
    ],
)
def test_what_cannot_be_found_is_told_by_what_it_is_and_what_to_do(
    tmp_path: Path, spec: str, message: str
) -> None:
    (tmp_path / "own.py").write_text(FILE)
    with pytest.raises(UsageError, match=message) as caught:
        load_user_code(spec.format(tmp_path), "builder")
    assert caught.value.message.startswith("The builder ")
    with pytest.raises(RewardError, match=message):
        load_user_code(spec.format(tmp_path), "reward", RewardError)


def test_a_path_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert user_code_location("own.py:function", "source") == (tmp_path / "own.py", "function")
    assert user_code_location("a.b:function", "source") == ("a.b", "function")
