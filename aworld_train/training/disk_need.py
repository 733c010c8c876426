"""How much disk a run takes, by estimate, and the refusal of a run that its disk plainly cannot hold."""

import math
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from aworld_train.errors import UsageError
from aworld_train.model.files import local_folder
from aworld_train.model.weights import parameters_of
from aworld_train.recipe.schema import Recipe

_GB = 10**9
_TRAINED_BYTES, _LORA_BYTES = 16, 8
"""Of a parameter in a checkpoint, in fp32: weight, AdamW's two moments, and the weight again for other libraries."""
_EPISODE_BYTES, _TOKEN_BYTES = 5_000, 12
"""Of an episode in traces and store: 4.4 to 4.9 kB with 65 to 94 tokens; a token has its id, log-probability, text."""


@dataclass(frozen=True)
class DiskNeed:
    """What a run writes, in bytes: one checkpoint (0 if the model's size is unknown), how many, and all episodes."""

    checkpoint: int
    checkpoints: int
    episodes: int

    @property
    def total(self) -> int:
        return self.checkpoint * self.checkpoints + self.episodes

    @property
    def sentence(self) -> str:
        """Empty for less than a gigabyte, and where the size of the model is not known."""
        if not self.checkpoint or self.total < _GB:
            return ""
        return (
            f"The run takes up to {self.total / _GB:.1f} GB of disk, by estimate: {self.checkpoints} checkpoints of "
            f"{self.checkpoint / _GB:.1f} GB, and {self.episodes / _GB:.1f} GB of episodes."
        )


def parameters_here(model: str | None) -> int:
    """How many parameters a model has by its files; 0 where they are not on this machine or cannot be read."""
    folder = local_folder(model)
    try:
        return parameters_of(folder) if folder else 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return 0


def disk_need(recipe: Recipe, parameters: int) -> DiskNeed:
    trainer, rollout = recipe.trainer, recipe.rollout
    saves = math.ceil(trainer.steps / trainer.save_every) if trainer.save_every else 0
    # A new checkpoint is written before the oldest one is removed, and the best one stays beside them.
    kept = min(saves, trainer.keep_checkpoints + 2)
    episodes = trainer.steps * trainer.batch_size * rollout.n if recipe.plays_episodes else 0
    each = _LORA_BYTES if recipe.model.lora.rank else _TRAINED_BYTES
    size = _EPISODE_BYTES + _TOKEN_BYTES * recipe.max_episode_tokens
    return DiskNeed(each * parameters, kept, episodes * size)


def check_disk(need: DiskNeed, folder: Path, keep: int) -> None:
    """Check that a run's checkpoints fit on its disk; what an earlier attempt wrote counts as free."""
    required = need.checkpoint * min(need.checkpoints, keep + 1)
    written = sum(file.stat().st_size for file in (folder / "checkpoints").rglob("*") if file.is_file())
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if required > free + written:
        raise UsageError(
            f"{free / _GB:.1f} GB are free for {folder}, and its checkpoints take {required / _GB:.1f} GB. Free some, "
            "take another folder (--runs), or keep fewer checkpoints (trainer.keep_checkpoints)."
        )
