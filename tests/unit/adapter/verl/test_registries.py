"""Names are read from each form in which source has them, and from nothing beside it."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from aworld_train.adapter.verl import registries

FIRST = """
class Kind(Enum):
    ONE = "one"
    COUNT = 7
    a.b = "no member"
    def method(self): ...

def outside():
    class Inner:
        LATE = "late"

@Registry.register("plain")
def a(): ...

@Registry.register(Kind.ONE)
def b(): ...

@Registry.register(["many", "more"], "second argument")
def c(): ...

@Registry.register(backend="keyword", device="cuda", names={"named"})
def d(): ...

Registry.register(Kind.COUNT, names=other.names)
Other.register("other")
"""
SECOND = """
def choose(name):
    if name == "good" and other == "elsewhere":
        return 1
    if name in ("fine", "poor") or "left" == name:
        return 2
    if name == "poor":
        raise ValueError("poor")
    if name == "late":
        print()
        raise ValueError

class Tracking:
    backends = ["x", "y"]
    unset: int
    called.backends = ["attribute"]

backends = ["later"]
"""


@pytest.fixture(autouse=True)
def verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VeRL's folder; what is read is kept, so that each test has files of its own."""
    (tmp_path / "a.py").write_text(FIRST)
    (tmp_path / "b.py").write_text(SECOND)
    monkeypatch.setattr(registries, "verl_folder", lambda: tmp_path)
    for name in ("registered", "compared", "listed", "torch_optimizers"):
        monkeypatch.setattr(registries, name, getattr(registries, name).__wrapped__)


def test_registered_names_are_first_arguments_keywords_and_values_of_members() -> None:
    names = {"plain", "one", "many", "more", "keyword", "named"}
    assert registries.registered("*.py", "Registry.register") == names
    assert registries.registered("*.py", "Other.register") == {"other"}
    assert registries.registered("none.py", "Registry.register") == set()


def test_compared_names_are_those_of_the_subject_that_lead_to_no_error() -> None:
    assert registries.compared("b.py", "choose", "name") == {"good", "fine", "late"}
    assert registries.compared("b.py", "none", "name") == set()


def test_listed_names_are_those_of_the_first_assignment() -> None:
    assert registries.listed("b.py", "backends") == {"later"}
    assert registries.listed("*.py", "unset") == set()


def test_optimizers_are_the_classes_that_torch_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim" / "__init__.py").write_text(
        "from a import Adam, SGD as Descent, lr_scheduler, Optimizer\nimport Other\n"
    )
    installed = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    for spec, names in ((installed, {"Adam", "Descent"}), (None, set()), (ModuleSpec("torch", None), set())):
        monkeypatch.setattr(registries, "find_spec", {"torch": spec}.get)
        assert registries.torch_optimizers() == names
