"""Decodes the same requests with vLLM and with the others in one process; prints a JSON object of its rounds.

python -m tests.bench.decoding_beside_vllm LAYERS WIDTH ROUNDS
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from aworld_train.adapter.verl.cpu.batching import ContinuousBatcher
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
from tests.bench.test_decoding import (
    SEQUENTIAL_SHARE,
    Task,
    a_model,
    continuous,
    generated,
    paged,
    some_tasks,
)

name_vllm_cpu()

CACHE_BYTES = 512 << 20


def served_by_vllm(folder: Path) -> Callable[[list[Task]], list[list[int]]]:
    """vLLM in this process, so that its processor time is counted."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=CACHE_BYTES,
        max_model_len=512,
    )

    def serve(tasks: list[Task]) -> list[list[int]]:
        params = [
            SamplingParams(temperature=0, max_tokens=task.wanted, ignore_eos=True, detokenize=False)
            for task in tasks
        ]
        prompts = [{"prompt_token_ids": task.prompt} for task in tasks]
        return [
            list(output.outputs[0].token_ids) for output in engine.generate(prompts, params, use_tqdm=False)
        ]

    return serve


def measured(call: Callable[[], object], tokens: int) -> dict[str, float]:
    """Tokens a second by the clock, and a second of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return {
        "clock": tokens / (time.perf_counter() - clock),
        "processor": tokens / (time.process_time() - processor),
    }


def main(layers: int, width: int, rounds: int) -> None:
    torch.set_num_threads(1)
    model = a_model(layers=layers, width=width)
    tasks = some_tasks()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        began = time.perf_counter()
        vllm = served_by_vllm(Path(folder))
        start = time.perf_counter() - began
    batcher = ContinuousBatcher(model, eos_ids=())
    other, alone = (a_model(layers=layers, width=width) for _ in range(2))
    at_once = [0.0] * len(tasks)
    some = tasks[::SEQUENTIAL_SHARE]
    useful, useful_alone = (sum(task.wanted for task in each) for each in (tasks, some))
    short = [Task(task.prompt, min(task.wanted, 4)) for task in tasks]
    for warm_up in (vllm, lambda each: continuous(batcher, each, at_once), lambda each: paged(other, each)):
        warm_up(short)
    torch.set_num_threads(1)  # vLLM sets it for the process
    ours, theirs = continuous(batcher, tasks, at_once).tokens, vllm(tasks)
    result = {
        "parameters": model.num_parameters(),
        "start": start,
        "same": sum(mine == its for mine, its in zip(ours, theirs, strict=True)),
        "rounds": [
            {
                "vllm": measured(lambda: vllm(tasks), useful),
                "ours": measured(lambda: continuous(batcher, tasks, at_once), useful),
                "transformers": measured(lambda: paged(other, tasks), useful),
                "sequential": measured(lambda: [generated(alone, [task]) for task in some], useful_alone),
            }
            for _ in range(rounds)
        ],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
