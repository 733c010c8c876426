"""The marks around a model's thinking, of all families: what is inside is never part of an answer.

The marks are the same for the parser of sampled turns and for the extraction of answers from plain text, so that both
agree on what an answer is. A thought that a template opened in the prompt is known by the prompt's end.
"""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Marks:
    """The texts that open and close a thought, in letters of any case."""

    opens: str
    closes: str

    @cached_property
    def end(self) -> re.Pattern[str]:
        """The end of a thought."""
        return re.compile(re.escape(self.closes), re.IGNORECASE)

    def thought(self, text: str) -> str:
        """A thought's text, without an opening mark that repeats the prompt's."""
        text = text.strip()
        return text[len(self.opens) :] if text.lower().startswith(self.opens.lower()) else text


MARKS = (
    Marks("<think>", "</think>"),  # Qwen, DeepSeek, GLM, MiniMax, Kimi, Nemotron and most others
    Marks("<thinking>", "</thinking>"),  # prompts for Claude
    Marks("<thought>", "</thought>"),  # Gemini and Gemma 3
    Marks("<reasoning>", "</reasoning>"),  # older prompts
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
_BY_OPENING = {marks.opens.lower(): marks for marks in MARKS}
# The first character is no letter; where it is outside the part without case, texts are searched faster.
PATTERN = "|".join(
    f"{re.escape(text[0])}(?i:{re.escape(text[1:])})"
    for marks in MARKS
    for text in (marks.opens, marks.closes)
)
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
            end = inside.end.search(text, position)
            if end is None:
                return Thoughts(outside, [*thoughts, text[position:]], unfinished=True)
            thoughts.append(text[position : end.start()])
            position = end.end()
        mark = _ANY.search(text, position)
        if mark is None:
            return Thoughts([*outside, text[position:]], thoughts)
        outside.append(text[position : mark.start()])
        inside, position = opened_at(mark.group()), mark.end()
        if inside is None:
            thoughts += outside
            outside = []


def opened_at(mark: str) -> Marks | None:
    """The marks of the thought that this one opens; None if it closes one."""
    return _BY_OPENING.get(mark.lower())


def opened_by(prompt_end: str) -> Marks | None:
    """The marks of the thought that the end of a prompt opens; None if it opens none."""
    end = prompt_end.rstrip()
    return next((marks for marks in (*MARKS, *_IN_PROMPTS) if end.endswith(marks.opens)), None)
