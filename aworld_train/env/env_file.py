"""The file of ``--env-file``: assignments as python-dotenv reads them, with references to each other in any order.

``${NAME}`` is the value that the file gives to NAME, else that of the caller's environment. A reference to neither, or
in a circle, is an error: a tool would find the empty value hours later. A value appears in no message.
"""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aworld_train.errors import UsageError, suggestion


@dataclass(frozen=True)
class VariableAssignment:
    line: int
    value: str


@dataclass(frozen=True)
class EnvFile:
    """A file's assignments by name, the last of several, and the numbers of ``lines_without_value``."""

    path: Path
    assignments: Mapping[str, VariableAssignment]
    lines_without_value: tuple[int, ...]

    def value(self, name: str) -> str:
        return self._resolve(name, ())

    def references(self) -> set[str]:
        from dotenv.variables import Variable, parse_variables

        values = (assignment.value for assignment in self.assignments.values())
        return {
            atom.name for value in values for atom in parse_variables(value) if isinstance(atom, Variable)
        }

    def _resolve(self, name: str, above: tuple[str, ...]) -> str:
        from dotenv.variables import Literal, Variable, parse_variables

        if name in above:
            raise self._error(
                above[-1], f"refers in a circle: {' -> '.join((*above[above.index(name) :], name))}"
            )
        parts = []
        for atom in parse_variables(self.assignments[name].value):
            if isinstance(atom, Variable):
                parts.append(self._replacement(name, atom.name, atom.default, above))
            elif isinstance(atom, Literal):
                parts.append(atom.value)
        return "".join(parts)

    def _replacement(self, name: str, reference: str, default: str | None, above: tuple[str, ...]) -> str:
        # A name that refers to itself means the caller's variable, as in a shell.
        if reference in self.assignments and reference != name:
            return self._resolve(reference, (*above, name)) or default or ""
        if reference in os.environ:
            return os.environ[reference]
        if default is not None:
            return default
        hint = suggestion(reference, set(self.assignments) - {name})
        raise self._error(
            name,
            f"refers to ${{{reference}}}, which neither the file nor the environment of this command sets.{hint} "
            f"(${{{reference}:-}} may be missing.)",
        )

    def _error(self, name: str, what: str) -> UsageError:
        return UsageError(f"{self.path}:{self.assignments[name].line}: {name} {what}")


def read_env_file(path: Path) -> EnvFile:
    from dotenv.parser import parse_stream

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"No such file: {path} (--env-file).") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} (--env-file) cannot be read: {error}.") from error
    assignments: dict[str, VariableAssignment] = {}
    without_value = []
    for binding in parse_stream(io.StringIO(text)):
        # The text of an assignment begins with the empty lines before it.
        start = binding.original.string
        line = binding.original.line + start[: len(start) - len(start.lstrip())].count("\n")
        if binding.error:
            raise UsageError(f"{path}:{line} is not an assignment, NAME=value: is a quotation mark open?")
        if binding.key is None:
            continue
        if binding.value is None:
            without_value.append(line)
        else:
            assignments[binding.key] = VariableAssignment(line, binding.value)
    return EnvFile(path, assignments, tuple(without_value))
