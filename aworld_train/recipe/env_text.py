"""Text from an environment variable that keeps the reference to its variable.

A loaded recipe holds real values, because this process uses them, but files and messages must contain references
instead. An ``EnvText`` is equal to its value; ``repr`` and ``recipe.written`` return its reference. YAML's safe dumper
refuses it, so that a value which would be written by mistake is an error.
"""

from collections.abc import Mapping
from typing import Self


class EnvText(str):
    """A text that comes partly or wholly from environment variables.

    Attributes:
        reference: The text as a recipe writes it, ``${oc.env:NAME}`` in place of the values.
        lookups: The value of each ``${...}`` in the reference that looks up a variable.
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
    """The text as it may be shown: the reference of an ``EnvText``."""
    return text.reference if isinstance(text, EnvText) else text
