"""Thirteen ways in which a question of an evaluation set comes into training data, from numbering to another word."""

import re
from collections.abc import Callable

_FIRST_WORDS = 3


def in_bold(question: str) -> str:
    words = question.split(" ")
    return f"<b>{' '.join(words[:_FIRST_WORDS])}</b> {' '.join(words[_FIRST_WORDS:])}"


def with_another_word(question: str) -> str:
    """The longest word of letters alone is another one."""
    longest = max((word for word in question.split() if word.isalpha()), key=len)
    return question.replace(longest, "lighthouse", 1)


def typed_anew(question: str) -> str:
    return re.sub(r"[,;.](?=\s|$)", "", question).replace(" ", "  ").upper()


KINDS: dict[str, Callable[[str], str]] = {
    "a number in front": lambda question: f"1. {question}",
    "Problem 12:": lambda question: f"Problem 12: {question}",
    "points": lambda question: f"{question} (5 points)",
    "<b>": in_bold,
    "<p> and <br>": lambda question: "<p>" + question.replace(". ", ".<br>") + "</p>",
    "\\$": lambda question: question.replace("$", "\\$"),
    "and/or": lambda question: question.replace(" and ", " and/or ", 1),
    "Markdown's bold figures": lambda question: re.sub(r"\d+", r"**\g<0>**", question),
    "LaTeX's marks": lambda question: re.sub(r"\d+", r"\\(\g<0>\\)", question),
    "case, spaces, commas": typed_anew,
    "a preface": lambda question: (
        f"You are a patient tutor of mathematics. Solve the following problem, and show each step.\n\n{question}"
    ),
    "step by step, and an answer": lambda question: (
        f"{question}\nLet's think step by step, and write the final answer after ####.\nThe answer is 42."
    ),
    "another word": with_another_word,
}
