"""Plays many episodes at once with the model in this process, to measure one that is being made."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from aworld_train.dataset.expressions import ExpressionError, evaluate, format_number
from aworld_train.model.transcripts import Transcript, TranscriptEncoder

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

TOKENS_AROUND = 16  # most tokens of a turn besides its expression or value: markup, JSON, the end of the turn


@dataclass(frozen=True)
class SampledEpisode:
    transcript: Transcript
    used_tool: bool
    answer: str | None


def play(
    model: Any,
    encoder: TranscriptEncoder,
    expressions: Sequence[str],
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> list[SampledEpisode]:
    prompts = [encoder.prompt(expression) for expression in expressions]
    max_tokens = max(map(len, expressions), default=0) + TOKENS_AROUND
    first = generate(model, encoder.tokenizer, prompts, max_tokens, temperature, generator)
    texts = [encoder.tokenizer.decode(ids, skip_special_tokens=True) for ids in first]
    results = {
        position: encoder.tool_turn(r)
        for position, text in enumerate(texts)
        if (r := tool_result(text)) is not None
    }
    second_prompts = [prompts[position] + first[position] + result for position, result in results.items()]
    second = generate(model, encoder.tokenizer, second_prompts, 2 * TOKENS_AROUND, temperature, generator)
    closing = dict(zip(results, second, strict=True))
    episodes = []
    for position, text in enumerate(texts):
        ids = prompts[position] + first[position]
        mask = [0] * len(prompts[position]) + [1] * len(first[position])
        if position in closing:
            ids += results[position] + closing[position]
            mask += [0] * len(results[position]) + [1] * len(closing[position])
            text = encoder.tokenizer.decode(closing[position], skip_special_tokens=True)
        answer = _ANSWER.search(text)
        episodes.append(
            SampledEpisode(Transcript(ids, mask), position in closing, answer.group(1) if answer else None)
        )
    return episodes


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    max_tokens: int,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> list[list[int]]:
    """Continue each prompt up to its end of turn, or by ``max_tokens`` tokens; returns only the new ids."""
    if not prompts:
        return []
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    longest = max(map(len, prompts))
    step = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts])
    attention = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    cache, finished, tokens = DynamicCache(), torch.zeros(len(prompts), dtype=torch.bool), []
    with torch.inference_mode():
        for _ in range(max_tokens):
            logits = model(
                input_ids=step,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            token = torch.where(finished, pad, _choose(logits, temperature, generator))
            tokens.append(token)
            finished |= token == end
            if finished.all():
                break
            step, positions = token[:, None], positions[:, -1:] + 1
            attention = torch.cat([attention, attention.new_ones(len(prompts), 1)], dim=1)
    sequences = torch.stack(tokens, dim=1).tolist()
    return [sequence[: sequence.index(end) + 1] if end in sequence else sequence for sequence in sequences]


def _choose(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def tool_result(turn: str) -> str | None:
    """The calculator's result for the call in a turn, or None without a valid call."""
    call = _CALL.search(turn)
    if call is None:
        return None
    try:
        return format_number(evaluate(str(json.loads(call.group(1))["arguments"]["expression"])))
    except ExpressionError as error:
        return f"error: {error.message}"
    except (ValueError, LookupError, TypeError):
        return None
