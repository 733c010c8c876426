"""The keys that VeRL's own source has, read without importing it."""

from functools import cache
from pathlib import Path

import pytest

from aworld_train.adapter.verl import config_classes, schema
from aworld_train.adapter.verl.config_classes import FieldType
from aworld_train.errors import DependencyMissing
from aworld_train.recipe.tree import leaves


def test_without_verl_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_classes, "find_spec", lambda name: None)
    with pytest.raises(DependencyMissing, match=r"pip install 'aworld-train\[cpu\]'"):
        config_classes.verl_folder()


def test_every_class_of_the_defaults_is_found_in_verls_source() -> None:
    targets = {value for path, value in leaves(schema.default_config()) if path[-1] == "_target_"}
    assert len(targets) > 30
    assert [target for target in targets if not config_classes.fields_of(target)] == []


SOURCE = """
class Base:
    kept: int = 1
    replaced: str = "a"
    hf_config: dict = None

class Child(Base, Elsewhere, other.Thing):
    replaced: float = 0.5
    optional: Optional[int] = 3
    either: str | bool = "a"
    implicit: int = None
    literal: Literal["a", 2] = "a"
    names: list[str]
    options: dict[str, Any]
    base: Base
    perhaps: Optional[Base] = None
    unknown: Whatever
    anything: Whatever | None
    computed: f(x)
    text = "no annotation"
    other.attribute: int

    def method(self):
        local: int = 1

def function():
    class Hidden(Base):
        a: int
"""


def test_the_fields_of_a_class_are_its_own_and_inherited_ones_with_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workers" / "config").mkdir(parents=True)
    (tmp_path / "workers" / "config" / "a.py").write_text(SOURCE)
    monkeypatch.setattr(config_classes, "verl_folder", lambda: tmp_path)
    for name in ("_classes", "fields_of"):
        monkeypatch.setattr(config_classes, name, cache(getattr(config_classes, name).__wrapped__))
    base = {"kept": {"int"}, "replaced": {"str"}}
    child = {
        "kept": {"int"},
        "replaced": {"float", "int"},
        "optional": {"int", "null"},
        "either": {"str", "bool"},
        "implicit": {"int", "null"},
        "literal": {"str", "int"},
        "names": {"list"},
        "options": {"map"},
        "base": {"map"},
        "perhaps": {"map", "null"},
        "unknown": set(),
        "anything": set(),
        "computed": set(),
    }
    sections = dict.fromkeys(("base", "perhaps"), "Base")
    for names, expected in (
        (("Base", "verl.workers.config.Base"), base),
        (("Child", "verl.workers.config.Child"), child),
    ):
        fields = {name: FieldType(frozenset(kinds), sections.get(name)) for name, kinds in expected.items()}
        assert [config_classes.fields_of(name) for name in names] == [fields, fields]
    assert [config_classes.fields_of(name) for name in ("mine.Child", "Hidden", "Elsewhere")] == [None] * 3
