"""Writes models in the form that whisper.cpp reads; see its models/convert-pt-to-ggml.py."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

N_FFT = 201  # frequencies of a window of 400 samples
N_MELS = 80
ENGLISH = 51864  # tokens of the models that know English only


def untrained(path: Path, state: int = 64, layers: int = 1) -> None:
    """A model of the right form that has learnt nothing."""
    random = np.random.default_rng(7)
    tensors: dict[str, np.ndarray[Any, Any]] = {}

    def add(name: str, *shape: int) -> None:
        tensors[name] = random.normal(0, 0.02, shape).astype(np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(state, "f4"), np.zeros(state, "f4")

    def attention(name: str) -> None:
        for part in ("query", "key", "value", "out"):
            add(f"{name}.{part}.weight", state, state)
            if part != "key":
                add(f"{name}.{part}.bias", state)
        norm(f"{name}_ln")

    add("encoder.positional_embedding", 1500, state)
    add("encoder.conv1.weight", state, N_MELS, 3)
    add("encoder.conv2.weight", state, state, 3)
    for name in ("encoder.conv1.bias", "encoder.conv2.bias"):
        add(name, state, 1)
    add("decoder.positional_embedding", 448, state)
    add("decoder.token_embedding.weight", ENGLISH, state)
    for half in ("encoder", "decoder"):
        for layer in range(layers):
            name = f"{half}.blocks.{layer}"
            attention(f"{name}.attn")
            if half == "decoder":
                attention(f"{name}.cross_attn")
            for number, (rows, columns) in ((0, (4 * state, state)), (2, (state, 4 * state))):
                add(f"{name}.mlp.{number}.weight", rows, columns)
                add(f"{name}.mlp.{number}.bias", rows)
            norm(f"{name}.mlp_ln")
        norm({"encoder": "encoder.ln_post", "decoder": "decoder.ln"}[half])
    tokens = [b" ", *(bytes([97 + number % 26]) for number in range(50255))]
    write(path, tensors, tokens, np.full((N_MELS, N_FFT), 0.01, "f4"), state, state // 64, layers)


def write(
    path: Path,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    tokens: list[bytes],
    filters: np.ndarray[Any, Any],
    state: int,
    heads: int,
    layers: int,
) -> None:
    """Write a model; of its weights those of two and more dimensions as 16 bits, as whisper.cpp wants them."""
    with path.open("wb") as file:
        file.write(struct.pack("<i", 0x67676D6C))
        file.write(
            struct.pack("<11i", ENGLISH, 1500, state, heads, layers, 448, state, heads, layers, N_MELS, 1)
        )
        file.write(struct.pack("<2i", *filters.shape) + filters.astype("<f4").tobytes())
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, values in tensors.items():
            short = values.ndim > 1 and not name.endswith((".bias", "positional_embedding"))
            file.write(struct.pack("<3i", values.ndim, len(name), int(short)))
            file.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)) + name.encode())
            file.write(values.astype("<f2" if short else "<f4").tobytes())
