"""Exported conversations are what `datasets` loads and TRL's SFTTrainer trains on."""

import json
from pathlib import Path

import pytest

from aworld_train.store.export.exporting import export
from aworld_train.store.export.formats import ExportFormat
from tests.aworld_environment import run_with, trl_python
from tests.e2e.conftest import Workspace
from tests.stored_episodes import exported_run
from tests.stored_runs import TOOLS, make_stored_run, open_store

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

FINE_TUNE = """
import json, sys
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

file, model_path, out = sys.argv[1:]
rows = load_dataset("json", data_files=file, split="train")
model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(model_path)
before = {name: value.clone() for name, value in model.named_parameters()}
config = SFTConfig(
    output_dir=out, max_steps=1, per_device_train_batch_size=4, learning_rate=1e-3, use_cpu=True, report_to=[],
    save_strategy="no", max_length=1024, logging_steps=1,
)
trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
result = trainer.train()
changed = sum(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())
print(json.dumps({
    "rows": len(rows),
    "first": rows[0],
    "rendered": [tokenizer.decode(ids) for ids in trainer.train_dataset["input_ids"]][:4],
    "loss": result.training_loss,
    "changed": changed,
}))
"""


def test_exported_conversations_train_a_step_with_trl(workspace: Workspace, tmp_path: Path) -> None:
    store = open_store(make_stored_run(tmp_path / "runs"))
    assert store is not None
    file = tmp_path / "right.jsonl"
    counts = export(store, exported_run(), ExportFormat.messages, file, condition="reward=1")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    done = run_with(
        trl_python(),
        "-c",
        FINE_TUNE,
        str(file),
        str(workspace.path / "models/tiny"),
        str(tmp_path / "out"),
        timeout=900,
        HF_HUB_OFFLINE="1",
        HF_DATASETS_CACHE=str(tmp_path / "cache"),
    )
    trained = json.loads(done.stdout.splitlines()[-1])
    assert trained["rows"] == counts.entries == 32
    # What was loaded is what was written: no arguments or parameters were added or lost.
    assert trained["first"]["messages"] == lines[0]["messages"]
    assert trained["first"]["tools"] == TOOLS
    called = next(text for text in trained["rendered"] if "<tool_call>" in text)
    arguments = lines[0]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.dumps(arguments) in called
    assert trained["loss"] > 0 and trained["changed"] > 0
