"""The prompt for a judge: instructions, and three texts in delimiters that the answer cannot close.

The delimiters carry a code from the hash of the texts, so no text can contain its own code, and the same answer always
gives the same prompt. Instructions are never next to the answer: they are the system message.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROMPT_VERSION = 1
"""Incremented with every change of the prompt; cached verdicts of another version no longer count."""
PARAMETERS: dict[str, Any] = {"temperature": 0}
"""Sampling parameters of every request."""
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
            # The reason first, so that the model writes it before the verdict.
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
        query: The task's question.
        ground_truth: The right answer.
        answer: The answer to judge.
        instructions: How to judge.
    """

    query: str
    ground_truth: str
    answer: str
    instructions: str

    def key(self, model: str) -> str:
        """The cache key of a model's verdict: a hash of all that determines it.

        The address is left out, because a model is the same wherever it is served, and so is the form of the verdict,
        which may differ between servers.
        """
        return _hash(
            model, PROMPT_VERSION, PARAMETERS, self.instructions, self.query, self.ground_truth, self.answer
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
        code = _hash(self.query, self.ground_truth, self.answer)[:_CODE_CHARACTERS]
        texts = {"question": self.query, "reference": self.ground_truth, "answer": self.answer}
        parts = [f"<{name}-{code}>\n{_sendable(text)}\n</{name}-{code}>" for name, text in texts.items()]
        return "\n\n".join([*parts, f"Judge what stands in answer-{code}. {form}"])


@cache
def default_instructions() -> str:
    """The instructions that ship with this package."""
    return Path(__file__).with_name("instructions.md").read_text(encoding="utf-8")


def _hash(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _sendable(text: str) -> str:
    """The text without lone surrogates, which tokenizers leave behind and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
