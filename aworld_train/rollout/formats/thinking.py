"""The marks around a model's thinking, of all families: what is inside is never part of an answer.

The marks are the same for the parser of sampled turns and for the extraction of answers from plain text, so that both
agree on what an answer is. A thought that a template opened in the prompt is known by the prompt's end.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """The texts that open and close a thought."""

    opens: str
    closes: str


MARKS = (
    Marks("<think>", "</think>"),  # Qwen, DeepSeek, GLM, MiniMax, Kimi, Nemotron and most others
    Marks("[THINK]", "[/THINK]"),  # Mistral
    Marks("<seed:think>", "</seed:think>"),  # Seed
    Marks("◁think▷", "◁/think▷"),  # Kimi-VL
    Marks("<|channel>thought", "<channel|>"),  # Gemma 4
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Marks("<mm:think>", "</mm:think>"),  # MiniMax M3
    Marks("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
)
# Plain words, which only count where the prompt ends with the opening ones: Apriel.
_IN_PROMPTS = (Marks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),)
BY_OPENING = {marks.opens: marks for marks in MARKS}
PATTERN = "|".join(re.escape(text) for marks in MARKS for text in (marks.opens, marks.closes))
_ANY = re.compile(PATTERN)


@dataclass(frozen=True)
class Thoughts:
    """A text, divided: the pieces outside thoughts and the thoughts, each in order; the last may be unfinished."""

    outside: list[str]
    thoughts: list[str]
    unfinished: bool = False


def divide(text: str, opened: Marks | None = None) -> Thoughts:
    """Divide a text into thoughts and the rest; an unfinished thought runs to the end.

    A closing mark without an opening one closes a thought that the prompt opened: nothing before it is an answer.

    Args:
        text: The assistant's text.
        opened: The marks of the thought that the prompt has opened.
    """
    outside: list[str] = []
    thoughts: list[str] = []
    inside, position = opened, 0
    while True:
        if inside is not None:
            end = text.find(inside.closes, position)
            if end < 0:
                return Thoughts(outside, [*thoughts, text[position:]], unfinished=True)
            thoughts.append(text[position:end])
            position = end + len(inside.closes)
        mark = _ANY.search(text, position)
        if mark is None:
            return Thoughts([*outside, text[position:]], thoughts)
        outside.append(text[position : mark.start()])
        inside, position = BY_OPENING.get(mark.group()), mark.end()
        if inside is None:
            thoughts += outside
            outside = []


def opened_by(prompt_end: str) -> Marks | None:
    """The marks of the thought that the end of a prompt opens; None if it opens none."""
    end = prompt_end.rstrip()
    return next((marks for marks in (*MARKS, *_IN_PROMPTS) if end.endswith(marks.opens)), None)
