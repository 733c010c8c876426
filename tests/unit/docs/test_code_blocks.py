"""Every code block of the README and the pages under ``docs`` is what it claims to be.

Command lines are parsed by the command line's own parser, recipes loaded, imports resolved. Nothing is run.
"""

import ast
import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.base import TrainingFramework, framework_names
from aworld_train.cli.main import LazyCommand, app
from aworld_train.dataset.recipe import read_recipe
from aworld_train.env.directory import find_directory
from tests.code_blocks import CodeBlock, blocks_of, code_blocks
from tests.locations import REPOSITORY

BLOCKS = code_blocks()
PROGRAMS = {
    *("aworld-train", "eval", "export", "hf", "inspect", "pip"),
    *("pre-commit", "python3.11", "source", "uv", "zensical"),
}
"""What commands begin with, beside the scripts of the repository."""
DOCKERFILE = {"FROM", "WORKDIR", "RUN", "COPY", "ARG", "ENV"}
LANGUAGES = {"bash", "dockerfile", "json", "python", "text", "toml", "yaml"}
_COMMAND_IN_QUOTES = re.compile(r'"\$\((.+?)\)"')
_OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=.+")


def of(language: str) -> Any:
    """The blocks of a language, each a test of its own."""
    chosen = [block for block in BLOCKS if block.language == language]
    assert chosen
    return pytest.mark.parametrize("block", chosen, ids=[block.place for block in chosen])


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in pages are relative to the repository."""
    monkeypatch.chdir(REPOSITORY)


def test_each_block_is_of_a_language_that_is_checked_and_no_fence_is_left_open() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES
    for page in {block.place.partition(":")[0] for block in BLOCKS}:
        text = (REPOSITORY / page).read_text("utf-8")
        fences = re.findall(r"(?m)^ *```", text)
        assert len(fences) == 2 * len(blocks_of(text, REPOSITORY / page)), page


def test_blocks_of_plain_text_say_what_they_show() -> None:
    assert [block.place for block in BLOCKS if block.language == "text" and not block.title] == []


@of("bash")
def test_commands_exist_and_take_the_options_that_are_shown(block: CodeBlock) -> None:
    commands = list(commands_in(block.text))
    assert commands
    for words in commands:
        check_command(words)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("aworld-train trian recipes/quickstart.yaml", "trian"),
        ("aworld-train env", "is a group"),
        ("aworld-train train", "(?i)missing"),
        ("aworld-train train recipes/quickstart.yaml --no-such-option", "no-such-option"),
        ("aworld-train train recipes/quickstart.yaml trainer.stepz=3", "stepz"),
        ("aworld-train train recipes/no-such-recipe.yaml", "no-such-recipe"),
        ("scripts/no-such-script.sh", "no-such-script"),
        ("pip install -e '.[no-such-extra]'", "no-such-extra"),
        ("pip install -c requirements/none.txt torch", "none.txt"),
        ("no-such-program", "no-such-program"),
    ],
)
def test_a_command_that_would_not_work_is_found(line: str, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        check_command(shlex.split(line))


@of("yaml")
def test_yaml_is_a_recipe_a_build_or_a_manifest_that_loads(block: CodeBlock, tmp_path: Path) -> None:
    data = yaml.safe_load(block.text)
    assert isinstance(data, dict)
    if "servers" in data:
        (tmp_path / "servers.yaml").write_text(block.text)
        (tmp_path / "Dockerfile").write_text("FROM python:3.11-slim\n")
        assert find_directory(str(tmp_path)).manifest.servers
    elif "sources" in data:
        (tmp_path / "build.yaml").write_text(block.text)
        assert read_recipe(str(tmp_path / "build.yaml")).sources
    else:
        assert set(data) <= {field.name for field in fields(recipes.Recipe)} | set(framework_names())
        assert recipes.load(data)


@of("python")
def test_python_compiles_and_what_it_imports_of_the_package_is_there(block: CodeBlock) -> None:
    tree = ast.parse(block.text)
    compile(tree, block.place, "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aworld_train"):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("aworld_train"):
                    importlib.import_module(name.name)


def test_the_framework_that_is_shown_has_every_member_that_the_protocol_requires() -> None:
    (block,) = [block for block in BLOCKS if block.title == "my_package/framework.py"]
    names: dict[str, Any] = {}
    exec(compile(block.text, block.place, "exec"), names)
    shown = {name for name in vars(names["MyFramework"]) if not name.startswith("_")}
    declared = {*vars(TrainingFramework), *TrainingFramework.__annotations__}
    inherited = {
        name
        for name, member in vars(TrainingFramework).items()
        if not name.startswith("_") and not getattr(member, "__isabstractmethod__", False)
    }
    assert shown == {name for name in declared - inherited if not name.startswith("_")}
    page = block.place.partition(":")[0]
    assert all(f"| `{name}(" in (REPOSITORY / page).read_text("utf-8") for name in inherited)


@of("json")
def test_each_line_of_json_can_be_read(block: CodeBlock) -> None:
    assert [type(json.loads(line)) for line in block.text.splitlines()]


@of("toml")
def test_toml_can_be_read(block: CodeBlock) -> None:
    assert tomllib.loads(block.text)


@of("dockerfile")
def test_dockerfiles_have_instructions_only(block: CodeBlock) -> None:
    assert {line.split(" ")[0] for line in block.text.splitlines() if line} <= DOCKERFILE


def commands_in(text: str) -> Iterator[list[str]]:
    """The commands of a shell block as words; a command within ``$(...)`` is one of its own."""
    for line in text.replace("\\\n", " ").splitlines():
        for inner in _COMMAND_IN_QUOTES.findall(line):
            yield shlex.split(inner)
        if words := shlex.split(line, comments=True):
            yield words


def check_command(words: list[str]) -> None:
    """Fail where a command could not be carried out as it is written."""
    program = (
        Path(words[0]).name if words[0].startswith((".venv/", ".venv-vllm/", "agent-env/")) else words[0]
    )
    if program.startswith("scripts/"):
        assert (REPOSITORY / program).is_file(), program
        return
    assert program in PROGRAMS, program
    if program == "aworld-train":
        check_arguments([word for word in words[1:] if word != "--debug"])
    elif program == "pip":
        check_installation(words)


def check_arguments(arguments: list[str]) -> None:
    """Parse them as the command line would, and load the recipe that they name where it is in the repository."""
    arguments = arguments[: arguments.index(">>")] if ">>" in arguments else arguments
    arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
    if arguments == ["--version"]:
        return
    command: Any = typer.main.get_command(app)
    context, name = None, "aworld-train"
    while hasattr(command, "commands"):
        assert arguments, f"{name} is a group"
        name, *arguments = arguments
        assert name in command.commands, name
        command = command.commands[name]
        if isinstance(command, LazyCommand):
            below = arguments[0] if arguments and arguments[0] in command.below else None
            command, arguments = command.load(below), arguments[1:] if below else arguments
    context = command.make_context(name, list(arguments))
    recipe = context.params.get("recipe") or context.params.get("source")
    overrides = list(context.params.get("overrides") or [])
    if launcher := context.params.get("launcher"):
        overrides.append(f"cluster.launcher={launcher}")
    assert all(_OVERRIDE.fullmatch(text) for text in overrides), overrides
    if recipe and str(recipe).startswith("recipes/") and "datasets" not in str(recipe):
        recipes.load(recipe, overrides)


def check_installation(words: list[str]) -> None:
    """Extras and constraint files that an installation names are there."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if named := re.fullmatch(r"\.\[(.+)\]", word):
            assert set(named[1].split(",")) <= set(extras), word
        if word.startswith("requirements/"):
            assert (REPOSITORY / word).is_file(), word
