"""Small random models of three families, with the files that models on the hub have since before transformers 5."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

from aworld_train.model.tiny import SHIPPED

VOCABULARY = 400
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
TEXTS = ["What is 48/2? It is 24.", "<|im_start|>user and assistant", "the calculator computes products"]
LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


def make_family(name: str, folder: Path) -> Path:
    """The model ``qwen3``, ``llama``, or ``plain``, whose tokenizer has no class of its own."""
    folder.mkdir()
    {"qwen3": _qwen3, "llama": _llama, "plain": _plain}[name](folder)
    return folder


def _qwen3(folder: Path) -> None:
    _network(folder, "qwen3", 1, rope_theta=1e6, tie_word_embeddings=True)
    _byte_level(
        folder, "Qwen2Tokenizer", add_prefix_space=False, eos_token="<|im_end|>", chat_template=TEMPLATE
    )
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary["vocab"]))
    (folder / "merges.txt").write_text("".join(f"{' '.join(pair)}\n" for pair in vocabulary["merges"]))
    sampling = {"do_sample": True, "temperature": 0.6, "top_k": 20, "eos_token_id": 1, "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(sampling))


def _llama(folder: Path) -> None:
    _network(folder, "llama", 2, rope_theta=5e5, rope_scaling=LLAMA3)
    _byte_level(folder, "PreTrainedTokenizerFast", bos_token="<|im_start|>", eos_token="<|im_end|>")
    (folder / "special_tokens_map.json").write_text(
        '{"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}'
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def _plain(folder: Path) -> None:
    _network(folder, "qwen2", 3, rope_theta=1e6)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(SHIPPED / name, folder)


def _network(folder: Path, family: str, seed: int, **more: Any) -> None:
    """Weights in bfloat16, as published, and the configuration in the keys of transformers 4."""
    torch.manual_seed(seed)
    rope = {"rope_theta": more.pop("rope_theta"), **more.pop("rope_scaling", {"rope_type": "default"})}
    sizes = SIZES | {"vocab_size": 502} if family == "qwen2" else SIZES
    config = AutoConfig.for_model(family, **sizes, rope_parameters=dict(rope), eos_token_id=1, **more)
    AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    del written["rope_parameters"], written["dtype"]
    theta = rope.pop("rope_theta")
    written |= {"torch_dtype": "bfloat16", "rope_theta": theta}
    written |= {"rope_scaling": rope if rope["rope_type"] != "default" else None}
    (folder / "config.json").write_text(json.dumps(written))


def _byte_level(folder: Path, kind: str, **settings: Any) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_end|>", "<|im_start|>")]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    written = {"tokenizer_class": kind, "pad_token": "<|endoftext|>", "model_max_length": 512, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
