"""Collects the faults of a recipe, so that one error has them all, each with its place, in the order of the files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_train.errors import RecipeError
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.source import Layer
from aworld_train.recipe.tree import KeyPath


@dataclass(frozen=True)
class Check:
    """A check of a complete recipe: key and sentence of each fault; ``sections`` must have no other fault before it."""

    faults: Callable[[Recipe], Iterable[tuple[KeyPath, str]]]
    sections: tuple[str, ...] = ()


class Faults:
    def __init__(self, layers: Sequence[Layer]):
        self._layers = layers
        self._found: list[tuple[tuple[int, int], str]] = []
        self.keys: set[KeyPath] = set()

    def add(self, key: KeyPath, text: str, layer: Layer | None = None) -> None:
        """Add a fault of a key, in one layer or in the last that sets the key."""
        layer = layer or self._layer_of(key)
        self.keys.add(key)
        name = layer.at(key) if layer else ""
        order = self._layers.index(layer) if layer else len(self._layers)
        self._found.append(((order, layer.line(key) if layer else 0), f"{name}: {text}" if name else text))

    def add_later(self, found: Iterable[tuple[KeyPath, str]]) -> None:
        """Add faults of the complete recipe, without those that only follow from others, as a misspelt key."""
        keys, sections = set(self.keys), self.sections
        for key, text in list(found):
            is_set = any(_sets(layer, key) for layer in self._layers)
            if key not in keys and (is_set or key[0] not in sections):
                self.add(key, text)

    @property
    def sections(self) -> set[str]:
        return {key[0] for key in self.keys}

    def refuse(self) -> None:
        refuse([text for _, text in sorted(self._found, key=lambda fault: fault[0])])

    def _layer_of(self, key: KeyPath) -> Layer | None:
        """The last layer that sets a key, or else the last file that has the nearest section around it."""
        for layer in reversed(self._layers):
            if _sets(layer, key):
                return layer
        files = [layer for layer in self._layers if layer.lines]
        for end in range(len(key) - 1, 0, -1):
            for layer in reversed(files):
                if _sets(layer, key[:end]):
                    return layer
        return files[-1] if files else None


def refuse(sentences: list[str]) -> None:
    sentences = list(dict.fromkeys(sentences))
    if len(sentences) == 1:
        raise RecipeError(sentences[0])
    if sentences:
        raise RecipeError(f"{len(sentences)} problems:\n" + "\n".join(f"  - {text}" for text in sentences))


def _sets(layer: Layer, path: KeyPath) -> bool:
    node: Any = layer.data
    for key in path:
        if isinstance(node, list):
            return True
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True
