"""Every option of a source is declared once; the command line and recipes derive theirs from the declaration."""

from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from aworld_train.cli.dataset import app
from aworld_train.dataset.recipe import read_recipe
from aworld_train.dataset.sources.options import UserOption, default_value, user_options

VALUES = {
    "map": "query=problem",
    "attachments_at": "/data",
    "system_prompt": "system.txt",
    "choices_prompt": "choices.txt",
    "encoding": "cp1252",
    "max_rows": "6",
}
SOURCE = """
from pathlib import Path
from aworld_train.dataset.sources.options import user_options

def tasks(options):
    Path("options.txt").write_text(repr(tuple(getattr(options, field.name) for field, _ in user_options())))
    yield {"problem": "p", "answer": "a", "level": "answer"}
"""


def value_of(option: UserOption) -> str:
    return VALUES.get(option.key, "exact" if option.key == "scorer" else "answer")


def test_every_option_has_a_flag_with_its_help() -> None:
    build = get_command(app).commands["build"]  # type: ignore[attr-defined]
    flags = {flag: parameter for parameter in build.params for flag in parameter.opts}
    for option_field, option in user_options():
        assert flags[option.flag].help.startswith(option.help)
        assert (f"[default: {default_value(option_field)}]" in flags[option.flag].help) == isinstance(
            option_field.default, str
        )


def test_a_recipe_and_the_command_line_give_the_same_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "system.txt").write_text("Think.")
    (tmp_path / "choices.txt").write_text("{question}\n({label}) {choice}")
    (tmp_path / "own.py").write_text(SOURCE)
    flags = [text for _, option in user_options() for text in (option.flag, value_of(option))]
    command = ["build", "own.py:tasks", "--split", "all=1", "--out", "data", *flags]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    recipe = ["sources:", "  - source: own.py:tasks"]
    for _, option in user_options():
        value = value_of(option)
        recipe.append(f"    {option.key}: {'{query: problem}' if option.key == 'map' else value}")
    (tmp_path / "mix.yaml").write_text("\n".join(recipe))
    options = read_recipe("mix.yaml").sources[0].options
    values = tuple(getattr(options, option_field.name) for option_field, _ in user_options())
    assert (tmp_path / "options.txt").read_text() == repr(values)
    assert all(
        value != default_value(option_field)
        for value, (option_field, _) in zip(values, user_options(), strict=True)
    )
