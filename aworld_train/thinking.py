"""The marks around a model's thinking, of all families: what is inside is never part of an answer.

The parser of sampled turns and the extraction of answers from plain text share them, so that both agree on what an
answer is. A thought that a template opened in the prompt is known by the prompt's end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Marks:
    """The texts that open and close a thought, in letters of any case."""

    opens: str
    closes: str
    ends: str = ""
    """A pattern of all texts that end a thought, where there are several."""

    @cached_property
    def end(self) -> re.Pattern[str]:
        return re.compile(self.ends or re.escape(self.closes), re.IGNORECASE)

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
# The first character is not a letter; where it is outside the part without case, texts are searched faster.
PATTERN = "|".join(
    f"{re.escape(text[0])}(?i:{re.escape(text[1:])})"
    for marks in MARKS
    for text in (marks.opens, marks.closes)
)
# gpt-oss thinks in a channel, which its call format reads itself; not among MARKS, since other turns end with <|end|>.
_CHANNEL = Marks("<|channel|>analysis", "<|end|>", r"<\|(?:end|return|call|start)\|>|(?=<\|channel\|>)")
_CHANNEL_WITHOUT_TOKENS = Marks("assistantanalysis", "assistantfinal", "assistant(?:final|commentary)")
_ANY = re.compile(
    rf"(?P<channel><\|channel\|>\s*analysis)|(?P<words>assistantanalysis|(?m:^)analysis(?=[A-Z<\\])"
    rf"|\A\s*analysis(?s:(?=.*assistantfinal)))|{PATTERN}"
)
_TEXT_TYPES = ("text", "input_text", "output_text")
"""Types of a message's parts that hold text for the reader, in Chat Completions and in Responses."""


@dataclass(frozen=True)
class Divided:
    """A text, divided by its thoughts: the pieces outside, where the first of them begins, and marks without an end."""

    outside: list[str]
    begin: int = 0
    unfinished: Marks | None = None


def divide(text: str) -> Divided:
    """Divide a text by its thoughts; an unfinished one runs to the end.

    A closing mark without an opening one closes a thought that the prompt opened: nothing before it is an answer.
    """
    outside: list[str] = []
    begin = position = 0
    while mark := _ANY.search(text, position):
        outside.append(text[position : mark.start()])
        position = mark.end()
        if mark["channel"] or mark["words"]:
            inside: Marks | None = _CHANNEL if mark["channel"] else _CHANNEL_WITHOUT_TOKENS
        else:
            inside = opened_at(mark.group())
        if inside is None:
            outside, begin = [], position
            continue
        end = inside.end.search(text, position)
        if end is None:
            return Divided(outside, begin, inside)
        position = end.end()
    return Divided([*outside, text[position:]], begin)


def closed(text: str) -> str:
    divided = divide(text)
    return text[divided.begin :] + (divided.unfinished.closes if divided.unfinished else "")


def part_text(part: Any) -> str:
    """The text of a part of a message's content; empty for a thought and for what is not text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type", "text") not in _TEXT_TYPES or part.get("thought"):
        return ""
    return text if isinstance(text := part.get("text"), str) else ""


def opened_at(mark: str) -> Marks | None:
    """The marks of the thought that this one opens; None if it closes one."""
    return _BY_OPENING.get(mark.lower())


def opened_by(prompt_end: str) -> Marks | None:
    end = prompt_end.rstrip()
    return next((marks for marks in (*MARKS, *_IN_PROMPTS) if end.endswith(marks.opens)), None)
