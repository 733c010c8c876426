"""The faster way to token ids gives what the model's tokenizer gives, or is not used."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastokens
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from aworld_train.rollout import tokens
from aworld_train.rollout.tokens import encoder
from tests.properties import examples

# How the families cut text into words: https://huggingface.co/docs/tokenizers, and their tokenizer.json.
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
CORPUS = [
    *(
        "the answer is what was asked and the tool said so, don't you think? 12345 ",
        "def f(x):\n    return x + 1\n",
    )
    * 5,
    *("这是一个测试。日本語テスト naïve café Приве́т мир", '{"name": "calc", "arguments": {"a": 1}}\n\n') * 5,
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@dataclass(frozen=True)
class Layout:
    """How a family's tokenizer is made."""

    cut: Any = None
    normalized: Any = None
    bpe: tuple[tuple[str, Any], ...] = ()
    special: tuple[str, ...] = ()
    fast: bool = True


def by_bytes(*cuts: Any) -> Any:
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def splitting(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


LAYOUTS: dict[str, Callable[[], Layout]] = {
    "gpt2": lambda: Layout(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "qwen": lambda: Layout(by_bytes(splitting(QWEN)), normalizers.NFC()),
    "llama3": lambda: Layout(by_bytes(splitting(LLAMA)), bpe=(("ignore_merges", True),)),
    "deepseek": lambda: Layout(
        by_bytes(splitting(r"\p{N}{1,3}"), splitting("[一-龥぀-ゟ゠-ヿ]+"), splitting(QWEN))
    ),
    "sentencepiece": lambda: Layout(
        normalized=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        bpe=(("byte_fallback", True), ("fuse_unk", True), ("unk_token", "<unk>")),
        special=("<unk>", *BYTES),
    ),
    "metaspace": lambda: Layout(pre_tokenizers.Metaspace(), fast=False),
}


@cache
def tokenizer_of(layout: str) -> Tokenizer:
    how = LAYOUTS[layout]()
    bpe = Tokenizer(models.BPE(**dict(how.bpe)))
    if how.cut is not None:
        bpe.pre_tokenizer = how.cut
    if how.normalized is not None:
        bpe.normalizer = how.normalized
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=[] if how.special else pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(how.special),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    bpe.add_special_tokens(
        [AddedToken(one, special=True, normalized=False) for one in ("<|im_end|>", "</s>")]
    )
    bpe.add_tokens(
        [AddedToken("<tool_call>", special=False, normalized=False), AddedToken("<mask>", lstrip=True)]
    )
    return bpe


PIECES = [*tokens._PIECES, "<mask>", "the answer", "测试", "naïve"]


@dataclass(eq=False)
class Holder:
    """As much of a Hugging Face tokenizer as is asked for."""

    backend_tokenizer: Tokenizer


def tokens_of(backend: Tokenizer, text: str) -> list[int]:
    return list(backend.encode(text, add_special_tokens=False).ids)


@cache
def encode_of(layout: str) -> tokens.Encode:
    return encoder(Holder(tokenizer_of(layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
@examples(300)
@given(text=st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)))
def test_a_text_has_the_tokens_of_the_models_tokenizer(layout: str, text: str) -> None:
    assert encode_of(layout)(text) == tokens_of(tokenizer_of(layout), text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_models_tokenizer_is_asked_only_where_it_must_be(layout: str) -> None:
    backend = tokenizer_of(layout)
    found = tokens._fast_encoder(backend, lambda text: tokens_of(backend, text))
    assert (found is not None) is LAYOUTS[layout]().fast


@pytest.mark.parametrize("wrong", ["<tool_call>", "e\u0301", "\u3000", "1", "日本"])
def test_a_library_that_gives_other_tokens_is_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __init__(self, known: Any) -> None:
            self.known = known

        @classmethod
        def from_json_str(cls, text: str) -> "Wrong":
            return cls(fastokens._native.Tokenizer.from_json_str(text))

        def encode(self, text: str, add_special_tokens: bool) -> Any:
            return self.known.encode(text.replace(wrong, "?"), add_special_tokens)

    monkeypatch.setattr(fastokens, "Tokenizer", Wrong)
    encode = encoder(Holder(tokenizer_of("qwen")))
    assert encode(f"a {wrong} b") == tokens_of(tokenizer_of("qwen"), f"a {wrong} b")


def test_it_does_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    encode = encoder(Holder(tokenizer_of("qwen")))
    assert encode("some text") == tokens_of(tokenizer_of("qwen"), "some text")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("later", [False, True])
def test_what_others_set_on_the_tokenizer_cuts_nothing_off(layout: str, later: bool) -> None:
    backend = Tokenizer.from_str(tokenizer_of(layout).to_str())
    whole = tokens_of(backend, "some text that is long")
    encode = encoder(Holder(backend)) if later else None
    backend.enable_truncation(3)
    backend.enable_padding(length=100)
    encode = encode or encoder(Holder(backend))
    assert encode("some text that is long") == whole
