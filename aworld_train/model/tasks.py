"""The expressions that the tiny model learns from, and those that it is measured on; none is in both.

Tasks come from parquet files in verl's row schema, or else from the generated arithmetic dataset. Rows that do not ask
``What is <expression>?`` are ignored, because the model only learns to answer these.
"""

import random
import tempfile
from itertools import islice
from pathlib import Path

from aworld_train.errors import ModelError, UsageError
from aworld_train.model.transcripts import CHARACTERS, ArithmeticTask, expression_in

MIN_VAL = 32  # with fewer tasks the measured accuracy is too inexact for the gate
MAX_VAL = 256
GENERATED = 4000
HELD_OUT = 0.1


def gather(
    train: Path | None, val: Path | None, seed: int
) -> tuple[list[ArithmeticTask], list[ArithmeticTask]]:
    """The tasks to learn from, generated ones among them, and the tasks to measure on.

    Without ``val`` a part of ``train`` is held out; without both, both come from the arithmetic dataset of this seed.
    """
    if train is None and val is None:
        file_tasks, val_tasks = _arithmetic_dataset(seed)
    else:
        file_tasks = read(train) if train else []
        val_tasks = read(val) if val else _hold_out(file_tasks)
        if train and not file_tasks:
            raise ModelError(_too_few(train, 0, 1))
    if len(val_tasks) < MIN_VAL:
        raise ModelError(_too_few(val or train, len(val_tasks), MIN_VAL))
    val_tasks = random.Random(0).sample(val_tasks, min(len(val_tasks), MAX_VAL))
    val_expressions = {task.expression for task in val_tasks}
    train_tasks = {
        task.expression: task
        for task in (*_generated(seed), *file_tasks)
        if task.expression not in val_expressions
    }
    return list(train_tasks.values()), val_tasks


def read(path: Path) -> list[ArithmeticTask]:
    """The arithmetic tasks among the rows of a parquet file, each expression once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["prompt", "reward_model"]).to_pylist()
        pairs = [(row["prompt"][-1]["content"], row["reward_model"]["ground_truth"]) for row in rows]
    except (OSError, pa.ArrowException, LookupError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read as a dataset ({error}). Build one with: aworld-train dataset build"
        ) from error
    values = {expression: value for text, value in pairs if (expression := expression_in(str(text)))}
    return [ArithmeticTask(e, v) for e, v in values.items() if v and set(v) <= set(CHARACTERS)]


def _arithmetic_dataset(seed: int) -> tuple[list[ArithmeticTask], list[ArithmeticTask]]:
    from aworld_train import dataset

    with tempfile.TemporaryDirectory() as folder:
        dataset.build("arithmetic", Path(folder, "data"), seed=seed)
        return read(Path(folder, "data", "train.parquet")), read(Path(folder, "data", "val.parquet"))


def _generated(seed: int) -> list[ArithmeticTask]:
    from aworld_train.dataset.sources.arithmetic import arithmetic_tasks

    return [ArithmeticTask(task.subject, task.answer) for task in islice(arithmetic_tasks(seed), GENERATED)]


def _hold_out(tasks: list[ArithmeticTask]) -> list[ArithmeticTask]:
    count = max(MIN_VAL, round(len(tasks) * HELD_OUT))
    return random.Random(0).sample(tasks, min(count, len(tasks)))


def _too_few(path: Path | None, count: int, needed: int) -> str:
    return (
        f"{path} has {count} tasks like 'What is 48/2?' to offer here; at least {needed} are needed. "
        "Build such a dataset with: aworld-train dataset build arithmetic --out DIR"
    )
