"""VeRL's SFT trainer on token rows, with checkpoints as those of RL.

VeRL 0.9.1 loses its place in the data at the end of an epoch, leaves out held-out rows of the last batch, and takes the
mean of batches for that of tokens. Here the rows of a step follow from its number and the seed, so a resumed run trains
the rows that it would have trained, and the held-out loss is the mean over all tokens.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from tensordict.tensorclass import NonTensorData
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.utils.tracking import Tracking

from aworld_train import waits
from aworld_train.adapter.base import SAVE_REQUEST
from aworld_train.adapter.verl import checkpoints
from aworld_train.adapter.verl.tracked_run import as_one_run, prepare_trackers
from aworld_train.dataset.token_rows import read_token_rows


class TokenRowsTrainer(SFTTrainer):  # type: ignore[misc]
    def __init__(self, config: Any, run_dir: Path, *, validate_first: bool):
        self._run_dir, self._validate_first = run_dir, validate_first
        super().__init__(config)
        self._trackers = self._tracked() if self.rank == 0 else None

    def _tracked(self) -> Any:
        settings = self.config.trainer
        project, run = settings.project_name, settings.experiment_name
        prepare_trackers(settings.logger, self._run_dir, project=project, run=run)
        return as_one_run(Tracking, self._run_dir)(
            project_name=project,
            experiment_name=run,
            default_backend=list(settings.logger),
            config=OmegaConf.to_container(self.config, resolve=False),  # not the values of variables
        )

    def _build_dataset(self) -> None:
        data = self.config.data
        self.train_dataset = _rows(data.train_files, -1)
        self.val_dataset = _rows(data.val_files, data.val_max_samples)

    def _build_dataloader(self) -> None:
        self.global_batch_size = self.config.data.train_batch_size
        rank, ranks = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        self.train_dataloader = StepRows(
            len(self.train_dataset), self.global_batch_size, self.config.trainer.seed, rank, ranks
        )
        # The ranks run as many passes as each other, so each has as many rows.
        held_out = len(self.val_dataset) // ranks * ranks
        self._held_out = [self.val_dataset[index] for index in range(rank, held_out, ranks)]

    def _build_ckpt_handler(self) -> None:
        self.ckpt_handler = Checkpoints(self.config, self.engine, self.rank)

    def fit(self) -> None:
        exit_code = 1
        try:
            self._train()
            exit_code = 0
        finally:
            if self._trackers is not None:
                self._trackers.finish(exit_code)

    def _train(self) -> None:
        settings, begin = self.config.trainer, self.resume_global_step
        if self._validate_first and settings.test_freq:
            self._report(begin, self._validated())
        for step in range(begin + 1, self.total_training_steps + 1):
            is_last = step == self.total_training_steps
            figures = self._trained(step)
            if settings.test_freq > 0 and (is_last or step % settings.test_freq == 0):
                figures |= self._validated()
            self._report(step, figures)
            requested = (self._run_dir / SAVE_REQUEST).exists()
            if requested or (settings.save_freq > 0 and (is_last or step % settings.save_freq == 0)):
                with waits.waiting("phase", "save_checkpoint"):
                    self.ckpt_handler.save_checkpoint(step)

    def _trained(self, step: int) -> dict[str, Any]:
        began = time.monotonic()
        batch = self._batch([self.train_dataset[index] for index in self.train_dataloader.of_step(step)])
        lengths = self._get_batch_seqlens(batch)
        tu.assign_non_tensor(batch, update_lr_scheduler=True, global_token_num=NonTensorData(lengths))
        with waits.waiting("phase", "train_batch"):
            output = self.training_client.train_batch(data=batch)
        figures = {
            f"train/{name}": value
            for name, value in tu.get(output, "metrics").items()
            if not isinstance(value, list)
        }
        seconds = time.monotonic() - began
        return figures | {
            "train/global_tokens": sum(lengths),
            "perf/throughput": sum(lengths) / seconds / torch.distributed.get_world_size(),
            "timing_s/step": seconds,
        }

    def _validated(self) -> dict[str, Any]:
        """The mean loss over all trained tokens of the held-out rows."""
        began = time.monotonic()
        batch = self._batch(self._held_out)
        with waits.waiting("phase", "testing"):
            output = self.training_client.infer_batch(batch)
        return {"val/loss": tu.get(output, "metrics")["loss"], "timing_s/testing": time.monotonic() - began}

    def _batch(self, rows: Sequence[dict[str, torch.Tensor]]) -> Any:
        data = self.config.data
        facts = {
            "use_remove_padding": self.config.model.use_remove_padding,
            "use_dynamic_bsz": data.use_dynamic_bsz,
            "max_token_len_per_gpu": data.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": data.micro_batch_size_per_gpu,
            "temperature": 1.0,
            "global_batch_size": self.global_batch_size,
            "pad_mode": data.pad_mode,
            "pad_token_id": self.model_config.tokenizer.pad_token_id,
        }
        tensors = SFTTensorCollator(data.pad_mode)(list(rows))
        return tu.get_tensordict(tensor_dict=tensors, non_tensor_dict=facts)

    def _report(self, step: int, figures: dict[str, Any]) -> None:
        if self._trackers is not None:
            self._trackers.log(data=figures, step=step)


class StepRows:
    """Which rows a rank trains on in each step: every epoch has its own order, and leaves out what fills no batch.

    Its length is the number of steps in an epoch.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, rank: int = 0, ranks: int = 1):
        self._rows, self._batch_size, self._seed = rows, batch_size, seed
        self._rank, self._ranks = rank, ranks

    def __len__(self) -> int:
        return self._rows // self._batch_size

    def of_step(self, step: int) -> list[int]:
        epoch, position = divmod(step - 1, len(self))
        generator = torch.Generator().manual_seed(self._seed + epoch)
        order = torch.randperm(self._rows, generator=generator)
        begin = position * self._batch_size
        indices: list[int] = order[begin : begin + self._batch_size][self._rank :: self._ranks].tolist()
        return indices


