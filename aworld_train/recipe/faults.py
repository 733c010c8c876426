"""All that is wrong, said at once."""

from aworld_train.errors import RecipeError


def refuse(sentences: list[str]) -> None:
    """Raise one error that says every sentence; do nothing when there is none.

    Raises:
        RecipeError: When there is at least one sentence.
    """
    if len(sentences) == 1:
        raise RecipeError(sentences[0])
    if sentences:
        raise RecipeError(f"{len(sentences)} problems:\n" + "\n".join(f"  - {text}" for text in sentences))
