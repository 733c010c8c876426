"""Tokenizers with the chat templates that model families have, for tests of rendering and recording.

The templates in ``tests/data/chat_templates`` are this project's own, in the layouts that the families are known for,
with the habits that make recording hard: thinking that disappears, trimmed texts, turns that must alternate.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from aworld_train.episode.images import Image
from aworld_train.rollout.formats import FORMATS, read_turn
from aworld_train.rollout.model import ParsedTurn, SampledTokens, SamplingParams
from aworld_train.rollout.template import ChatTemplate

_FOLDER = Path(__file__).parent / "data" / "chat_templates"
ENDS = {
    "chatml_tools": "<|im_end|>",
    "chatml_thinking": "<|im_end|>",
    "headers": "<|eot_id|>",
    "strict": "</s>",
}
SPECIAL = [
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ),
    *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"),
]
_MARKUP = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>"]
_LITTLE = (
    "the answer is what was asked and the tool said so " * 3,
    "assistant user system tool ipython\n\n" * 3,
)


@lru_cache(maxsize=8)
def tokenizer(family: str, corpus: tuple[str, ...] = _LITTLE) -> Any:
    """A byte-level tokenizer, trained on little unless told otherwise, with that family's template and end of turn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600 if corpus is _LITTLE else 16_000,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    bpe.add_tokens([AddedToken(text, special=False, normalized=False) for text in _MARKUP])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=ENDS[family],
        chat_template=(_FOLDER / f"{family}.jinja").read_text("utf-8"),
    )


def template(family: str, **options: Any) -> ChatTemplate:
    """A fresh chat template of that family."""
    copied_tokenizer = tokenizer(family)
    return ChatTemplate(copied_tokenizer, [copied_tokenizer.eos_token_id], options)


def parse(family: str, tokens: Sequence[int]) -> ParsedTurn:
    """A turn in which tool calls are written as Qwen's models do, whatever the family."""
    text = tokenizer(family).decode(tokens).replace(ENDS[family], "")
    return read_turn(text, FORMATS["hermes"], ())


def cut_up(tokenizer: Any, text: str, seed: int) -> list[int]:
    """Tokens that decode to ``text``; with a seed, not the ones that the tokenizer would choose."""
    if not seed:
        return list(tokenizer.encode(text, add_special_tokens=False))
    size = seed + 1
    return [
        token
        for i in range(0, len(text), size)
        for token in tokenizer.encode(text[i : i + size], add_special_tokens=False)
    ]


@dataclass
class ScriptedModel:
    """A model of some family that samples what the test decided, and keeps what it was given and returned.

    Every sampled token has a log-probability that no other token has, so that a row shows where each came from.
    """

    family: str
    draw: Callable[[Any], tuple[list[int], bool]]
    calls: list[tuple[list[int], SampledTokens]] = field(default_factory=list)
    count: int = 0
    max_top_logprobs: int = 0

    def __post_init__(self) -> None:
        self.template = template(self.family)
        self.tokenizer = tokenizer(self.family)

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        prompt = list(tokens)
        await asyncio.sleep(0)
        new, ended = self.draw(self.tokenizer)
        logprobs = [-1.0 - (self.count + i) / 1024 for i in range(len(new))]
        self.count += len(new)
        likely = [
            [(token, logprob), (token + 1, -9.0)][: sampling.top_logprobs]
            for token, logprob in zip(new, logprobs, strict=True)
        ]
        self.calls.append(
            (
                prompt,
                SampledTokens(list(new), list(logprobs), ended, top_logprobs=likely if likely[0] else ()),
            )
        )
        return self.calls[-1][1]

    async def parse(self, tokens: Sequence[int], tools: Sequence[Any], prompt: Sequence[int]) -> ParsedTurn:
        return parse(self.family, tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