class Checkpoints:
    """Writes and loads checkpoints, which are whole once ``data.pt`` is there, as those of RL are."""

    def __init__(self, config: Any, engine: Any, rank: int):
        self._folder = Path(config.trainer.default_local_dir)
        self._model = config.model
        self._keep = config.trainer.max_ckpt_to_keep
        self._engine, self._rank = engine, rank

    def save_checkpoint(self, step: int) -> None:
        folder = self._folder / f"global_step_{step}"
        if self._rank == 0:
            (folder / "data.pt").unlink(missing_ok=True)
        self._engine.save_checkpoint(
            local_path=str(folder / "actor"), global_step=step, max_ckpt_to_keep=None
        )
        torch.distributed.barrier()
        if self._rank == 0:
            self._complete(folder, step)
        torch.distributed.barrier()

    def _complete(self, folder: Path, step: int) -> None:
        if model := checkpoints.model_in(folder):
            settings: Any = OmegaConf.to_container(self._model, resolve=True)
            checkpoints.complete(model, settings)
        torch.save({"step": step}, folder / "data.pt")
        checkpoints.point_at(self._folder, step)
        if self._keep:
            checkpoints.keep_newest(self._folder, self._keep)

    def load_checkpoint(self) -> int:
        """Load the checkpoint that ``checkpoints.point_at`` names; returns its step, 0 without one."""
        step = checkpoints.pointed_at(self._folder)
        if step:
            waits.begin_part("loading the checkpoint")
            self._engine.load_checkpoint(str(self._folder / f"global_step_{step}" / "actor"))
        return step


def _rows(files: Any, limit: int) -> list[dict[str, torch.Tensor]]:
    rows = []
    for row in read_token_rows([Path(file) for file in ([files] if isinstance(files, str) else files)]):
        ids = torch.tensor(row["input_ids"], dtype=torch.long)
        mask = torch.tensor(row["loss_mask"], dtype=torch.long)
        rows.append({"input_ids": ids, "loss_mask": mask, "position_ids": torch.arange(len(ids))})
    return rows if limit < 0 else rows[:limit]
