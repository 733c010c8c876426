"""Episodes of the arithmetic task: as messages, and as token ids with a mask of those that the assistant wrote.

The chat template is rendered once with marks in place of the expression and the value; the text between the marks is
the fixed parts. No digit or operator merges with a neighbour, so joining the ids of the fixed parts and of an
expression gives the same ids as tokenising the whole text, at a fraction of the cost.
"""

import re
from dataclasses import dataclass
from typing import Any

CALCULATOR: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
"""The tool as the prompt shows it, the one that ``docker/calculator-mcp-server`` offers."""

CHARACTERS = "0123456789.+-*/()"  # the characters of expressions and values

_QUESTION = re.compile(rf"What is ([{re.escape(CHARACTERS)}]+)\?")
_EXPRESSION, _VALUE = "¤", "¶"
_TURN, _TURN_END = "<|im_start|>assistant\n", "<|im_end|>"
_CUT = re.compile(f"({_EXPRESSION}|{_VALUE}|{re.escape(_TURN)}|{re.escape(_TURN_END)})")


@dataclass(frozen=True)
class ArithmeticTask:
    expression: str
    value: str


@dataclass(frozen=True)
class Transcript:
    """The token ids of an episode, prompt included; ``mask`` is 1 where the assistant wrote the token."""

    ids: list[int]
    mask: list[int]


@dataclass(frozen=True)
class _Part:
    mark: str
    ids: list[int]
    written: int


def expression_in(question: str) -> str | None:
    """The expression that a user message asks for, or None where it asks for something else."""
    match = _QUESTION.fullmatch(question.strip())
    return match.group(1) if match else None


def conversation(task: ArithmeticTask, *, with_tool: bool) -> list[dict[str, Any]]:
    user_message = {"role": "user", "content": f"What is {task.expression}?"}
    answer_message = {"role": "assistant", "content": f"<answer>{task.value}</answer>"}
    if not with_tool:
        return [user_message, answer_message]
    function = {"name": "calculator", "arguments": {"expression": task.expression}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    return [user_message, call, {"role": "tool", "content": task.value}, answer_message]


class TranscriptEncoder:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._character = {c: tokenizer.encode(c, add_special_tokens=False)[0] for c in CHARACTERS}
        self._parts = {used: self._cut(used) for used in (True, False)}
        tool_parts = self._parts[True]
        answer = next(at for at, part in enumerate(tool_parts) if part.mark == _VALUE)
        call = max(at for at, part in enumerate(tool_parts[:answer]) if part.written)
        first_gap = next(at for at, part in enumerate(tool_parts) if part.mark)
        self.preamble = [i for part in tool_parts[:first_gap] for i in part.ids]
        """The ids that every prompt begins with, up to the expression."""
        self._before_result = [i for part in tool_parts[call + 1 : answer] for i in part.ids]
        last_turn = next(at for at, part in enumerate(tool_parts) if at > answer and part.written)
        self._after_result = [i for part in tool_parts[answer + 1 : last_turn] for i in part.ids]

    def encode(self, task: ArithmeticTask, *, with_tool: bool) -> Transcript:
        """The ids of ``conversation(task)`` as the chat template renders it with the tool in the prompt."""
        ids: list[int] = []
        mask: list[int] = []
        for part in self._parts[with_tool]:
            added = part.ids
            if part.mark:
                text = task.expression if part.mark == _EXPRESSION else task.value
                added = [self._character[c] for c in text]
            ids += added
            mask += [part.written] * len(added)
        return Transcript(ids, mask)

    def prompt(self, expression: str) -> list[int]:
        episode = self.encode(ArithmeticTask(expression, ""), with_tool=False)
        return episode.ids[: episode.mask.index(1)]

    def tool_turn(self, result: str) -> list[int]:
        """The ids between an assistant turn that called the tool and the assistant's next turn."""
        result_ids = self.tokenizer.encode(result, add_special_tokens=False)
        return [*self._before_result, *result_ids, *self._after_result]

    def _cut(self, with_tool: bool) -> list[_Part]:
        text = self.tokenizer.apply_chat_template(
            conversation(ArithmeticTask(_EXPRESSION, _VALUE), with_tool=with_tool),
            tools=[CALCULATOR],
            tokenize=False,
        )
        parts, written = [], 0
        for piece in filter(None, _CUT.split(text)):
            if piece in (_EXPRESSION, _VALUE):
                parts.append(_Part(piece, [], written))
                continue
            parts.append(_Part("", self.tokenizer.encode(piece, add_special_tokens=False), written))
            written = 1 if piece == _TURN else 0 if piece == _TURN_END else written
        return parts
