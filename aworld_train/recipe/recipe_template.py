"""Starting recipes: a ready recipe that a new one extends, with comments that say what to change first."""

import json
from pathlib import Path

from aworld_train.atomic import write_text
from aworld_train.errors import UsageError
from aworld_train.recipe.editor_schema import json_schema
from aworld_train.recipe.keys import types_of
from aworld_train.recipe.loading import load
from aworld_train.recipe.locate import find, shipped
from aworld_train.recipe.output import dump, to_source
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.source import parse_value
from aworld_train.recipe.tree import dotted

SCHEMA = ".aworld-train-schema.json"
_CHANGED_FIRST = (
    *(("model", "path"), ("env", "docker_dir"), ("agent", "system_prompt"), ("agent", "max_turns")),
    *(("dataset", "train"), ("dataset", "val"), ("rollout", "n"), ("rollout", "max_response_tokens")),
    *(("trainer", "steps"), ("trainer", "batch_size"), ("trainer", "lr")),
)


def starting_recipe(start: str, name: str) -> str:
    file = find(start, Path.cwd())
    below = {path.resolve(): ready for ready, path in shipped().items()}
    parent = below.get(file.resolve(), str(file.resolve()))
    values = to_source(load(file))
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        f"# {name}: starts from {parent}; a key that is left out has its value there.",
        "# `aworld-train recipe show FILE` prints every key, `recipe check FILE` checks them.",
        dump({"name": name, "extends": parent}).rstrip(),
    ]
    section = ""
    for path in _CHANGED_FIRST:
        if path[0] != section:
            section = path[0]
            lines.append(f"{section}:")
        value = dump({path[1]: values[path[0]][path[1]]}).rstrip().replace("\n", "\n  ")
        help_text = types_of(Recipe)[section].__dataclass_fields__[path[1]].metadata.get("help", dotted(path))
        lines.append(f"  # {' '.join(help_text.split())}\n  {value}")
    return "\n".join(lines) + "\n"


def write_starting_recipe(start: str, file: Path) -> None:
    """Write a starting recipe named after ``file``, which must not exist yet, and beside it the schema for editors."""
    if file.exists():
        raise UsageError(f"{file} exists already. Give another file, or remove it first.")
    if not file.parent.is_dir():
        raise UsageError(f"No such folder: {file.parent}. Make it first.")
    text = starting_recipe(start, file.stem)
    load(parse_value(text))  # the file's name may be none for a run
    write_text(file, text)
    write_text(file.with_name(SCHEMA), f"{json.dumps(json_schema(), indent=1)}\n")
