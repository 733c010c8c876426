"""Signs that a reward was won by something else than what the task is about.

None of them proves anything, and none changes a score: each is a question that an episode raises, counted per step and
kept with enough of the episode to look at it. An answer is looked for as a whole word, and only where it is long enough
not to be found anywhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_MIN_CHARS = 3
_WORDS = re.compile(r"\w+")
_SHINGLE = 6
_MAX_WORDS = 20_000
_REPEATED_SHARE = 0.5
_MAX_SHOWN = 500
# Named, for any dot between letters would do else, and `example.com` be a file; nor is `response.json()` one.
_DATA = re.compile(
    r"\w\.(?:csv|tsv|jsonl?|parquet|arrow|feather|db|sqlite3?|pkl|npy|npz|zip|tar|gz)(?![\w(])", re.IGNORECASE
)
_DOCUMENT = re.compile(
    r"\w\.(?:txt|md|rst|log|ya?ml|xml|html?|pdf|docx?|odt|rtf|pptx?|xlsx?|ods|png|jpe?g|gif|tiff?|mp3|m4a|wav|mp4"
    r"|mov|pdb)(?![\w(])",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\b[a-z]{2,10}://[^\s\"'\\]+", re.IGNORECASE)


class Suspicion(StrEnum):
    """What may be wrong with an episode."""

    other_file = "answer_in_other_file"
    copied_prompt = "answer_from_prompt"
    repeated_text = "repeated_text"
    no_tool = "right_without_tool"

    @property
    def meaning(self) -> str:
        """One sentence for people."""
        return _MEANINGS[self]


_MEANINGS = {
    Suspicion.other_file: "the answer stands in a tool's result about a file that the task did not come with",
    Suspicion.copied_prompt: "the answer stands in the task's own words",
    Suspicion.repeated_text: "most of what was said had been said before",
    Suspicion.no_tool: "the answer is right and no tool was called",
}


@dataclass(frozen=True)
class ToolUse:
    """A call as the model wrote it, and what came back."""

    arguments: str
    result: str


def suspicions(
    *,
    query: str,
    said: str,
    answer: str | None,
    right: bool,
    tools: Sequence[ToolUse],
    tool_calls: int,
    files: Sequence[str],
) -> list[Suspicion]:
    """What an episode makes one ask.

    Args:
        query: The task as it was given.
        said: All that the assistant said.
        answer: What was extracted from it.
        right: Whether that is right.
        tools: The calls of the episode.
        tool_calls: How many calls there were, those that are not among ``tools`` too.
        files: The files that the task came with, as paths in the tool environment.
    """
    found = []
    if (
        right
        and answer
        and any(_of_another_file(use, files) and _stands_in(answer, use.result) for use in tools)
    ):
        found.append(Suspicion.other_file)
    if right and answer and _stands_in(answer, query):
        found.append(Suspicion.copied_prompt)
    if _repeats_itself(said):
        found.append(Suspicion.repeated_text)
    if right and not tool_calls:
        found.append(Suspicion.no_tool)
    return found


def look(query: str, said: str, answer: str | None, truth: str) -> Mapping[str, str | None]:
    """What of a suspicious episode is kept to be looked at."""
    extracted = None if answer is None else answer[:_MAX_SHOWN]
    return {
        "query": query[:1000],
        "said": said[-2000:],
        "extracted": extracted,
        "ground_truth": truth[:_MAX_SHOWN],
    }


def _of_another_file(use: ToolUse, files: Sequence[str]) -> bool:
    """Whether a call names files, and none of them is the task's."""
    if any(path.rpartition("/")[2] in use.arguments for path in files):
        return False
    # A page of the web is no file, though its address may end like one; a benchmark's answers there are.
    here = _ADDRESS.sub(" ", use.arguments)
    return bool(_DATA.search(use.arguments) or _DOCUMENT.search(here))


def _stands_in(answer: str, text: str) -> bool:
    wanted = " ".join(answer.casefold().split())
    if len(wanted) < _MIN_CHARS:
        return False
    return bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", " ".join(text.casefold().split())))


def _repeats_itself(text: str) -> bool:
    """Whether most runs of six words have come before."""
    words = [word.group() for word in _WORDS.finditer(text[: 10 * _MAX_WORDS])][:_MAX_WORDS]
    runs = [tuple(words[at : at + _SHINGLE]) for at in range(len(words) - _SHINGLE + 1)]
    return len(runs) >= 4 * _SHINGLE and len(set(runs)) < (1 - _REPEATED_SHARE) * len(runs)
