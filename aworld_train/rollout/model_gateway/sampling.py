"""The sampling parameters of a request: what may be chosen is passed on, changes are refused, others are ignored.

The trainer decides how tokens are sampled, and learns from their log-probabilities. A parameter that changes the
distribution without the trainer (a penalty, a grammar, a forced tool) would make these wrong, so it is refused unless
it has its neutral value. The names are those of OpenAI, vLLM and SGLang.
"""

import logging
from collections.abc import Mapping
from typing import Any

from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.response_constraints import RequestRules

log = logging.getLogger(__name__)

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("audio", "web_search_options"), ()),
    **dict.fromkeys(("frequency_penalty", "min_p", "min_tokens", "presence_penalty"), (0,)),
    **dict.fromkeys(("prompt_logprobs", "top_logprobs"), (0,)),  # or False
    **dict.fromkeys(("best_of", "length_penalty", "n", "repetition_penalty", "typical_p"), (1,)),
    **dict.fromkeys(("continue_final_message", "echo", "ignore_eos", "use_beam_search"), (False,)),
    **dict.fromkeys(("chat_template", "ebnf", "guided_grammar", "guided_regex", "regex"), ("",)),
    **dict.fromkeys(("allowed_token_ids", "bad_words", "documents"), ([],)),
    **dict.fromkeys(("guided_choice", "logits_processors", "stop_token_ids"), ([],)),
    **dict.fromkeys(("logit_bias", "structured_outputs"), ({},)),
    "add_generation_prompt": (True,),
    "guided_json": ("", {}),
    "modalities": (["text"],),
}
"""The values that change nothing, by parameter; ``null`` always changes nothing."""

_BY_DEFAULT = "it would change how tokens are sampled, which the trainer decides and learns from"
_PROMPT = "it would change how the prompt is written, which the recipe and the model's chat template decide"
_REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("add_generation_prompt", "chat_template", "continue_final_message", "documents"), _PROMPT
    ),
    **dict.fromkeys(("audio", "modalities"), "the model answers with text alone"),
    "best_of": "every answer that is sampled is also returned; `n` asks for several",
    "echo": "the prompt is not repeated in the answer",
    "mcp_servers": "tools are called by the agent, not by the model's server",
    "n": "one answer comes to each request of this endpoint; /v1/chat/completions gives several",
    "prompt_logprobs": "the engine gives log-probabilities of sampled tokens alone",
    "stop_token_ids": "only the model's own tokens end its turn; `stop` takes texts",
    "top_logprobs": "/v1/chat/completions and /v1/responses have it",
    "web_search_options": "only an agent's own tools are possible",
}

_MAX_NAMES = 1000
_ignored: set[str] = set()


def refuse_changes(
    body: Mapping[str, Any], read: frozenset[str], neutral: Mapping[str, tuple[Any, ...]] = NEUTRAL
) -> None:
    """Refuse a request with a parameter that changes sampling, unless it is among those ``read`` elsewhere."""
    for name, value in body.items():
        if name in read or value is None:
            continue
        neutral_values = neutral.get(name)
        if neutral_values is None:
            _note_ignored(name)
        elif value not in neutral_values:
            raise fields.unsupported(name, _REASONS.get(name, _BY_DEFAULT))


def refuse_other_template_options(body: Mapping[str, Any], rules: RequestRules) -> None:
    """Refuse ``chat_template_kwargs`` that differ from the recipe's, or any if the rules are strict."""
    name = "chat_template_kwargs"
    options = body.get(name)
    if not options:
        return
    own = rules.template_options
    for option, value in fields.as_object(options, name).items():
        if rules.strict:
            raise fields.unsupported(name, _PROMPT)
        if option not in own or own[option] != value:
            in_recipe = f"is {own[option]!r} there" if option in own else "is not among them"
            raise fields.unsupported(
                f"{name}.{option}",
                f"the recipe decides the arguments of the chat template, and {option[:100]!r} {in_recipe}",
            )


def requested_sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "temperature": fields.number(body, "temperature"),
        "top_p": fields.number(body, "top_p", max_value=1),
        "top_k": fields.integer(body, "top_k", min_value=-1),
    }


def top_logprobs(body: Mapping[str, Any], rules: RequestRules, parameter: str = "top_logprobs") -> int:
    count = fields.integer(body, parameter, min_value=0) or 0
    if count and not rules.max_top_logprobs:
        raise fields.unsupported(
            parameter, "this engine gives the log-probability of the sampled token alone"
        )
    if count > rules.max_top_logprobs:
        raise fields.wrong(count, parameter, f"an integer from 0 to {rules.max_top_logprobs}")
    return count


def stop_texts(body: Mapping[str, Any], parameter: str) -> tuple[str, ...]:
    value = body.get(parameter)
    if value is None:
        return ()
    if type(value) is str:
        value = [value]
    texts = fields.array({parameter: value}, parameter)
    return tuple(fields.as_name(text, f"{parameter}[{index}]") for index, text in enumerate(texts))


def _note_ignored(name: str) -> None:
    if name not in _ignored and len(_ignored) < _MAX_NAMES:
        _ignored.add(name)
        log.debug("requests have a parameter %r, which does nothing here", name[:100])
