"""VeRL's metrics under the names of all frameworks."""

import json
from pathlib import Path

from aworld_train.adapter.base import StepRow
from aworld_train.adapter.verl.metrics import step_rows


def test_each_line_that_verl_writes_is_read_once_with_the_figures_that_it_has(tmp_path: Path) -> None:
    validation = {"val-core/math/acc": 0.5, "timing_s/testing": 3.0}
    training = {"actor/loss": 0.25, "actor/lr": 0.0, "training/teacher_kl": 0.5, "val-aux/math/acc": 1.0}
    file = tmp_path / "metrics.jsonl"
    reader = step_rows(file)
    assert reader.read() == []
    with file.open("a") as lines:
        lines.write(json.dumps({"step": 0, "data": validation}) + "\n")
        lines.write(json.dumps({"step": "1", "data": training}) + "\n")
    assert reader.read() == [
        StepRow(step=0, figures={"val_seconds": 3.0}, raw=validation, validated=True),
        StepRow(step=1, figures={"loss": 0.25, "lr": 0.0, "teacher_kl": 0.5}, raw=training, validated=False),
    ]
    assert reader.read() == []
