"""The tokens of a model by its files alone: the library that loads a tokenizer takes seconds to import."""

from pathlib import Path

from aworld_train.model.files import read_json


def tokens_of(folder: Path) -> dict[str, int] | None:
    """The number of each token, added ones included; None without a `tokenizer.json` that has them."""
    content = read_json(folder / "tokenizer.json")
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of pieces with their scores
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        return None
    return {**vocabulary, **{token["content"]: token["id"] for token in content.get("added_tokens") or ()}}
