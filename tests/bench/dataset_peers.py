"""GAIA-shaped lines to verl's rows, by us and as people do it otherwise: pandas row by row, and `datasets.map`.

Run as ``python -m tests.bench.dataset_peers ours|pandas|datasets INPUT.jsonl OUTPUT_FOLDER``; prints the most memory it
had, in KiB. All write the same rows, the peers without any check; what they are told is what makes them quickest.
"""

import sys
from pathlib import Path
from typing import Any

from aworld_train.dataset.prompts import with_attachments

SYSTEM = "You answer questions with the help of tools. Think step by step, and check what you find."


def ours(source: str, folder: Path) -> None:
    from aworld_train.dataset import build

    build(
        "jsonl",
        folder / "ours",
        files=[source],
        columns={
            **{"id": "task_id", "query": "Question", "answer": "Final answer"},
            **{"level": "Level", "attachments": "file_name"},
        },
        scorer="gaia",
        system=SYSTEM,
        splits={"train": 1.0},
    )


def with_pandas(source: str, folder: Path) -> None:
    import pandas as pd

    frame = pd.read_json(source, lines=True, dtype={"Final answer": str})
    frame["number"] = range(len(frame))
    rows = frame.apply(lambda line: to_row(line, line["number"]), axis=1)
    pd.DataFrame(rows.tolist()).to_parquet(folder / "train.parquet", compression="zstd")


def with_datasets(source: str, folder: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    data = datasets.load_dataset("json", data_files=source, split="train", cache_dir=str(folder / "cache"))
    data = data.map(to_rows, batched=True, with_indices=True, remove_columns=data.column_names)
    data.to_parquet(folder / "train.parquet")


def to_rows(lines: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
    """The rows of a batch of lines in columns, as `datasets` hands and takes them."""
    each = (dict(zip(lines, values, strict=True)) for values in zip(*lines.values(), strict=True))
    rows = [to_row(line, index) for line, index in zip(each, indices, strict=True)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def to_row(line: Any, index: int) -> dict[str, Any]:
    """One training row, with the fields that our own rows have."""
    question, name = line["Question"], line["file_name"]
    attachments = [f"/attachments/{name}"] if name else None
    return {
        "data_source": "in",
        "agent_name": "mcp_agent",
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": with_attachments(question, attachments or ())},
        ],
        "ability": "question answering",
        "reward_model": {"style": "rule", "ground_truth": line["Final answer"]},
        "extra_info": {
            "index": index,
            "id": line["task_id"],
            "split": "train",
            "file": "in.jsonl",
            "line": index + 1,
            "question": question,
            "expression": None,
            "scorer": "gaia",
            "answer_schema": "answer",
            "level": str(line["Level"]),
            "attachments": attachments,
        },
    }


if __name__ == "__main__":
    peer, source, folder = sys.argv[1:]
    {"ours": ours, "pandas": with_pandas, "datasets": with_datasets}[peer](source, Path(folder))
    # Not ru_maxrss, which begins with what the process that started this one had.
    (peak,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    print(peak.split()[1])
