"""Checks before a run that ``agent.tool_parser`` fits a model, by its files alone.

The chat template is rendered here without the tokenizer, whose library takes seconds to import.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from aworld_train.errors import ModelError
from aworld_train.json_lines import read_json
from aworld_train.model.files import local_folder
from aworld_train.rollout.formats.choose import Choice, choose

# Marks the assistant's tokens for training, in templates made for it; an extension of Jinja in transformers.
_GENERATION = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def check_tool_parser(path: str | None, name: str) -> str | None:
    """One sentence with the format that ``agent.tool_parser`` comes to; None for a model that is not here."""
    folder = local_folder(path)
    if folder is None:
        return None
    config = read_json(folder / "tokenizer_config.json")
    source = _template(folder, config)
    if source is None:
        return None
    choice = _choice(name, source, config, folder)
    return f"Tool calls are read as {choice.call_format.name} ({choice.reason})."


def _choice(name: str, source: str, config: Mapping[str, Any], folder: Path) -> Choice:
    special = {key: _text(config.get(key)) for key in _SPECIAL_TOKENS}

    def render(
        messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], begin_turn: bool
    ) -> str:
        return _render(source, messages=messages, tools=tools, add_generation_prompt=begin_turn, **special)

    def marks() -> str:
        added = read_json(folder / "tokenizer.json").get("added_tokens") or ()
        return "\n".join([source, *(str(token.get("content")) for token in added)])

    return choose(name, render, marks)


def _render(source: str, **variables: Any) -> str:
    """Render a chat template as transformers does (huggingface.co/docs/transformers/chat_templating_writing)."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda layout: datetime.now().strftime(layout),
    }
    return environment.from_string(_GENERATION.sub(r"{#\1 \2#}", source)).render(**variables)


def _refuse(message: str) -> NoReturn:
    raise ModelError(message)


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The template for conversations with tools; None if there is none that can be read."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = read_json(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(found, list):  # several, by name
        by_name = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = by_name.get("tool_use") or by_name.get("default")
    return found if isinstance(found, str) else None


def _text(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
