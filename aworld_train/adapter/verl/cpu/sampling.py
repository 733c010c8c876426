"""Samples a token from logits, with parameters per request, and returns its log-probability.

The log-probability is that of the distribution from which the token was drawn: after temperature, top-k and top-p,
renormalised. With temperature 0 the most likely token is taken and its log-probability is that of the plain softmax.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Further keys that VeRL or an agent may send, with the values that do not change sampling; others are refused.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None),
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "min_p": (0, None),
    "n": (1, None),
    "logprobs": (0, 1, None),
    "include_stop_str_in_output": (True, None),
    "detokenize": (False, True, None),
}


MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True)
class GenerationParams:
    """The parameters of one request; without a ``seed`` it takes the random numbers that all requests share.

    Temperature 0 takes the most likely token; top_p 1 and top_k -1 are off. The tokens of a ``stop`` text are returned.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    seed: int | None = None
    prompt_logprobs: int | None = None  # of each position: 0 its own token's, k those of the k likeliest

    @classmethod
    def parse(cls, request: Mapping[str, Any], *, default_max_tokens: int) -> "GenerationParams":
        """Read sampling parameters as VeRL sends them; ValueError if one is out of range or not supported."""
        rest = dict(request)
        named = [rest.pop(key, None) for key in ("max_tokens", "max_new_tokens")]
        params = cls(
            max_tokens=int(next((value for value in named if value is not None), default_max_tokens)),
            temperature=float(rest.pop("temperature", 1.0)),
            top_p=float(rest.pop("top_p", 1.0)),
            top_k=int(rest.pop("top_k", -1) or -1),
            stop_token_ids=frozenset(rest.pop("stop_token_ids", None) or ()),
            ignore_eos=bool(rest.pop("ignore_eos", False)),
            stop=_texts(rest.pop("stop", None)),
            top_logprobs=int(rest.pop("top_logprobs", None) or 0),
            seed=_whole(rest.pop("seed", None)),
            prompt_logprobs=_whole(rest.pop("prompt_logprobs", None)),
        )
        for key, value in rest.items():
            if key not in _NEUTRAL:
                raise ValueError(f"the transformers engine does not know the sampling parameter {key!r}")
            if value not in _NEUTRAL[key]:
                raise ValueError(f"the transformers engine does not support {key}={value!r}")
        if params.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {params.max_tokens}")
        if params.temperature < 0 or not math.isfinite(params.temperature):
            raise ValueError(f"temperature must be at least 0, not {params.temperature}")
        if not 0 < params.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {params.top_p}")
        if params.top_k < -1:
            raise ValueError(f"top_k must be -1 (off) or at least 1, not {params.top_k}")
        if not 0 <= params.top_logprobs <= MAX_TOP_LOGPROBS:
            raise ValueError(f"top_logprobs must be 0 to {MAX_TOP_LOGPROBS}, not {params.top_logprobs}")
        if params.prompt_logprobs is not None and (params.prompt_logprobs < 0 or params.max_tokens != 1):
            raise ValueError(
                f"prompt_logprobs must be at least 0 and goes with max_tokens=1, not {params.prompt_logprobs} with "
                f"{params.max_tokens}"
            )
        return params


def _texts(stop: Any) -> tuple[str, ...]:
    return tuple(filter(None, [stop] if isinstance(stop, str) else stop or ()))


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def sample(
    logits: torch.Tensor,
    params: Sequence[GenerationParams],
    generator: torch.Generator,
    own_generators: Sequence[torch.Generator | None] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row of ``logits`` ``[batch, vocabulary]``; returns ids and log-probabilities, ``[batch]``.

    ``own_generators`` replace ``generator`` in rows that have one; rows with temperature 0 use neither.
    """
    logprobs = _log_distribution(logits, params)
    greedy = torch.tensor([p.temperature == 0 for p in params])
    # Not of the log-probabilities, because rounding can make two of them equal.
    tokens = logits.argmax(dim=-1)
    if not bool(greedy.all()):
        probabilities = logprobs.exp()
        drawn = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        for row, own in enumerate(own_generators):
            if own is not None and params[row].temperature > 0:
                drawn[row] = torch.multinomial(probabilities[row], 1, generator=own)[0]
        tokens = torch.where(greedy, tokens, drawn)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def most_likely(logits: torch.Tensor, params: GenerationParams) -> list[tuple[int, float]]:
    """The most likely tokens of ``logits`` (``[vocabulary]``) that can be drawn, with their log-probabilities."""
    logprobs = _log_distribution(logits[None], [params])[0]
    values, tokens = logprobs.topk(min(params.top_logprobs, logprobs.shape[0]))
    pairs = zip(tokens.tolist(), values.tolist(), strict=True)
    return [(token, value) for token, value in pairs if value > -math.inf]


def _log_distribution(logits: torch.Tensor, params: Sequence[GenerationParams]) -> torch.Tensor:
    temperatures = torch.tensor([p.temperature or 1.0 for p in params], dtype=torch.float32)
    scores = logits.float() / temperatures[:, None]
    if any(p.top_k > 0 or p.top_p < 1 for p in params):
        scores = _truncate(scores, params)
    return torch.log_softmax(scores, dim=-1)


def _truncate(scores: torch.Tensor, params: Sequence[GenerationParams]) -> torch.Tensor:
    """Mask the tokens that top-k and then top-p exclude; a row that uses neither, or is greedy, is unchanged."""
    vocabulary = scores.shape[-1]
    limited = [p.temperature > 0 for p in params]
    top_k = torch.tensor(
        [p.top_k if on and p.top_k > 0 else vocabulary for p, on in zip(params, limited, strict=True)]
    ).clamp(max=vocabulary)
    top_p = torch.tensor([p.top_p if on else 1.0 for p, on in zip(params, limited, strict=True)])
    ordered, indices = scores.sort(dim=-1, descending=True, stable=True)
    ordered = ordered.masked_fill(torch.arange(vocabulary)[None] >= top_k[:, None], -math.inf)
    probabilities = ordered.softmax(dim=-1)
    # A token stays while the mass *before* it is below top_p, so the most likely token always stays.
    before = probabilities.cumsum(dim=-1) - probabilities
    ordered = ordered.masked_fill((before >= top_p[:, None]) & (top_p[:, None] < 1), -math.inf)
    return torch.empty_like(scores).scatter_(1, indices, ordered)
