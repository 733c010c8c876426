"""Keys that hold secrets: a recipe may refer to a secret (``${oc.env:WANDB_API_KEY}``), but must not contain it."""

import re
from collections.abc import Iterator
from typing import Any

from aworld_train.masking import is_secret_name
from aworld_train.recipe.tree import KeyPath, dotted, filled, leaves

MASK = "***"


def looks_secret(path: KeyPath) -> bool:
    names = [name for name in path if not name.isdigit()]
    return bool(names) and is_secret_name(names[-1])


def written_out(tree: dict[str, Any], framework: str = "") -> Iterator[tuple[KeyPath, str]]:
    """Secrets that ``tree`` contains literally: the path and a message without the value.

    Values for the processes of a run, in the section of its framework or ``cluster.environment``, stand in files of the
    run even if they are references, so the message sends them another way.
    """
    for path, value in leaves(tree):
        if looks_secret(path) and _is_literal(value):
            variable = re.sub(r"\W", "_", path[-1]).upper()
            inherited = path[0] == framework or path[:2] == ("cluster", "environment")
            remedy = (
                "export it as an environment variable instead, which the run's processes inherit"
                if inherited
                else f"put it in an environment variable and write ${{oc.env:{variable}}}"
            )
            yield path, f"`{dotted(path)}` looks like a secret and is written out; {remedy}"


def masked(tree: Any) -> Any:
    """A copy of ``tree`` to show: secrets become ``***``, interpolations stay readable."""
    return filled(tree, {path: MASK for path, _ in written_out(tree)})


def _is_literal(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value) and "${" not in value
    return isinstance(value, int | float) and not isinstance(value, bool)
