"""The prompt for a judge: instructions, and three texts in delimiters that the answer cannot close, because they carry
a random code of the request. Instructions are the system message unless they are a template with a place for each text,
such as the prompts of HLE and BrowseComp.
"""

import hashlib
import json
import re
import secrets
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from aworld_train.reward.judge.forms import Forms, forms_of, line_form, object_form, response_format

PROMPT_VERSION = 3
"""Incremented with every change of the prompt; cached verdicts of another version no longer count."""
PARAMETERS: dict[str, Any] = {"temperature": 0}
_CODE_BYTES = 8
_PLACES = {
    "question": ("question", "query", "problem"),
    "reference": ("correct_answer", "reference", "reference_answer", "ground_truth", "target"),
    "answer": ("response", "answer", "predicted_answer", "prediction"),
}
"""What a template may call the place of each text."""
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Question:
    """An answer to be judged; ``instructions`` are a template if they have places (see `template_fault`)."""

    query: str
    ground_truth: str
    answer: str
    instructions: str
    code: str = field(default_factory=lambda: secrets.token_hex(_CODE_BYTES), compare=False)

    @property
    def forms(self) -> Forms:
        return forms_of(self.instructions)

    def key(self, model: str) -> str:
        """The cache key: a hash of all that determines a model's verdict, but for its address and the form."""
        texts = (self.instructions, self.query, self.ground_truth, self.answer)
        content = json.dumps([model, PROMPT_VERSION, PARAMETERS, *texts], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def request(self, model: str, *, structured: bool) -> dict[str, Any]:
        """The body of a chat completion; ``structured`` asks the server to enforce the form of the verdict."""
        form = object_form(self.forms) if structured else line_form(self.forms, self.code)
        if _places(self.instructions):
            messages = [{"role": "user", "content": f"{self._filled()}\n\n{form}"}]
        else:
            task = f"Judge what stands in answer-{self.code}. {form}"
            messages = [
                {"role": "system", "content": f"{self.instructions.strip()}\n\n{form}"},
                {"role": "user", "content": "\n\n".join([*self._fenced().values(), task])},
            ]
        body = {"model": model, "messages": messages, **PARAMETERS}
        return {**body, "response_format": response_format(self.forms)} if structured else body

    def _filled(self) -> str:
        fenced = self._fenced()
        by_place = {place: fenced[name] for name, places in _PLACES.items() for place in places}
        template = self.instructions.strip()
        return _PLACE.sub(lambda match: by_place.get(match[1], match[0]), template)

    def _fenced(self) -> dict[str, str]:
        texts = {"question": self.query, "reference": self.ground_truth, "answer": self.answer}
        return {
            name: f"<{name}-{self.code}>\n{_sendable(text)}\n</{name}-{self.code}>"
            for name, text in texts.items()
        }


def template_fault(instructions: str) -> str | None:
    """What is wrong with the places of a template; None if nothing is, or if the instructions have none."""
    places = _places(instructions)
    missing = [name for name, known in _PLACES.items() if places and not places & set(known)]
    if not missing:
        return None
    names = "; ".join(
        f"the {name}: {', '.join(f'{{{place}}}' for place in _PLACES[name])}" for name in missing
    )
    return f"has a place for some of the texts and none for {names}"


def _places(instructions: str) -> set[str]:
    known = {place for places in _PLACES.values() for place in places}
    return set(_PLACE.findall(instructions)) & known


@cache
def default_instructions() -> str:
    return Path(__file__).with_name("instructions.md").read_text(encoding="utf-8")


def _sendable(text: str) -> str:
    """The text without lone surrogates, which tokenizers leave behind and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
