r"""Resolves ``${...}``: environment variables and other keys of the recipe.

In the framework's own section (``verl:``) environment variables are only looked up, so that a missing one fails early.
A value from an environment variable keeps its reference (see ``env_text``), also where other keys refer to its key:
before other keys are resolved, a placeholder replaces every lookup. Files are written in the same grammar (``written``)
and read with ``resolved``: a lookup stays a lookup, and text that only looks like an interpolation is escaped.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from aworld_train.errors import RecipeError
from aworld_train.masking import remember
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.tree import KeyPath, dotted, filled, leaves, mapped

_ENV = re.compile(r"\$\{\s*oc\.env\s*:")
_NEEDED = re.compile(r"\$\{\s*oc\.env\s*:\s*([A-Za-z_]\w*)\s*\}")
_NAME = re.compile(r"oc\.env\s*:\s*([A-Za-z_]\w*)")
# Inside a lookup only another lookup, as its default, and the conversion of its text are allowed.
_OTHER = re.compile(r"\$\{(?!\s*oc\.(?:env|decode)\s*:)")
_OPENING = re.compile(r"(\\*)\$\{")
_SHELL = re.compile(r"\$\{([A-Z][A-Z0-9_]*)(?:[:}].*)?$")  # as a shell writes a variable
_NUMBER = re.compile(r"[-+]?[0-9][0-9_.eE+-]*")


def resolve(tree: dict[str, Any], raw_section: str) -> tuple[dict[KeyPath, Any], dict[KeyPath, str]]:
    """Look up every interpolation of ``tree``, except in the section of the framework's own keys.

    Returns by path the values of texts with interpolations (text from the environment as ``EnvText``), and by path a
    sentence about each text that cannot be resolved.
    """
    values: dict[KeyPath, Any] = {}
    failures: dict[KeyPath, str] = {}
    texts = {path: text for path, text in leaves(tree) if isinstance(text, str) and "${" in text}
    for path, text in texts.items():
        try:
            OmegaConf.create([text])
        except GrammarParseError as error:
            failures[path] = _reason(path, text, error)
    if failures or not texts:
        return values, failures  # one text with broken grammar makes the whole tree unreadable
    lookups = EnvLookups()
    for path, text in texts.items():
        try:
            lookups.look_up(text)
        except (OmegaConfBaseException, RecipeError) as error:
            failures[path] = _reason(path, text, error)
    config = OmegaConf.create(lookups.hide(tree))
    for path, text in texts.items():
        if path[0] == raw_section:
            mask_values(lookups.values_in(text))
        elif path not in failures:
            try:
                values[path] = lookups.fill(_value(config, path))
            except OmegaConfBaseException as error:
                failures[path] = _reason(path, text, error)
    return values, failures


def resolved(tree: Any) -> Any:
    """Plain data from a file that was written with references, with lookups resolved and escapes removed."""
    return mapped(tree, _resolved)


def _resolved(text: Any) -> Any:
    if not isinstance(text, str) or "${" not in text:
        return text
    lookups = EnvLookups()
    try:
        lookups.look_up(text)
        value = lookups.fill(_value(OmegaConf.create([lookups.hide(text)]), ("0",)))
    except OmegaConfBaseException as error:
        raise RecipeError(_cause(text, error)) from error
    mask_values(lookups.values_in(text))
    return value


def without_references(recipe: Mapping[str, Any], raw_section: str) -> dict[str, Any]:
    """An unresolved recipe with the values of other keys in place of references to them.

    Lookups of environment variables stay, and so does what cannot be resolved here, as in the framework's section.
    """
    lookups, values = EnvLookups(), {}
    try:
        config = OmegaConf.create(lookups.hide(recipe))
    except OmegaConfBaseException:
        return dict(recipe)
    for path, text in leaves(recipe):
        if isinstance(text, str) and "${" in text and path[0] != raw_section:
            with contextlib.suppress(OmegaConfBaseException):
                values[path] = lookups.restore(_value(config, path))
    return dict(filled(recipe, values))


def escape(text: str) -> str:
    """``text`` escaped so that a recipe with it loads as the same text, without any lookup."""
    return _OPENING.sub(lambda opening: opening.group(1) * 2 + r"\${", text)


def has_lookup(text: str) -> bool:
    return any(_ENV.search(text, start, end) for start, end in _expressions(text))


def variable_names(tree: Any) -> set[str]:
    texts = [text for _, text in leaves({"": tree}) if isinstance(text, str) and has_lookup(text)]
    return {name for text in texts for name in _NAME.findall(text)}


def mask_values(lookups: Mapping[str, str]) -> None:
    """Mask the values of lookups in messages from now on, except numbers, which occur in many texts by chance."""
    for expression, value in lookups.items():
        if not is_number(value):
            remember(value, expression)


def is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


class EnvLookups:
    """The lookups of environment variables in a tree, each with a placeholder for the time other keys are resolved."""

    def __init__(self) -> None:
        mark = f"lookup{secrets.token_hex(8)}x"
        self._placeholder = re.compile(rf"{mark}[0-9]+x")
        self._mark = mark
        self._expressions: list[str] = []
        self._values: dict[str, Any] = {}

    def look_up(self, text: str) -> None:
        """Resolve and store the lookups in ``text``; OmegaConfBaseException if a variable is not set."""
        for expression in _lookups(text):
            if _OTHER.search(expression):
                raise RecipeError("an environment variable cannot be part of another interpolation")
            value = OmegaConf.create({"value": expression})["value"]
            if OmegaConf.is_config(value) or isinstance(value, list | dict):
                raise RecipeError("an environment variable gives one value: write each item as ${oc.env:...}")
            self._values[expression] = value

    def values_in(self, text: str) -> dict[str, str]:
        return {each: str(self._values[each]) for each in _lookups(text) if each in self._values}

    def hide(self, tree: Any) -> Any:
        if isinstance(tree, dict | list):
            return mapped(tree, self.hide)
        if not isinstance(tree, str) or "${" not in tree:
            return tree
        hidden, at = "", 0
        for start, end in _expressions(tree):
            if _ENV.search(tree, start, end):
                hidden += _unescaped_end(tree[at:start]) + self._placeholder_for(tree[start:end])
                at = end
        return hidden + tree[at:]

    def fill(self, template: Any) -> Any:
        if isinstance(template, dict | list):
            return mapped(template, self.fill)
        if not isinstance(template, str) or not (placeholders := self._placeholder.findall(template)):
            return template
        values = {self._expression(one): self._values.get(self._expression(one)) for one in placeholders}
        (first, *others) = values.values()
        if template == placeholders[0] and not others and not isinstance(first, str):
            return first
        text = self._placeholder.sub(lambda match: str(values[self._expression(match.group())]), template)
        return EnvText(text, self.restore(template), {each: str(value) for each, value in values.items()})

    def restore(self, template: Any) -> Any:
        """The resolved result of ``hide`` as recipe text: lookups in place of the placeholders, the rest escaped."""
        if isinstance(template, dict | list):
            return mapped(template, self.restore)
        if not isinstance(template, str):
            return template
        restored, at = "", 0
        for match in self._placeholder.finditer(template):
            # Backslashes before an interpolation count double.
            literal = re.sub(r"\\+$", lambda end: end.group() * 2, escape(template[at : match.start()]))
            restored += literal + self._expression(match.group())
            at = match.end()
        return restored + escape(template[at:])

    def _placeholder_for(self, expression: str) -> str:
        if expression not in self._expressions:
            self._expressions.append(expression)
        return f"{self._mark}{self._expressions.index(expression)}x"

    def _expression(self, placeholder: str) -> str:
        return self._expressions[int(placeholder[len(self._mark) : -1])]


def _lookups(text: str) -> Iterator[str]:
    """The outermost interpolations in ``text`` that look up an environment variable."""
    return (text[start:end] for start, end in _expressions(text) if _ENV.search(text, start, end))


def _expressions(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each outermost ``${...}`` that is not escaped."""
    at = 0
    while opening := _OPENING.search(text, at):
        at = opening.end()
        if len(opening.group(1)) % 2 == 0:
            start, at = at - 2, _end_of(text, at)
            yield start, at


