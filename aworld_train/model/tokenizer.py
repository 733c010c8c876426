"""The tiny model's tokenizer: one token for each phrase that every episode repeats, one per digit, bytes for the rest.

Byte-level BPE whose words are the runs of text between digits, operators and line breaks, spaces included.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from aworld_train.model.transcripts import CALCULATOR, ArithmeticTask, conversation

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)

MARKUP = tuple(
    f"<{slash}{name}>" for name in ("tool_call", "tool_response", "tools", "answer") for slash in ("", "/")
)
"""Single tokens that decoding keeps even when it skips special ones, because parsers and scorers need them."""

ISOLATED = r"[0-9.+\-*/()\n]"
"""Characters that never merge with a neighbour. The line break is one of them because verl's continuous-token
builder for Qwen puts exactly one newline token after ``<|im_end|>`` (``utils/tokenizer/continuous_token.py``)."""

CONTEXT = 2048  # context length in tokens that the model declares; an episode has fewer than 100


def build() -> Any:
    """Train the tokenizer, a `PreTrainedTokenizerFast`; it is the same every time, whatever the model's seed."""
    template = read_template()
    text = render(conversation(ArithmeticTask("1+1", "2"), with_tool=True), template, [CALCULATOR])
    return train([text], ISOLATED, template)


def train(
    texts: Sequence[str], words: str, template: str, *, also: Sequence[str] = (), min_frequency: int = 0
) -> Any:
    """A byte-level BPE tokenizer of rendered conversations.

    ``words`` is a pattern of what never merges with its neighbours; ``also`` has words beside those of the texts.
    """
    from tokenizers import AddedToken, Regex, decoders, pre_tokenizers, trainers

    bpe = _empty()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    # Training ends when no pair repeats any more, which is far below this size.
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Cut at the added tokens, because the trainer would merge across them.
    added_tokens = "|".join(map(re.escape, (*SPECIAL, *MARKUP)))
    bpe.train_from_iterator(
        [*(piece for text in texts for piece in re.split(added_tokens, text)), *also], trainer
    )
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return _wrap(bpe, template)


def render(
    messages: Sequence[Mapping[str, Any]], template: str, tools: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A conversation as text, before there is a tokenizer of its own."""
    text: str = _wrap(_empty(), template).apply_chat_template(
        list(messages), tools=list(tools) or None, tokenize=False
    )
    return text


def read_template() -> str:
    return files("aworld_train.model").joinpath("chat_template.jinja").read_text("utf-8")


def save(tokenizer: Any, folder: Path) -> None:
    """Write its files, under the class that transformers 4 and 5 know; 5 writes one that only it has."""
    tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'), encoding="utf-8")


def _empty() -> Any:
    from tokenizers import Tokenizer, models

    return Tokenizer(models.BPE())


def _wrap(bpe: Any, template: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=template,
    )
