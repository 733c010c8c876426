"""Reports several faults in one error."""

from aworld_train.errors import RecipeError


def refuse(sentences: list[str]) -> None:
    """Raise one error that contains every sentence; do nothing if there is none.

    Raises:
        RecipeError: There is at least one sentence.
    """
    if len(sentences) == 1:
        raise RecipeError(sentences[0])
    if sentences:
        raise RecipeError(f"{len(sentences)} problems:\n" + "\n".join(f"  - {text}" for text in sentences))
