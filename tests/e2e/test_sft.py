"""Supervised training: the rows of a run's episodes, through a kill, with the losses that plain torch computes."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from aworld_train.store.content import EpisodeContent
from tests.aworld_environment import run_with, trl_python
from tests.e2e.conftest import Workspace, wait_for
from tests.stored_runs import open_store, row_mask, row_tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

NAME, STEPS, BATCH, LR, SEED, HELD_OUT = "sft", 12, 8, 3e-4, 7, 32
SETTINGS = [
    f"trainer.steps={STEPS}",
    f"trainer.batch_size={BATCH}",
    f"trainer.lr={LR}",
    f"trainer.seed={SEED}",
    "trainer.val_every=6",
    "trainer.save_every=1",
    f"dataset.val_limit={HELD_OUT}",
]


def rows_of(workspace: Workspace, split: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(workspace.path / f"data/rows/{split}.parquet").to_pylist()
    return rows


def make_rows(workspace: Workspace) -> dict[str, Any]:
    """Token rows of the quickstart's right answers."""

    def build() -> dict[str, Any]:
        workspace.quickstart()
        where = "reward=1 and tool_calls>0"
        options = ("--run", "quickstart", "--where", where, "--model", "models/tiny", "--held-out", "0.2")
        done = workspace.run("dataset", "rows", *options, "--out", "data/rows", "--json")
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return workspace.once("rows", build)


def load(model: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)


def loss_of(model: Any, rows: list[dict[str, Any]]) -> Any:
    """Row by row, by transformers and torch alone."""
    import torch

    total = torch.zeros(())
    for row in rows:
        ids, mask = torch.tensor(row["input_ids"]), torch.tensor(row["loss_mask"])[1:].bool()
        logits = model(ids[None]).logits[0, :-1]
        total = total + torch.nn.functional.cross_entropy(logits[mask], ids[1:][mask], reduction="sum")
    return total / sum(sum(row["loss_mask"]) for row in rows)


def held_out_loss(workspace: Workspace, model: Path | Any) -> float:
    import torch

    with torch.no_grad():
        return float(
            loss_of(load(model) if isinstance(model, Path) else model, rows_of(workspace, "val")[:HELD_OUT])
        )


