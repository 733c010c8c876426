"""Recipes with mistakes, each with the problems that it must be refused with.

A file in ``tests/data/wrong_recipes`` begins with comments: ``# override KEY=VALUE`` is given on the command line,
``# expect LINE: TEXT`` is a problem in the file itself, and ``# expect PLACE: TEXT`` one elsewhere. Three dots at the
end of a text stand for the rest of it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "wrong_recipes"
FILES = sorted(FOLDER.glob("*.yaml"))
_MODEL = {"max_position_embeddings": 256, "num_attention_heads": 4, "num_key_value_heads": 2}


@dataclass(frozen=True)
class WrongRecipe:
    """A recipe with mistakes.

    Attributes:
        text: The file.
        overrides: What is given beside it.
        problems: What it is refused with.
    """

    text: str
    overrides: list[str]
    problems: list[str]


def read(file: Path) -> WrongRecipe:
    text = file.read_text()
    marked = [line.removeprefix("# ").partition(" ") for line in text.splitlines() if line.startswith("# ")]
    overrides = [rest for mark, _, rest in marked if mark == "override"]
    return WrongRecipe(text, overrides, [rest for mark, _, rest in marked if mark == "expect"])


def problems_in(message: str, name: str, recipes: Path) -> list[str]:
    """The problems that an error names, with places as the files have them."""
    lines = message.splitlines()
    problems = [line.removeprefix("  - ") for line in lines[1:]] if lines[0].endswith(" problems:") else lines
    return [problem.removeprefix(f"{name}:").replace(f"{recipes}/", "") for problem in problems]


def agree(expected: list[str], problems: list[str]) -> bool:
    """Whether the problems are the expected ones, in their order."""
    return len(expected) == len(problems) and all(
        problem.startswith(text.removesuffix("...")) if text.endswith("...") else problem == text
        for text, problem in zip(expected, problems, strict=True)
    )


def make_workplace(folder: Path) -> None:
    """Make what the ready recipes name: datasets and a model, of which only the names and the shape matter."""
    for dataset in ("arithmetic", "gsm8k-problems"):
        (folder / "data" / dataset).mkdir(parents=True)
        for split in ("train", "val"):
            (folder / "data" / dataset / f"{split}.parquet").touch()
    model = folder / "models" / "tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(_MODEL))
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (model / name).touch()
    (folder / "agent.py").write_text("def build(): ...\n")
