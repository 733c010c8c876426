"""Text that an environment variable gave, and that knows where it came from.

A recipe that is loaded holds real values, because this process works with them. What it writes and shows are references
instead: ``EnvText`` is the value to whoever uses it and the reference to whoever prints it with ``repr`` or writes it
with ``recipe.written``. YAML's safe dumper refuses it, so a value that is about to be written by mistake is an error.
"""

from collections.abc import Mapping
from typing import Self


class EnvText(str):
    """A text of which environment variables gave some or all.

    Attributes:
        reference: The text as a recipe writes it, ``${oc.env:NAME}`` in place of the values.
        lookups: The value of each ``${...}`` in it that looks a variable up.
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
    """The text as people may see it: its reference where it has one."""
    return text.reference if isinstance(text, EnvText) else text