def losses_by_torch(workspace: Workspace) -> Iterator[tuple[float, float | None]]:
    """The loss of each step, and the held-out loss after it."""
    import torch

    model = load(workspace.path / "models/tiny")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    train = rows_of(workspace, "train")

    yield float("nan"), held_out_loss(workspace, model)
    per_epoch = len(train) // BATCH
    for step in range(STEPS):
        epoch, batch = divmod(step, per_epoch)
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED + epoch)).tolist()
        loss = loss_of(model, [train[index] for index in order[batch * BATCH : (batch + 1) * BATCH]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach()), held_out_loss(workspace, model) if (step + 1) % 6 == 0 else None


def test_rows_are_what_the_run_trained_on(workspace: Workspace) -> None:
    report = make_rows(workspace)
    rows = [*rows_of(workspace, "train"), *rows_of(workspace, "val")]
    assert report["read"] == len(rows) + sum(report["dropped"].values())
    store = open_store(workspace.runs / "quickstart")
    assert store is not None
    for row in rows:
        run, episode = row["origin"].split("/")
        stored = store.episode(episode)
        content = stored.content
        assert isinstance(content, EpisodeContent)
        assert run == "quickstart" and stored.head.figures.reward == 1
        assert row["input_ids"] == row_tokens(content, 0) and row["loss_mask"] == row_mask(content, 0)


def test_exported_conversations_become_the_same_rows(workspace: Workspace) -> None:
    make_rows(workspace)
    where = "reward=1 and tool_calls>0"
    exported = workspace.run(
        *("runs", "export", "quickstart", "--format", "messages", "--where", where, "--out", "right.jsonl")
    )
    assert exported.returncode == 0, exported.stderr
    options = ("--file", "right.jsonl", "--model", "models/tiny", "--held-out", "0", "--out", "data/rendered")
    done = workspace.run("dataset", "rows", *options)
    assert done.returncode == 0, done.stderr
    rendered = pq.read_table(workspace.path / "data/rendered/train.parquet").to_pylist()
    keys = [
        {(tuple(row["input_ids"]), tuple(row["loss_mask"])) for row in rows}
        for rows in (rendered, [*rows_of(workspace, "train"), *rows_of(workspace, "val")])
    ]
    # The model may write what its template would not, such as a letter after a call that is read all the same.
    assert len(keys[0] & keys[1]) >= 0.95 * len(keys[1])


def test_a_killed_run_continues_with_the_losses_that_torch_computes(workspace: Workspace) -> None:
    make_rows(workspace)
    arguments = ("train", "recipes/quickstart-sft.yaml", f"name={NAME}", *SETTINGS)
    process = workspace.start(*arguments)
    pointer = workspace.runs / NAME / "checkpoints/latest_checkpointed_iteration.txt"
    wait_for("checkpoint", lambda: pointer.exists() and int(pointer.read_text()) >= 2, 600, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    killed = workspace.summary(NAME)
    assert killed["status"] == "running" and killed["steps_done"] < STEPS

    done = workspace.run(*arguments, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    summary, rows = json.loads(done.stdout), workspace.metrics(NAME)
    manifest = json.loads((workspace.runs / NAME / "manifest.json").read_text())
    assert [attempt["from_step"] > 1 for attempt in manifest["attempts"]] == [False, True]
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    for row, (loss, val_loss) in zip(rows, losses_by_torch(workspace), strict=True):
        if row["step"]:
            assert row["loss"] == pytest.approx(loss, abs=1e-4), row["step"]
        assert row.get("val_loss") == (None if val_loss is None else pytest.approx(val_loss, abs=1e-4))
    assert (summary["status"], summary["steps_done"], summary["episodes"]) == ("completed", STEPS, 0)
    assert summary["loss"] == rows[-1]["loss"]
    assert summary["val_loss"] == {"before": rows[0]["val_loss"], "after": rows[-1]["val_loss"]}
    assert summary["val_loss"]["after"] < summary["val_loss"]["before"]

    planned = workspace.run(
        *(
            "train",
            "recipes/quickstart.yaml",
            f"model.path=runs/{NAME}",
            "name=next",
            "--dry-run",
            "--out",
            "next",
        )
    )
    assert planned.returncode == 0, planned.stderr
    composed = yaml.safe_load((workspace.path / "next/verl.yaml").read_text())
    model = workspace.runs / NAME / f"checkpoints/global_step_{STEPS}/actor/huggingface"
    assert composed["actor_rollout_ref"]["model"]["path"] == str(model.resolve()) == summary["checkpoint"]


@pytest.mark.slow
def test_two_ranks_have_the_losses_of_one(workspace: Workspace) -> None:
    make_rows(workspace)
    done = workspace.run(
        "train", "recipes/quickstart-sft.yaml", "name=two-ranks", "cluster.gpus_per_node=2", *SETTINGS
    )
    assert done.returncode == 0, done.stderr
    for row, (loss, val_loss) in zip(workspace.metrics("two-ranks"), losses_by_torch(workspace), strict=True):
        assert row["step"] == 0 or row["loss"] == pytest.approx(loss, abs=1e-4)
        # Held-out rows are divided evenly, so one may be missing.
        assert val_loss is None or row["val_loss"] == pytest.approx(val_loss, rel=0.2)


@pytest.mark.slow
def test_the_model_answers_better_and_reinforcement_learning_begins_from_it(workspace: Workspace) -> None:
    make_rows(workspace)
    done = workspace.run("train", "recipes/quickstart-sft.yaml", "name=imitated")
    assert done.returncode == 0, done.stderr
    accuracies = []
    for model in ("models/tiny", "runs/imitated"):
        evaluated = workspace.run(
            "eval", "recipes/quickstart.yaml", f"model.path={model}", "--limit", "128", "--json"
        )
        assert evaluated.returncode == 0, evaluated.stderr
        accuracies.append(json.loads(evaluated.stdout)["accuracy"])
    assert accuracies[1] > accuracies[0] + 0.1, accuracies
    again = workspace.run(
        *("train", "recipes/quickstart.yaml", "name=from-imitated", "model.path=runs/imitated"),
        *("trainer.steps=1", "trainer.val_ends=false", "trainer.val_every=0"),
    )
    assert again.returncode == 0, again.stderr
    manifest = json.loads((workspace.runs / "from-imitated/manifest.json").read_text())
    assert manifest["model_from"] == {"run": "imitated", "step": 40}
    assert len(manifest["model"]["fingerprint"]) == 64


SFT_BY_TRL = """
import json, sys
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

model_path, rows_file, out, lr = sys.argv[1:]
rows = json.load(open(rows_file))
config = SFTConfig(
    output_dir=out, max_steps=len(rows["batches"]), per_device_train_batch_size=rows["size"], learning_rate=float(lr),
    lr_scheduler_type="constant", weight_decay=0.01, adam_beta2=0.999, max_grad_norm=1.0, use_cpu=True, report_to=[],
    save_strategy="no", max_length=None, logging_steps=1, seed=1, bf16=False, gradient_checkpointing=False,
    dataset_kwargs={"skip_prepare_dataset": True}, shuffle_dataset=False,
)

class InOrder(SFTTrainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

flat = [row for batch in rows["batches"] for row in batch]
data = Dataset.from_list([
    {"input_ids": row["input_ids"], "labels": [i if m else -100 for i, m in zip(row["input_ids"], row["loss_mask"])]}
    for row in flat
])
trainer = InOrder(
    model=AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), args=config, train_dataset=data,
    processing_class=AutoTokenizer.from_pretrained(model_path),
)
trainer.train()
trainer.save_model(out)
trainer.processing_class.save_pretrained(out)
print(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
"""


@pytest.mark.slow
def test_losses_and_answers_are_those_of_trl(workspace: Workspace, tmp_path: Path) -> None:
    import torch

    make_rows(workspace)
    train = rows_of(workspace, "train")
    done = workspace.run("train", "recipes/quickstart-sft.yaml", "name=beside-trl", *SETTINGS)
    assert done.returncode == 0, done.stderr
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED)).tolist()
    batches = [[train[i] for i in order[begin : begin + BATCH]] for begin in range(0, STEPS * BATCH, BATCH)]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"size": BATCH, "batches": batches}))
    model = str(workspace.path / "models/tiny")
    output = run_with(
        trl_python(), "-c", SFT_BY_TRL, model, str(file), str(tmp_path / "out"), str(LR), timeout=900
    )
    by_trl = json.loads(output.stdout.splitlines()[-1])
    losses = [row["loss"] for row in workspace.metrics("beside-trl") if row["step"]]
    assert losses == pytest.approx(by_trl, abs=1e-4)
    trained, trained_by_trl = workspace.runs / "beside-trl", tmp_path / "out"
    held_out = workspace.summary("beside-trl")["val_loss"]["after"]
    assert held_out_loss(workspace, trained_by_trl) == pytest.approx(held_out, abs=1e-4)
    answers = []
    for model in (trained, trained_by_trl):
        options = (f"model.path={model}", "--name", model.name, "--limit", "128", "--json")
        evaluated = workspace.run("eval", "recipes/quickstart.yaml", *options)
        assert evaluated.returncode == 0, evaluated.stderr
        results = workspace.runs / f"eval-{model.name}/results.parquet"
        answers.append(pq.read_table(results, columns=["task", "answer"]).to_pylist())
    different = sum(one != other for one, other in zip(*answers, strict=True))
    assert different <= 2, different
