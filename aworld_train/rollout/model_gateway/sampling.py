"""What a request may say about sampling: a wish is passed on, a change is refused, the rest does nothing.

The trainer decides how tokens are sampled, and it learns from their log-probabilities. A parameter that changes the
distribution behind its back (a penalty, a grammar, a forced tool) would make those wrong, so it is refused unless it
has the value that changes nothing. Names are those of OpenAI, and of vLLM and SGLang beyond.
"""

import logging
from collections.abc import Mapping
from typing import Any

from aworld_train.rollout.model_gateway import fields

log = logging.getLogger(__name__)

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": ("",),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "ebnf": ("",),
    "echo": (False,),
    "frequency_penalty": (0,),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "guided_json": ("", {}),
    "guided_regex": ("",),
    "ignore_eos": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "prompt_logprobs": (False, 0),
    "regex": ("",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "stop_token_ids": ([],),
    "structured_outputs": ({},),
    "top_logprobs": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "web_search_options": (),
}
"""The values that change nothing, by parameter; ``null`` is one of them everywhere."""

_MAX_NAMES = 1000
_ignored: set[str] = set()


def refuse_changes(
    body: Mapping[str, Any], read: frozenset[str], neutral: Mapping[str, tuple[Any, ...]] = NEUTRAL
) -> None:
    """See to it that nothing in a request changes sampling.

    Args:
        body: The request.
        read: The parameters that are read elsewhere.
        neutral: The values that change nothing, by parameter.

    Raises:
        Refused: something does.
    """
    for name, value in body.items():
        if name in read or value is None:
            continue
        neutral_values = neutral.get(name)
        if neutral_values is None:
            _note_ignored(name)
        elif value not in neutral_values:
            raise fields.unsupported(
                name, "it would change how tokens are sampled, which the trainer decides"
            )


def requested_sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is passed on: ``temperature``, ``top_p`` and ``top_k``."""
    return {
        "temperature": fields.number(body, "temperature"),
        "top_p": fields.number(body, "top_p", max_value=1),
        "top_k": fields.integer(body, "top_k", min_value=-1),
    }


def stop_texts(body: Mapping[str, Any], parameter: str) -> tuple[str, ...]:
    """The texts that end a turn: one, several or none."""
    value = body.get(parameter)
    if type(value) is str:
        value = [value]
    texts = fields.array({parameter: value}, parameter)
    return tuple(fields.as_name(text, f"{parameter}[{index}]") for index, text in enumerate(texts))


def _note_ignored(name: str) -> None:
    if name not in _ignored and len(_ignored) < _MAX_NAMES:
        _ignored.add(name)
        log.debug("requests have a parameter %r, which does nothing here", name[:100])
