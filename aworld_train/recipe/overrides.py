"""``key=value`` from the command line: a dotted key and a YAML value.

For a key that takes text, a value that YAML would read as anything but text or null is used unchanged, because the
shell has already removed the quotes: ``name=2024`` is the text ``2024``.
"""

from aworld_train.errors import RecipeError
from aworld_train.recipe.keys import known_keys
from aworld_train.recipe.secret_keys import MASK, looks_secret, written_out
from aworld_train.recipe.source import Layer, parse_value
from aworld_train.recipe.tree import nested
from aworld_train.recipe.values import is_text


def read_override(text: str) -> Layer:
    key, equals, raw = text.partition("=")
    path = tuple(key.strip().split("."))
    name = f"override {key.strip()}={MASK}" if looks_secret(path) else f"override {text}"
    if not equals:
        raise RecipeError(f"`{text}` is not an override: write key=value, such as trainer.steps=20")
    if not all(path):
        raise RecipeError(f"{name}: the key has an empty part")
    if path[0] == "extends":
        raise RecipeError(f"{name}: `extends` is a key of recipe files and cannot be overridden")
    if not raw.strip():
        raise RecipeError(
            f"{name}: there is no value; write {key}=null for none or {key}='\"\"' for empty text"
        )
    takes_text = is_text(known_keys().get(path))
    try:
        value = parse_value(raw)
    except ValueError as error:
        if not takes_text:
            raise RecipeError(f"{name}: the value is not YAML: {error}") from error
        value = raw
    if takes_text and value is not None and not isinstance(value, str):
        value = raw
    tree = nested(path, value)
    if next(written_out(tree), None):
        name = f"override {key.strip()}={MASK}"
    return Layer(tree, name)
