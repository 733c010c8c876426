"""Reads what trackers have recorded of a run, by their own readers.

As a program it prints what MLflow has: MLflow is not installed where the tests run.
"""

import json
import math
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_WANDB_HEADER = 7
_BLOCK_BYTES = 32768
_RECORD_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_FULL, _LAST = 1, 4


@dataclass
class TrackedRun:
    """What a tracker has of one run.

    Attributes:
        name: The tracker.
        steps: Its figures by step and name; of several values for a step, the last.
        ids: How many runs it believes there were.
        status: How it says the run ended, if it says so.
        generations: Whether it has answers of validations.
        digits: Significant digits with which it keeps a figure.
    """

    name: str
    steps: dict[int, dict[str, float]]
    ids: int = 1
    status: str | None = None
    generations: bool = False
    digits: int = 15

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "TrackedRun":
        steps = {int(step): figures for step, figures in content.pop("steps").items()}
        return cls(steps=steps, **content)

    def has(self, step: int, key: str, value: float) -> bool:
        """Whether the figure is the same, as far as the tracker keeps digits."""
        if self.name == "mlflow":
            key = re.sub(r"[^/\w.\- :]", "_", key.replace("@", "_at_"))
        kept = self.steps[step].get(key)
        return kept is not None and math.isclose(kept, value, rel_tol=10**-self.digits, abs_tol=1e-30)


def read_wandb(folder: Path) -> TrackedRun:
    """The newest offline record below W&B's folder, which holds the whole run; the ids are those of all."""
    from wandb.proto.wandb_internal_pb2 import Record

    steps: dict[int, dict[str, float]] = defaultdict(dict)
    ids, codes, tables = set(), [], 0
    files = sorted(folder.glob("offline-run-*/run-*.wandb"))
    for file in files:
        codes.append(None)
        steps.clear()
        for data in _leveldb_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("exit"):
                codes[-1] = record.exit.exit_code
            if record.HasField("history"):
                items = {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in record.history.item
                }
                figures = steps[int(items.get("_step", record.history.step.num))]
                figures |= {key: value for key, value in items.items() if isinstance(value, int | float)}
                tables += "val/generations" in items
    status = {0: "finished", None: "killed"}.get(codes[-1], "failed")
    return TrackedRun("wandb", dict(steps), len(ids), status, tables > 0)


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    """The whole records of a file in LevelDB's log format, in which W&B writes its protocol buffers.

    Python's W&B has no reader any more. The format: https://github.com/google/leveldb/blob/main/doc/log_format.md, with
    seven bytes of W&B's before it. A run that was killed may leave a record unfinished.
    """
    place, parts = _WANDB_HEADER, list[bytes]()
    while place + _RECORD_HEADER.size <= len(content):
        in_block = _BLOCK_BYTES - place % _BLOCK_BYTES
        if in_block < _RECORD_HEADER.size:
            place += in_block
            continue
        _, length, kind = _RECORD_HEADER.unpack_from(content, place)
        place += _RECORD_HEADER.size
        part = content[place : place + length]
        place += length
        if len(part) < length or kind == 0:
            return
        parts.append(part)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts.clear()


def read_tensorboard(folder: Path) -> TrackedRun:
    """The scalars of TensorBoard; each step must be there once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for key in events.Tags()["scalars"]:
        for event in events.Scalars(key):
            assert key not in steps[event.step], f"{key} is there twice for step {event.step}"
            steps[event.step][key] = event.value
    texts = [key for key in events.Tags()["tensors"] if key.startswith("val/generations")]
    return TrackedRun("tensorboard", dict(steps), generations=bool(texts), digits=6)


def read_mlflow(uri: str) -> TrackedRun:
    """The runs of MLflow's store at ``uri``."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    run = runs[0]
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for key in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, key):
            steps[metric.step][key] = metric.value
    texts = [artifact.path for artifact in client.list_artifacts(run.info.run_id)]
    assert run.data.params["trainer/experiment_name"] == run.info.run_name
    return TrackedRun(
        "mlflow",
        dict(steps),
        len(runs),
        run.info.status.lower(),
        any(path.startswith("val_step") for path in texts),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(read_mlflow(sys.argv[1]))) + "\n")