def _end_of(text: str, at: int) -> int:
    """The end of the interpolation whose opening brace is before ``at``; braces within quotes do not count."""
    depth, quote = 1, ""
    while at < len(text) and depth:
        letter = text[at]
        if letter == "\\":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += {"{": 1, "}": -1}.get(letter, 0)
        at += 1
    return at


def _unescaped_end(literal: str) -> str:
    """Literal text before an interpolation that a placeholder replaces: pairs of its last backslashes become single."""
    return re.sub(r"(\\+)$", lambda end: end.group(1)[: len(end.group(1)) // 2], literal)


def _value(config: Any, path: KeyPath) -> Any:
    node = config
    for key in path:
        node = node[key if OmegaConf.is_dict(node) else int(key)]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _reason(path: KeyPath, text: str, error: Exception) -> str:
    unset = [name for name in _NEEDED.findall(text) if name not in os.environ]
    if unset and isinstance(error, OmegaConfBaseException):
        return f"`{dotted(path)}` needs the environment variable {unset[0]}, which is not set"
    return f"`{dotted(path)}`: {_cause(text, error)}"


def _cause(text: str, error: Exception) -> str:
    shell = _SHELL.search(text)
    hint = f" (a variable of the environment is written ${{oc.env:{shell.group(1)}}})" if shell else ""
    return f"cannot resolve `{text}`: {str(error).splitlines()[0]}{hint}"
