"""OpenAI's older completions: POST /v1/completions, where a text is continued without a chat template.

Each request is a conversation of its own and a training row of its own: a prompt that holds an earlier answer would
have to be cut into tokens anew, and these could not be told from what was sampled. Loops belong to the chat dialects.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.rollout.messages import ChatRequest, Completion
from aworld_train.rollout.model_gateway import chat, fields, sampling
from aworld_train.rollout.model_gateway.dialect import Dialect, ParsedRequest, Surroundings, event, new_id
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.response_constraints import RequestRules

_READ = frozenset(
    {
        *("logprobs", "max_tokens", "model", "n", "prompt", "stop", "stream", "stream_options"),
        *("suffix", "temperature", "top_k", "top_p"),
    }
)
_ONE_TEXT = "one text is possible: token ids may be those of another tokenizer, and several texts are several requests"


def read(body: Json, last: ParsedRequest | None, around: Surroundings) -> ParsedRequest:
    sampling.refuse_changes(body, _READ)
    fields.text(body, "model")
    if body.get("suffix"):
        raise fields.unsupported("suffix", "the model continues a text and does not fill a gap")
    logprobs = fields.integer(body, "logprobs", min_value=0)
    options = fields.as_object(body.get("stream_options") or {}, "stream_options")
    request = ChatRequest(
        (Message("user", _prompt(body.get("prompt"))),),
        max_tokens=fields.integer(body, "max_tokens", min_value=1),
        stop=sampling.stop_texts(body, "stop"),
        logprobs=logprobs is not None,
        top_logprobs=_top_logprobs(body, around.rules),
        choices=chat.choices(body),
        plain=True,
        **sampling.requested_sampling(body),
    )
    return ParsedRequest(
        request, stream=fields.flag(body, "stream"), usage=fields.flag(options, "include_usage")
    )


def _top_logprobs(body: Json, rules: RequestRules) -> int:
    """As ``logprobs`` says; for 1, the usual value, an engine that gives no others gives the sampled token alone."""
    if body.get("logprobs") == 1 and not rules.max_top_logprobs:
        return 0
    return sampling.top_logprobs(body, rules, "logprobs")


def _prompt(prompt: Any) -> str:
    if type(prompt) is list:
        if len(prompt) != 1 or type(prompt[0]) is not str:
            raise fields.unsupported("prompt", _ONE_TEXT)
        (prompt,) = prompt
    return fields.as_name(prompt, "prompt")


def answer(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Json:
    return {**_head(model), "choices": _choices(completions, parsed), "usage": chat.usage(completions)}


def events(completions: Sequence[Completion], parsed: ParsedRequest, model: str) -> Iterator[bytes]:
    head = _head(model)
    for choice in _choices(completions, parsed):
        yield event({**head, "choices": [choice]})
    if parsed.usage:
        yield event({**head, "choices": [], "usage": chat.usage(completions)})
    yield b"data: [DONE]\n\n"


def _choices(completions: Sequence[Completion], parsed: ParsedRequest) -> list[Json]:
    return [
        {
            "index": index,
            "text": completion.content,
            "logprobs": _logprobs(completion) if parsed.request.logprobs else None,
            "finish_reason": completion.finish_reason,
        }
        for index, completion in enumerate(completions)
    ]


def _logprobs(completion: Completion) -> Json:
    offsets = [0]
    for text in completion.texts:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": list(completion.texts),
        "token_logprobs": list(completion.logprobs),
        # Of two tokens with the same text, such as special ones, the more likely stays.
        "top_logprobs": [dict(reversed(likely)) for likely in completion.top_logprobs] or None,
        "text_offset": offsets[:-1],
    }


def _head(model: str) -> Json:
    return {"id": new_id("cmpl-"), "object": "text_completion", "created": int(time.time()), "model": model}


DIALECT = Dialect("prompt", read, answer, events, chat.error, chat.error_event)
