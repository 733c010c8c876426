"""The keys that VeRL's own source has, read without importing it."""

import pytest

from aworld_train.adapter.verl import config_classes, schema
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
