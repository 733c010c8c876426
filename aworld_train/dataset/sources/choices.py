"""The choices of a record's question, and which of them is its answer.

Choices are a list of texts, ARC's ``{text: [...], label: [...]}`` or a list of such mappings, a mapping of texts by
label, any of these as a JSON text, or a column for each. The answer is a label, the text of a choice, or its position
counted from 0. Where that leaves a doubt the record is not used.
"""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from aworld_train.dataset.prompts.choices import AnswerChoice
from aworld_train.dataset.sources.columns import CHOICE_FIELDS
from aworld_train.dataset.sources.values import (
    HIDDEN_ANSWER,
    NO_ANSWER,
    UnusableRecord,
    WrittenNumber,
    answer_text,
    label_text,
    parsed_json,
)
from aworld_train.errors import DatasetError

CHOICE_KEYS = frozenset({"choices", *CHOICE_FIELDS})
"""The fields that a record with choices has."""

NOT_CHOICES = "choices are not a list of texts"

_AROUND_LABEL = re.compile(r"\(?\s*(.*?)\s*[).:]?")
_HIDDEN_POSITION = -1


def choices_of(fields: Mapping[str, object]) -> list[AnswerChoice]:
    """The choices among the fields of a record; UnusableRecord if their form is not known or a label comes twice."""
    value = fields.get("choices")
    if value is None:
        value = {
            label: fields[field]
            for field, label in CHOICE_FIELDS.items()
            if fields.get(field) not in (None, "")
        }
    if isinstance(value, str):
        value = parsed_json(value, NOT_CHOICES) if value.strip() else None
    if not value:
        return []
    labels, texts = _labels_and_texts(value)
    if len(texts) < 2:
        raise UnusableRecord("fewer than two choices")
    if not labels:
        many = len(texts) > len(ascii_uppercase)
        labels = range(1, len(texts) + 1) if many else ascii_uppercase[: len(texts)]
    choices = [
        AnswerChoice(label_text(label, "a choice's label"), label_text(text, "a choice"), _is_number(text))
        for label, text in zip(labels, texts, strict=True)
    ]
    if not all(choice.label and choice.text for choice in choices):
        raise UnusableRecord("a choice is empty")
    if len({_folded(choice.label) for choice in choices}) < len(choices):
        raise UnusableRecord("two choices have one label")
    return _without_label_in_text(choices)


def right_choice(choices: Sequence[AnswerChoice], answer: object, where: str) -> AnswerChoice:
    """The choice that is the answer of a record; UnusableRecord if there is none or several are possible."""
    if isinstance(answer, list | tuple):
        if len(answer) > 1:
            raise UnusableRecord("more than one of the choices is right")
        answer = answer[0] if answer else None
    if answer is None:
        raise UnusableRecord(NO_ANSWER)
    if answer == _HIDDEN_POSITION:
        raise UnusableRecord(HIDDEN_ANSWER)
    text = answer_text(answer)
    by_label = [choice for choice in choices if _folded(choice.label) == _folded(_bare_label(text))]
    by_text = [choice for choice in choices if choice.text == text] or [
        choice for choice in choices if _folded(choice.text) == _folded(text)
    ]
    position = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if by_label:
        # Labels may be numbers too.
        position = None
    by_position = [choices[position]] if position is not None and position < len(choices) else []
    if type(answer) is int and (by_label or by_position):
        # A number is a label or a position, unless the choices are numbers too.
        by_text = [choice for choice in by_text if choice.is_number]
    candidates = set(by_label) | set(by_text) | set(by_position)
    if len(candidates) == 1:
        return candidates.pop()
    if candidates:
        raise UnusableRecord("answer could be more than one of the choices")
    if position == len(choices):
        raise DatasetError(
            f"{where}: the answer {position} is not a position among {len(choices)} choices that are counted from 0. "
            "Were they counted from 1, every other answer would be wrong: write labels (A, B, ...) in place of "
            "positions."
        )
    raise UnusableRecord("answer is none of the choices")


def _labels_and_texts(value: object) -> tuple[Sequence[object], Sequence[object]]:
    """The labels and the texts of choices; no labels where they have none."""
    if isinstance(value, Mapping):
        texts, labels = value.get("text"), value.get("label")
        if isinstance(texts, list | tuple) and isinstance(labels, list | tuple) and len(texts) == len(labels):
            return labels, texts
        # In columns of arrow, every record has all labels that any record has.
        present = {label: text for label, text in value.items() if text is not None}
        if all(map(_is_single, present.values())):
            return list(present), list(present.values())
    if isinstance(value, list | tuple):
        if all(map(_is_single, value)):
            return [], value
        if all(isinstance(item, Mapping) and {"label", "text"} <= item.keys() for item in value):
            return [item["label"] for item in value], [item["text"] for item in value]
    raise UnusableRecord(NOT_CHOICES)


def _without_label_in_text(choices: list[AnswerChoice]) -> list[AnswerChoice]:
    """The choices, each without its label at the beginning of its text where all have that: ``A)21``."""
    texts = []
    for choice in choices:
        match = re.match(rf"\(?{re.escape(choice.label)}\s*[).:]\s*(?=\S)", choice.text, re.IGNORECASE)
        if match is None:
            return choices
        texts.append(choice.text[match.end() :])
    return [choice._replace(text=text) for choice, text in zip(choices, texts, strict=True)]


def _bare_label(text: str) -> str:
    """The label in ``(B)``, ``B.`` or ``B)``."""
    match = _AROUND_LABEL.fullmatch(text)
    return match[1] if match else text


def _is_single(value: object) -> bool:
    return not isinstance(value, Mapping | list | tuple)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | WrittenNumber) and not isinstance(value, bool)


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
