"""What a judge is asked: instructions, and three texts in delimiters that the answer cannot close.

The delimiters carry a code that is made of the hash of the texts themselves, so no text can contain its own code, and
the same answer is asked about in the same words every time. Instructions never stand beside the answer: they are the
system message.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROMPT_VERSION = 1
"""Goes up with every change of what is asked here; verdicts that were kept for another version no longer count."""
PARAMETERS: dict[str, Any] = {"temperature": 0}
"""What every request says of sampling."""
_CODE_CHARACTERS = 16

_AS_OBJECT = (
    'Reply with one JSON object and nothing else: {"reason": "...", "verdict": "..."}. The reason is a sentence '
    'or two; the verdict is "correct" or "incorrect".'
)
_AS_LINE = (
    "Give your reason in a sentence or two. Then end with one last line that is exactly VERDICT: CORRECT or "
    "exactly VERDICT: INCORRECT."
)
RESPONSE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            # In this order, so that a model says why before it says what.
            "properties": {
                "reason": {"type": "string"},
                "verdict": {"type": "string", "enum": ["correct", "incorrect"]},
            },
            "required": ["reason", "verdict"],
            "additionalProperties": False,
        },
    },
}
"""Structured output as OpenAI's chat completions have it; vLLM, SGLang and others take the same."""


@dataclass(frozen=True)
class Question:
    """An answer to be judged.

    Attributes:
        query: What was asked.
        truth: The right answer.
        answer: The answer that was given.
        instructions: How to judge.
    """

    query: str
    truth: str
    answer: str
    instructions: str

    def key(self, model: str) -> str:
        """What the verdict of a model is kept under: a hash of all that makes it.

        The address is no part of it, as a model is the same wherever it is served, nor is the form of the verdict,
        which may change from one server to the next.
        """
        return _hash(
            model, PROMPT_VERSION, PARAMETERS, self.instructions, self.query, self.truth, self.answer
        )

    def request(self, model: str, *, structured: bool) -> dict[str, Any]:
        """The body of a chat completion; ``structured`` asks the server to enforce the form of the verdict."""
        form = _AS_OBJECT if structured else _AS_LINE
        messages = [
            {"role": "system", "content": f"{self.instructions.strip()}\n\n{form}"},
            {"role": "user", "content": self._texts(form)},
        ]
        body = {"model": model, "messages": messages, **PARAMETERS}
        return {**body, "response_format": RESPONSE_FORMAT} if structured else body

    def _texts(self, form: str) -> str:
        code = _hash(self.query, self.truth, self.answer)[:_CODE_CHARACTERS]
        named = {"question": self.query, "reference": self.truth, "answer": self.answer}
        parts = [f"<{name}-{code}>\n{_sendable(text)}\n</{name}-{code}>" for name, text in named.items()]
        return "\n\n".join([*parts, f"Judge what stands in answer-{code}. {form}"])


@cache
def own_instructions() -> str:
    """The instructions of this package."""
    return Path(__file__).with_name("instructions.md").read_text(encoding="utf-8")


def _hash(*of: Any) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()


def _sendable(text: str) -> str:
    """Without halves of surrogate pairs, which tokenizers leave behind and no request can carry."""
    return text.encode(errors="replace").decode()
