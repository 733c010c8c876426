"""How GAIA's questions are put: a system prompt, and a message with the question and the paths of its attachments."""

from collections.abc import Callable, Sequence

from aworld_train.dataset.prompts import prompt_text, with_attachments
from aworld_train.errors import UsageError

PLACES = {
    "answer": "between <answer> and </answer>",
    "boxed": r"in \boxed{}",
    "last_line": "on the last line",
}
"""Where the prompt asks the agent to put its answer, by answer schema."""


def gaia_prompts(schema: str) -> tuple[str, Callable[[str, Sequence[str]], str]]:
    """The system prompt, and what makes the message of a question and paths."""
    if schema not in PLACES:
        raise UsageError(
            f"--answer-schema {schema}: GAIA's prompts ask for the answer where the schema finds it, as they can for "
            f"{', '.join(PLACES)}."
        )
    system, task = (
        prompt_text(name).replace("{place}", PLACES[schema]) for name in ("gaia_system.txt", "gaia_task.txt")
    )
    before, _, after = task.partition("{question}")

    def compose(question: str, paths: Sequence[str]) -> str:
        return f"{before}{with_attachments(question, paths)}{after}"

    return system, compose
