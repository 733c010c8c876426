"""A template is tried before a run, and the line says how it continues turns."""

from copy import deepcopy
from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.rollout.template import CannotContinue, ChatTemplate
from aworld_train.rollout.template_proof import prove
from tests import templates

ONE_ROW = "The chat template continues each turn: an episode is one training row."


def changed(family: str, old: str, new: str) -> ChatTemplate:
    """The template of that family with another text in one place."""
    tokenizer: Any = deepcopy(templates.tokenizer(family))
    assert old in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(old, new)
    return ChatTemplate(tokenizer, [tokenizer.eos_token_id])


@pytest.mark.parametrize("family", templates.ENDS)
def test_each_turn_is_continued(family: str) -> None:
    assert prove(templates.template(family)).line == ONE_ROW


def test_a_template_that_hides_the_assistant_begins_a_row_per_turn() -> None:
    template = changed("chatml_tools", "message.role + '\\n' + message.content", "message.role")
    proof = prove(template)
    assert proof.anew == {"a user's message": "the template does not show an assistant's turn once, as it is"}
    assert proof.line.startswith(
        "The chat template renders the whole history anew after a user's message (a row"
    )


def test_a_template_without_tools_refuses_their_results() -> None:
    template = changed("chatml_tools", "{%- if tools -%}", "{%- if tools -%}{{ raise_exception('no') }}")
    proof = prove(template)
    assert proof.line == "The chat template refuses a tool's result: TemplateError: no."
    assert not proof.anew


def test_what_would_be_continued_otherwise_is_rendered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tokenizers put a space before every text, and so before each part of a conversation."""
    template = templates.template("chatml_tools")
    encode = template._tokens_of
    monkeypatch.setattr(template, "_tokens_of", lambda text: encode(f" {text}"))
    assert list(prove(template).anew) == ["a tool's result", "a user's message"]
    history = [Message("user", "?"), Message("assistant", "4")]
    with pytest.raises(CannotContinue, match="differently into a whole history"):
        template.continuation(
            history, [Message("user", "!")], [], list(template.ends), ended=True, tools_key=""
        )
