"""Reads VeRL's metrics, a line per log call, and gives them the names that all frameworks share."""

import json
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import StepRow
from aworld_train.json_lines import JsonLinesTail

_NAMES = {
    "loss": "actor/loss",
    "entropy": "actor/entropy",
    "grad_norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "teacher_kl": "training/teacher_kl",
    "lr": "actor/lr",
    "rollout_probs_diff_mean": "training/rollout_probs_diff_mean",
    "rollout_probs_diff_max": "training/rollout_probs_diff_max",
    "tokens_per_second": "perf/throughput",
    "seconds": "timing_s/step",
    "val_seconds": "timing_s/testing",
    "staleness": "training/off_policy/trajectory_staleness_worst/mean",
    "max_staleness": "training/off_policy/trajectory_staleness_worst/max",
    "memory_gb": "actor/perf/cpu_memory_used_gb",
    "trained_episodes": "training/episodes",
    "padding_rows": "training/padding_rows",
    "updates": "training/updates",
    "clipped_updates": "training/clipped_updates",
    "clip_fraction": "actor/pg_clipfrac",
    "groups": "training/groups",
    "equal_groups": "training/equal_groups",
    "resampled_groups": "training/resampled_groups",
    "rejected_episodes": "training/rejected_episodes",
    "rejected_tokens": "training/rejected_tokens",
    "stale_episodes": "training/stale_episodes",
    "stale_tokens": "training/stale_tokens",
    "forwarded_tokens": "training/forwarded_tokens",
    "saved_tokens": "training/saved_tokens",
    "lost_samplers": "training/lost_samplers",
}

_SFT_NAMES = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "lr": "train/lr",
    "memory_gb": "train/perf/cpu_memory_used_gb",
    "val_loss": "val/loss",
}
"""What the SFT trainer calls figures for which the RL trainer has another name, or none."""


def step_rows(file: Path) -> JsonLinesTail[StepRow]:
    return JsonLinesTail(file, _row)


def _row(text: bytes) -> StepRow:
    line: dict[str, Any] = json.loads(text)
    data = line["data"]
    return StepRow(
        step=int(line["step"]),
        figures={
            name: data[key] for names in (_NAMES, _SFT_NAMES) for name, key in names.items() if key in data
        },
        raw=data,
        validated="val/loss" in data or any(key.startswith("val-core/") for key in data),
    )
