"""What an update takes with and without shared prefixes: VeRL's loss and our engine on CPU, in turn in one process.

One seeded Qwen3 of 7 million parameters in float32 and rows of random tokens, of which all are one pass:

- *one prompt*: eight episodes of one task, 512 tokens of prompt and 64 to 256 of answer;
- *new contexts*: four episodes that keep 400 tokens, and begin a new context after them four times;
- *swarm*: four episodes of two agents with prompts of their own (300 tokens), asked in three turns each, of which every
  one continues the one before.

Row by row, the peer is VeRL's own forward pass of the same engine: rows are padded to the longest, as it does on CPU.
Both have one thread and are timed by the processor time of this process, and the median of the rounds decides.
"""

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from aworld_train.adapter.verl.attention import TORCH, TRIE
from aworld_train.adapter.verl.token_trie import Row
from tests.unit.adapter.verl.test_shared_prefix import batch_of, engine_of, loss, one_rank, trained

__all__ = ["loss", "one_rank"]

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3000)]

VOCABULARY, ROUNDS = 4096, 3


def tokens(random_numbers: random.Random, count: int) -> list[int]:
    return [random_numbers.randrange(VOCABULARY) for _ in range(count)]


def one_prompt(numbers: random.Random) -> list[list[int]]:
    prompt = tokens(numbers, 512)
    return [prompt + tokens(numbers, numbers.randint(64, 256)) for _ in range(8)]


def new_contexts(numbers: random.Random) -> list[list[int]]:
    kept = tokens(numbers, 400)
    return [kept + tokens(numbers, numbers.randint(100, 200)) for _ in range(4 * 4)]


def swarm(numbers: random.Random) -> list[list[int]]:
    rows = []
    for prompt in (tokens(numbers, 300), tokens(numbers, 300)):
        for _ in range(4):
            row = prompt
            for _ in range(3):
                row = row + tokens(numbers, 80)
                rows.append(row)
    return rows


def model(attention: str) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        tie_word_embeddings=True,
        attn_implementation=attention,
    )
    return Qwen3ForCausalLM(config)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("make", "most"), [(one_prompt, 0.6), (new_contexts, 0.6), (swarm, 0.6)])
def test_shared_prefixes_take_their_share_of_the_time(make: Any, most: float, loss: Any) -> None:
    rows = [np.array(row) for row in make(random.Random(0))]
    limits = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": len(rows)}
    engines = {name: engine_of(model(name)) for name in (TRIE, TORCH)}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    losses: dict[str, float] = {}
    forwarded = 0
    for _ in range(ROUNDS):
        for name, engine in engines.items():
            batch = batch_of(rows, 0, **limits)
            began = time.process_time()
            losses[name], _, metrics = trained(engine, batch, loss)
            seconds[name].append(time.process_time() - began)
            forwarded = int(metrics["forwarded_tokens"].aggregate()) if name == TRIE else forwarded
    unique = len({row[:end].tobytes() for row in map(closed, rows) for end in range(1, len(row) + 1)})
    ratio = statistics.median(seconds[TRIE]) / statistics.median(seconds[TORCH])
    total = sum(len(row) + 1 for row in rows)
    print(
        f"{make.__name__}: {total} tokens of {len(rows)} rows, {unique} unique, forwarded : unique "
        f"{forwarded / unique:.2f}, unique : all {unique / total:.2f}, processor time {ratio:.2f}"
    )
    assert forwarded == unique
    assert losses[TRIE] == pytest.approx(losses[TORCH], abs=1e-5)
    assert ratio < most


def closed(row: Row) -> Row:
    """As ``batch_of`` ends a row."""
    return np.append(row, 0)
