"""GAIA-shaped lines to verl's rows, by us and in the ways that people do it otherwise.

Run as ``python -m tests.bench.dataset_peers PEER INPUT.jsonl OUTPUT_FOLDER``; says how much memory it and its child
processes had at most, in bytes, and how much processor time they took, in seconds. All write the same rows, the peers
without any check; what they are told is what makes them quickest.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
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


def pandas_iterrows(source: str, folder: Path) -> None:
    """Row by row, as most scripts do it."""
    import pandas as pd

    frame = pd.read_json(source, lines=True, dtype={"Final answer": str})
    rows = [to_row(line, int(str(index))) for index, line in frame.iterrows()]
    pd.DataFrame(rows).to_parquet(folder / "train.parquet", compression="zstd")


def pandas_apply(source: str, folder: Path) -> None:
    """Row by row too, within pandas."""
    import pandas as pd

    frame = pd.read_json(source, lines=True, dtype={"Final answer": str})
    frame["number"] = range(len(frame))
    rows = frame.apply(lambda line: to_row(line, line["number"]), axis=1)
    pd.DataFrame(rows.tolist()).to_parquet(folder / "train.parquet", compression="zstd")


def json_then_pandas(source: str, folder: Path) -> None:
    """Each line with `json`, the rows in a dict of lists, and a frame of that at the end."""
    import pandas as pd

    rows: dict[str, list[Any]] = {}
    with Path(source).open(encoding="utf-8") as lines:
        for index, line in enumerate(lines):
            for name, value in to_row(json.loads(line), index).items():
                rows.setdefault(name, []).append(value)
    pd.DataFrame(rows).to_parquet(folder / "train.parquet", compression="zstd")


def datasets_map(source: str, folder: Path) -> None:
    """`datasets.map` row by row, as VeRL's own preprocessing of datasets does it."""
    data = _loaded(source, folder)
    data.map(to_row, with_indices=True, remove_columns=data.column_names).to_parquet(folder / "train.parquet")


def datasets_map_batched(source: str, folder: Path) -> None:
    data = _loaded(source, folder)
    data = data.map(to_rows, batched=True, with_indices=True, remove_columns=data.column_names)
    data.to_parquet(folder / "train.parquet")


def _loaded(source: str, folder: Path) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.load_dataset("json", data_files=source, split="train", cache_dir=str(folder / "cache"))


PEERS: dict[str, Callable[[str, Path], None]] = {
    "ours": ours,
    "pandas iterrows": pandas_iterrows,
    "pandas apply": pandas_apply,
    "json, then pandas": json_then_pandas,
    "datasets map": datasets_map,
    "datasets map, batched": datasets_map_batched,
}


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


class Memory(threading.Thread):
    """Looks now and then at how much memory this process and its children have, all together."""

    _SECONDS = 0.05

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.children = 0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._SECONDS):
            self.children = max(
                self.children, sum(_memory(pid, "VmRSS") for pid in _descendants(os.getpid()))
            )

    def most(self) -> int:
        """Bytes: the most that this process had, and the most that its children had, if not at the same time."""
        self._over.set()
        self.join()
        # Not ru_maxrss, which begins with what the process that started this one had.
        return _memory(os.getpid(), "VmHWM") + self.children


def _descendants(pid: int) -> Iterable[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _memory(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    peer, source, folder = sys.argv[1:]
    memory = Memory()
    memory.start()
    PEERS[peer](source, Path(folder))
    most = memory.most()
    times = os.times()
    print(most, times.user + times.system + times.children_user + times.children_system)
