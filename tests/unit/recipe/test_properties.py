"""What holds for every recipe: files round-trip, overrides are file edits, no slip of the pen passes."""

import json
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aworld_train import recipe
from aworld_train.errors import RecipeError
from aworld_train.recipe.keys import known_keys
from aworld_train.recipe.schema import CassetteMode, CassetteSection, Engine, EnvBackend, Recipe
from tests.properties import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WRITTEN_TEXT = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], max_codepoint=0x2FF), max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).filter(
    lambda text: text[0].isalnum()
)
KEYS = st.text(string.ascii_lowercase, min_size=1, max_size=6).filter(
    lambda text: text not in ("token", "secret")
)
POSITIVE = st.floats(min_value=1e-9, max_value=1e9)
RAW = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | POSITIVE
    | TEXT.filter(lambda text: "${" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3),
    max_leaves=6,
)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Recipes that pass every check, with values far from the defaults."""
    made = Recipe(name=draw(NAMES), raw=draw(st.dictionaries(KEYS, RAW, max_size=3)))
    made.model.path = draw(st.none() | TEXT.filter(str.strip))
    made.agent.system_prompt = draw(st.none() | TEXT)
    made.agent.tool_timeout = draw(POSITIVE)
    made.env.backend = draw(st.sampled_from(EnvBackend))
    has_tools = made.env.backend is not EnvBackend.none
    made.env.servers = draw(st.lists(NAMES, unique=True, max_size=3)) if has_tools else []
    rules = draw(st.dictionaries(KEYS, st.lists(NAMES, max_size=2), max_size=2))
    made.env.cassette = CassetteSection(
        draw(st.sampled_from(CassetteMode)) if has_tools else CassetteMode.off,
        draw(NAMES),
        {tool: {"ignore": ignored} for tool, ignored in rules.items()},
    )
    made.dataset.train = draw(st.none() | TEXT)
    made.dataset.shuffle = draw(st.booleans())
    made.rollout.engine = draw(st.sampled_from(Engine))
    made.rollout.n = draw(st.integers(2, 8))
    made.trainer.lr = draw(POSITIVE)
    made.trainer.loggers = draw(st.lists(TEXT, max_size=2))
    made.trainer.microbatch_size = draw(st.integers(1, 4))
    made.cluster.gpus_per_node = draw(st.integers(1, 4))
    per_rank = made.cluster.gpus_per_node * made.trainer.microbatch_size
    made.trainer.minibatch_size = draw(st.none() | st.just(per_rank))
    made.trainer.batch_size = per_rank * draw(st.integers(1, 3))
    return made


def loaded_from_text(text: str, *overrides: str) -> Recipe:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recipe.yaml"
        file.write_text(text, encoding="utf-8", newline="")
        return recipe.load(file, overrides)


@examples(25)
@given(recipes())
def test_a_recipe_survives_its_own_yaml(made: Recipe) -> None:
    assert loaded_from_text(recipe.dump(recipe.to_source(made))) == made
    assert recipe.load(made) == made
    assert recipe.read(made).unresolved == recipe.read(recipe.read(made).unresolved).unresolved


EDITS: dict[str, st.SearchStrategy[Any]] = {
    "agent.max_turns": st.integers(1, 10**6),
    "agent.system_prompt": st.none() | WRITTEN_TEXT.filter(lambda text: "${" not in text),
    "env.servers": st.lists(NAMES, unique=True, max_size=3),
    "env.backend": st.sampled_from([backend.value for backend in EnvBackend]),
    "env.cassette.mode": st.sampled_from(["off"]),
    "dataset.shuffle": st.booleans(),
    "trainer.lr": POSITIVE,
    "trainer.stall_timeout": st.integers(1, 10**6),
    "verl.some.key": st.none() | st.booleans() | st.integers(-99, 99) | st.lists(NAMES, max_size=2),
}


@examples(30)
@given(st.data())
def test_an_override_does_what_editing_the_file_does(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(EDITS)))
    value = data.draw(EDITS[key])
    edited: Any = value
    for part in reversed(key.split(".")):
        edited = {part: edited}
    override = f"{key}={json.dumps(value, ensure_ascii=False)}"
    assert loaded_from_text("name: run\n", override) == loaded_from_text(recipe.dump(edited))


def slip(data: st.DataObject, word: str) -> str:
    """``word`` with one letter left out, added, exchanged or swapped with the next."""
    kind = data.draw(st.sampled_from(["leave out", "add", "exchange", "swap"]))
    at = data.draw(st.integers(0, len(word) - 1))
    letter = data.draw(st.sampled_from(string.ascii_letters + string.digits + "_"))
    return {
        "leave out": word[:at] + word[at + 1 :],
        "add": word[:at] + letter + word[at:],
        "exchange": word[:at] + letter + word[at + 1 :],
        "swap": word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    }[kind]


@examples(60)
@given(st.data())
def test_any_slip_of_the_pen_in_a_key_is_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(known_keys())))
    at = data.draw(st.integers(0, len(path) - 1))
    wrong = (*path[:at], slip(data, path[at]), *path[at + 1 :])
    assume(wrong[: at + 1] not in known_keys())
    value: Any = 1
    for part in reversed(wrong):
        value = {part: value}
    with pytest.raises(RecipeError, match="unknown key"):
        loaded_from_text(recipe.dump(value))
    with pytest.raises(RecipeError):
        recipe.load({}, [f"{'.'.join(wrong)}=1"])
