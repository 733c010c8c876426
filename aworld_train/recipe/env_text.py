"""Text from an environment variable that keeps the reference to its variable.

A loaded recipe holds real values, but files and messages must contain references. An ``EnvText`` is equal to its value;
``repr`` and ``recipe.written`` return its reference. YAML's safe dumper refuses it.
"""

from collections.abc import Mapping
from typing import Self


class EnvText(str):
    """A text that comes partly or wholly from environment variables.

    ``reference`` is as a recipe writes it; ``lookups`` has the value of each ``${...}`` in it that looks up a variable.
    """

    reference: str
    lookups: Mapping[str, str]

    def __new__(cls, value: str, reference: str = "", lookups: Mapping[str, str] | None = None) -> Self:
        text = super().__new__(cls, value)
        text.reference = reference
        text.lookups = dict(lookups or {})
        return text

    def __repr__(self) -> str:
        return repr(self.reference)

    def __getnewargs__(self) -> tuple[str, str, dict[str, str]]:  # type: ignore[override]
        return str(self), self.reference, dict(self.lookups)


def shown(text: str) -> str:
    return text.reference if isinstance(text, EnvText) else text
