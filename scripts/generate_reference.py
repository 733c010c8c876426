"""Writes the reference pages that come from code: every key of a recipe, every command with its options.

    python scripts/generate_reference.py            # writes docs/reference/{recipe,cli}.md
    python scripts/generate_reference.py --check    # writes nothing; exits with 1 if a page is not up to date

The pages are kept in the repository, so that they can be read there, and a test runs the check.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import typer.main
import yaml

from aworld_train.cli.main import LazyCommand, app
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK, RAW, is_section, key_of, types_of
from aworld_train.recipe.presets import PRESETS
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import map_values

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_HEADER = "<!-- Written by scripts/generate_reference.py. Change what it is made from instead. -->\n\n"
_PLAIN_NAMES = {
    **{str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"},
    Any: "text or a mapping",
}

_RECIPE_INTRODUCTION = """# Recipe

A recipe is one YAML file that says everything about a training job. This page lists every key with its type, its
default and its meaning. `aworld-train recipe schema` prints the same as a JSON Schema, with which editors complete and
check recipes; `recipe init` writes it beside the recipe, whose first line names it for YAML language servers.
`aworld-train recipe show RECIPE` prints one with everything applied.

- `extends: path.yaml` starts from another recipe; a path is relative to the file that has it.
- `key.inner=value` on the command line is laid over the file; the value is YAML.
- `${oc.env:NAME}` takes a value from the environment. Secrets are written so and in no other way: a literal one is
  refused, and no file or log of a run has the value.
- `verl:` (in general: a section with the name of `trainer.framework`) passes the framework's own keys through. VeRL's
  are checked against the schema that comes with the installed VeRL. A key on which metrics, records, checkpoints,
  scores or sizes of a run depend is refused with the recipe's own key, or with the reason: `verl.trainer.save_freq` is
  `trainer.save_every`. Names, such as `algorithm.name` or a policy loss, must be ones that the installed VeRL has,
  unless code of your own registers more (`verl.actor_rollout_ref.model.external_lib`, VERL_USE_EXTERNAL_MODULES).

A key that is not listed here is an error that names the file, the line and the nearest key.
"""
_CLI_INTRODUCTION = """# Commands

