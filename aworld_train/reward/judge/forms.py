"""The verdicts that a judge's instructions define, and the form in which a request asks for one.

Benchmarks' own judges reply in words that mean a verdict only because their prompts say so: SimpleQA's ``A``, FRAMES's
``TRUE``, a score of 0 or 1. A request also asks for the form that can be read most safely: a JSON object that the
server enforces, or a last line with the request's code.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any


class Verdict(StrEnum):
    correct = "correct"
    incorrect = "incorrect"
    not_attempted = "not_attempted"
    """The answer says nothing that could be right or wrong; only where the instructions define it."""


@dataclass(frozen=True)
class Forms:
    """Verdicts by the lower-case words that stand for them in a judge's instructions.

    ``confidence``: whether the judge is asked how sure the answer says that it is.
    """

    words: Mapping[str, Verdict] = field(default_factory=lambda: MappingProxyType({}))
    confidence: bool = False

    @property
    def verdicts(self) -> list[Verdict]:
        with_none = Verdict.not_attempted in self.words.values()
        return [each for each in Verdict if with_none or each is not Verdict.not_attempted]


NO_FORMS = Forms()

_LETTER = re.compile(
    r"\b([A-E])\b[\"'`*)]{0,3}\s?[:：=.)-]\s?[\"'`*(]{0,3}(CORRECT|INCORRECT|NOT_ATTEMPTED)\b"
)
_NOT_ATTEMPTED = re.compile(r"\bNOT_ATTEMPTED\b")
_TRUE, _FALSE = re.compile(r"\bTRUE\b"), re.compile(r"\bFALSE\b")
_SCORE = re.compile(r"\bscore[\"'`]?\s?[:：=]\s?([0-9.]+)", re.IGNORECASE)
_CONFIDENCE = re.compile(r"\bconfidence\b|置信度", re.IGNORECASE)


@lru_cache(maxsize=16)
def forms_of(instructions: str) -> Forms:
    words: dict[str, Verdict] = {}
    if _NOT_ATTEMPTED.search(instructions):
        words |= {verdict.value: verdict for verdict in Verdict}
    letters = {(letter.lower(), Verdict(word.lower())) for letter, word in _LETTER.findall(instructions)}
    # Letters that stand for two verdicts stand for none.
    if len(dict(letters)) == len(letters) and {Verdict.correct, Verdict.incorrect} <= {v for _, v in letters}:
        words |= dict(letters) | {verdict.value: verdict for _, verdict in letters}
    if _TRUE.search(instructions) and _FALSE.search(instructions):
        words |= {"true": Verdict.correct, "false": Verdict.incorrect}
    if {score.rstrip(".") for score in _SCORE.findall(instructions)} == {"0", "1"}:
        words |= {"1": Verdict.correct, "0": Verdict.incorrect}
    return Forms(MappingProxyType(words), _CONFIDENCE.search(instructions) is not None)


def object_form(forms: Forms) -> str:
    names = _either([f'"{verdict}"' for verdict in forms.verdicts])
    if not forms.confidence:
        return (
            'Reply with one JSON object and nothing else: {"reason": "...", "verdict": "..."}. The reason is a '
            f"sentence or two; the verdict is {names}."
        )
    return (
        'Reply with one JSON object and nothing else: {"extracted_final_answer": "...", "reason": "...", "verdict": '
        '"...", "confidence": ...}. The reason is a sentence or two; the verdict is '
        f"{names}; the confidence is the percentage that the answer itself states, a whole number from 0 to 100, or "
        "null where it states none."
    )


def line_form(forms: Forms, code: str) -> str:
    lines = _either([f"exactly VERDICT {code}: {verdict.upper()}" for verdict in forms.verdicts])
    confidence = (
        "Then comes a line `confidence: NN%` with the percentage that the answer itself states, or `confidence: none` "
        "where it states none. "
        if forms.confidence
        else ""
    )
    return f"Give your reason in a sentence or two. {confidence}Then end with one last line that is {lines}."


def response_format(forms: Forms) -> dict[str, Any]:
    """Structured output as OpenAI's chat completions have it; vLLM, SGLang and others take the same."""
    # The reason first, so that the model writes it before the verdict.
    properties: dict[str, Any] = {
        "reason": {"type": "string"},
        "verdict": {"type": "string", "enum": [verdict.value for verdict in forms.verdicts]},
    }
    if forms.confidence:
        properties = {
            "extracted_final_answer": {"type": "string"},
            **properties,
            "confidence": {"type": ["integer", "null"]},
        }
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "verdict",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


def _either(phrases: list[str]) -> str:
    return " or ".join(phrases)
