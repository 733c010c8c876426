"""How a question with choices is put to the agent: a template with ``{question}`` and the choices.

The line of the template that has ``{choice}`` is repeated for each choice, with its ``{label}``; ``{labels}`` lists all
labels (``A, B or C``). A template that shows no labels asks for the right choice itself, and one without the line for
the answer to the question alone.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aworld_train.errors import UsageError

_PLACEHOLDER = re.compile(r"\{(question|label|choice|labels)\}")


class AnswerChoice(NamedTuple):
    label: str
    text: str
    is_number: bool = False


def check_template(template: str, name: str) -> None:
    used = _PLACEHOLDER.findall(template)
    lines = template.split("\n")
    if used.count("question") != 1:
        problem = "has {question} once, where the question goes"
    elif used.count("choice") > 1:
        problem = "has {choice} in one line, which is repeated for each choice"
    elif any("{label}" in line and "{choice}" not in line for line in lines):
        problem = "has {label} in the line of {choice}"
    elif any("{question}" in line and "{choice}" in line for line in lines):
        problem = "has {question} outside the line of {choice}, which is repeated"
    elif "labels" in used and "label" not in used:
        problem = "has {label} beside {choice} where it has {labels}"
    else:
        return
    raise UsageError(f"The choices prompt {name} cannot be used: a template {problem}.")


def fill_template(template: str, question: str, choices: Sequence[AnswerChoice]) -> str:
    labels = _listed([choice.label for choice in choices])
    lines: list[str] = []
    for line in template.split("\n"):
        if "{choice}" in line:
            lines += [
                _filled(line, {"label": choice.label, "choice": choice.text, "labels": labels})
                for choice in choices
            ]
        else:
            lines.append(_filled(line, {"question": question, "labels": labels}))
    return "\n".join(lines)


def question_with_choices(question: str, choices: Sequence[AnswerChoice]) -> str:
    """The question and its choices without a template: what tells it from other questions."""
    return "\n".join([question, *(f"{choice.label}. {choice.text}" for choice in choices)])


def _filled(line: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], line)


def _listed(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:-1])} or {labels[-1]}"