Every command explains itself with `--help`. An error is one paragraph that says what is wrong, where, and what to do;
`aworld-train --debug ...` adds the traceback. With `--json`, stdout has one JSON object and nothing else, an error
included: `{"error": {"kind": ..., "message": ...}}`; [Troubleshooting](../troubleshooting.md) has a section for each
kind.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | cannot be done as requested: an option, a file or a recipe has to be changed first |
| 130 | interrupted |
| 143 | ended by SIGTERM (`dataset build`) |
"""


def main() -> int:
    """Write the pages, or compare them where ``--check`` is given; the exit status."""
    pages = {FOLDER / "recipe.md": recipe_page(), FOLDER / "cli.md": cli_page()}
    if "--check" not in sys.argv[1:]:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    if stale:
        sys.stderr.write(f"Not up to date: {', '.join(stale)}. Run scripts/generate_reference.py.\n")
    return 1 if stale else 0


def recipe_page() -> str:
    """The page with every key of a recipe, a table for each section."""
    return _HEADER + _RECIPE_INTRODUCTION + "".join(_sections(Recipe, "", "The top level")) + _presets()


def _presets() -> str:
    lines = [
        f"| `{preset.value}` | {', '.join(_assignment(path, value) for path, value in map_values(keys.values))} "
        f"| {_cell(keys.source)} |\n"
        for preset, keys in PRESETS.items()
    ]
    return (
        "\n## Presets\n\nThe values of `algorithm.preset`. Keys that a preset does not name keep their values.\n\n"
        "| preset | keys | source |\n|---|---|---|\n" + "".join(lines)
    )


def _assignment(path: tuple[str, ...], value: Any) -> str:
    return f"`{'.'.join(path)}: {str(value).lower() if isinstance(value, bool) else value}`"


def _sections(section: type, path: str, title: str) -> Iterator[str]:
    hints = types_of(section)
    keys = [field for field in fields(section) if not is_section(hints[key_of(field)])]
    level = "##" if path.count(".") == 0 else "###"
    yield f"\n{level} {title}\n\n"
    if keys:
        yield "| key | type | default | meaning |\n|---|---|---|---|\n"
        for field in keys:
            name = DEFAULT_FRAMEWORK if field.name == RAW else key_of(field)
            help_text = _cell(field.metadata.get("help", ""))
            yield f"| `{name}` | {_type_name(hints[key_of(field)])} | {_default(field)} | {help_text} |\n"
    for field in fields(section):
        if is_section(hints[key_of(field)]):
            inner = f"{path}.{field.name}" if path else key_of(field)
            yield from _sections(hints[key_of(field)], inner, f"`{inner}`")


def _type_name(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_name(option) for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is list:
        return f"list of {_type_name(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return "mapping"
    if issubclass(hint, Enum):
        return ", ".join(f"`{option.value}`" for option in hint)
    return _PLAIN_NAMES[hint]


def _default(field: Field[Any]) -> str:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if default is None:
        return "none"
    value = default.value if isinstance(default, Enum) else default
    return f"`{yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}`"


def cli_page() -> str:
    """The page with every command: usage, what it does, arguments, options, examples."""
    root = typer.main.get_command(app)
    commands = "".join(_commands(root, "aworld-train"))
    return _HEADER + _CLI_INTRODUCTION + commands


def _commands(group: Any, name: str) -> Iterator[str]:
    for word, listed in group.commands.items():
        command = listed.load() if isinstance(listed, LazyCommand) else listed
        if getattr(command, "commands", None):
            yield f"\n## `{word}`\n\n{_prose(command.help)[0]}\n"
            yield from _commands(command, f"{name} {word}")
        else:
            yield _command(command, f"{name} {word}")
            for below in getattr(listed, "below", ()):
                yield _command(listed.load(below), f"{name} {word} {below}")


def _command(command: Any, name: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([name, "[OPTIONS]", *(_argument_name(p) for p in arguments)])
    text, examples = _prose(command.help)
    level = "##" if name.count(" ") == 1 else "###"
    page = (
        f'\n{level} `{name.removeprefix("aworld-train ")}`\n\n```text title="Usage"\n{usage}\n```\n\n{text}\n'
    )
    if arguments:
        page += "\n| argument | meaning |\n|---|---|\n"
        page += "".join(f"| {_code(_argument_name(p))} | {_cell(p.help)} |\n" for p in arguments)
    if options:
        page += "\n| option | takes | default | meaning |\n|---|---|---|---|\n"
        page += "".join(_option(p) for p in options)
    if examples:
        page += "\n```bash\n" + "\n".join(examples) + "\n```\n"
    return page


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else _code(option.metavar or _value_name(option))
    help_text, _, stated = (option.help or "").partition(r"\[default: ")
    default = _cell(stated.removesuffix("]"))
    if not stated and not option.is_flag and option.default not in (None, ""):
        default = f"`{option.default}`"
    if option.required:
        default = "required"
    return f"| {names} | {takes} | {default} | {_cell(help_text.strip())} |\n"


def _argument_name(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _value_name(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    inner = get_args(annotation) or (annotation,)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(inner[0], "TEXT")


def _prose(help_text: str | None) -> tuple[str, list[str]]:
    """A command's help without its examples, as Markdown, and the examples' lines."""
    before, _, after = re.sub(r"(?m)^Examples?:$", "\0", help_text or "", count=1).partition("\0")
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    return before.strip().replace("<name>", "NAME"), lines


def _code(text: str) -> str:
    """Code in a table's cell, alternatives one by one: a pipe would end the cell."""
    return ", ".join(f"`{alternative}`" for alternative in text.split("|"))


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
