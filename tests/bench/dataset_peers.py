"""How people turn GAIA-shaped lines into verl's rows otherwise: pandas row by row, and `datasets.map`.

Run as ``python -m tests.bench.dataset_peers pandas|datasets INPUT.jsonl OUTPUT.parquet CACHE``.
"""

import sys
from typing import Any

TEMPLATE = "{question}\n\nThe file that belongs to this task is {path}."
INSTRUCTION = "\n\nWork it out with your tools. Write your final answer between <answer> and </answer>."


def to_row(line: dict[str, Any], index: int) -> dict[str, Any]:
    """One training row, with the fields that our own rows have."""
    question, name = line["Question"], line["file_name"]
    path = f"/attachments/{name}" if name else ""
    message = TEMPLATE.format(question=question, path=path) if path else question
    return {
        "data_source": "gaia",
        "agent_name": "mcp_agent",
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": message + INSTRUCTION}],
        "ability": "general",
        "reward_model": {"style": "rule", "ground_truth": str(line["Final answer"])},
        "extra_info": {
            "index": index,
            "id": line["task_id"],
            "split": "train",
            "file": "metadata.jsonl",
            "line": index + 1,
            "question": question,
            "expression": None,
            "scorer": "gaia",
            "answer_schema": "answer",
            "level": str(line["Level"]),
            "attachments": [path] if path else None,
        },
    }


SYSTEM = "You answer questions with the help of tools. Think step by step, and check what you find."


def to_rows(lines: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
    """The rows of a batch of lines in columns, as `datasets` hands and takes them."""
    each = (dict(zip(lines, values, strict=True)) for values in zip(*lines.values(), strict=True))
    rows = [to_row(line, index) for line, index in zip(each, indices, strict=True)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def with_pandas(source: str, target: str) -> None:
    import pandas as pd

    frame = pd.read_json(source, lines=True, dtype={"Final answer": str})
    frame["number"] = range(len(frame))
    rows = frame.apply(lambda line: to_row(line, line["number"]), axis=1)
    pd.DataFrame(rows.tolist()).to_parquet(target, compression="zstd")


def with_datasets(source: str, target: str, cache: str) -> None:
    import datasets

    datasets.disable_progress_bars()
    data = datasets.load_dataset("json", data_files=source, split="train", cache_dir=cache)
    data = data.map(
        to_rows,
        batched=True,
        with_indices=True,
        remove_columns=data.column_names,
        num_proc=int(sys.argv[5]) or None,
    )
    data.to_parquet(target)


if __name__ == "__main__":
    peer, source, target, cache = sys.argv[1:5]
    if peer == "pandas":
        with_pandas(source, target)
    else:
        with_datasets(source, target, cache)
