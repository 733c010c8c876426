"""Tokens are shown as text where the model's tokenizer is there, and as ids everywhere else."""

from pathlib import Path

import yaml

from aworld_train.training.recorded_run import open_run
from aworld_train.view.token_texts import token_texts
from tests.models import shipped_tokenizer
from tests.run_folders import make_run


def run_with_model(folder: Path, model: object) -> Path:
    """A run whose recipe names a model."""
    run = make_run(folder, "one")
    (run / "recipe.yaml").write_text(yaml.safe_dump({"name": "one", "model": model}))
    return run


def test_the_texts_of_tokens_are_those_of_the_runs_tokenizer(tmp_path: Path) -> None:
    tokenizer = shipped_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    run_with_model(tmp_path, {"path": str(tmp_path / "model")})
    ids = tokenizer.encode("<tool_call>17 * 4 <script>")
    texts, why = token_texts(open_run("one", tmp_path), ids)
    assert texts is not None and why == ""
    assert "".join(texts[token] for token in ids) == "<tool_call>17 * 4 <script>"


def test_a_model_that_is_not_here_leaves_ids(tmp_path: Path) -> None:
    for number, model in enumerate(
        (
            {"path": "/no/such/folder"},
            {"path": "${oc.env:NOT_SET_ANYWHERE}"},
            {},
            None,
            "text",
            {"path": str(tmp_path)},
        )
    ):
        (tmp_path / str(number)).mkdir()
        run_with_model(tmp_path / str(number), model)
        texts, why = token_texts(open_run("one", tmp_path / str(number)), [1])
        assert texts is None and "shown as ids" in why


def test_a_tokenizer_that_cannot_be_loaded_leaves_ids_and_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("no JSON")
    run_with_model(tmp_path, {"path": str(folder)})
    texts, why = token_texts(open_run("one", tmp_path), [1])
    assert texts is None and "cannot be loaded" in why
