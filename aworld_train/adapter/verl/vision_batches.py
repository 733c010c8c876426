"""Batches of models that see images, where VeRL 0.9.1 fails; tests pinned to this version check that it still does.

*Micro-batches without an image*, of Qwen2-VL and Qwen2.5-VL (``models/transformers/qwen2_vl.py``): VeRL gives the
vision tower a blank image then and takes the mean of what comes out, which with transformers 5 is an object without a
mean.

*Rows of equal length* (``utils/tensordict_utils.py``): positions ``[axes, tokens]`` come out of VeRL's queue as a
nested tensor whose rows differ in the first dimension that can differ. If all have as many tokens that is the axes, and
VeRL takes it for the tokens.
"""

import sys
from typing import Any

import torch
from verl.models.transformers import qwen2_vl
from verl.utils.tensordict_utils import nested_tensor_from_tensor_list
from verl.utils.transformers_compat import unpack_visual_output

_with_features = qwen2_vl._get_input_embeds
_GRID = (1, 4, 4)  # of the blank image: its patches in time, height and width
_USERS = ("verl.utils.tensordict_utils", "verl.workers.engine_workers", "verl.workers.engine.base")
"""VeRL's modules that have the function under its name; one that is imported later takes the first one's."""


def input_embeddings(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    pixel_values: torch.Tensor | None = None,
    pixel_values_videos: torch.Tensor | None = None,
    *grids: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if pixel_values is not None or pixel_values_videos is not None:
        features: tuple[torch.Tensor, torch.Tensor | None] = _with_features(
            model, input_ids, attention_mask, pixel_values, pixel_values_videos, *grids
        )
        return features
    embeddings: torch.Tensor = model.get_input_embeddings()(input_ids)
    vision = model.config.vision_config
    size = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    blank = embeddings.new_zeros((_GRID[1] * _GRID[2], size))
    grid = torch.tensor([_GRID], device=embeddings.device)
    unused, _ = unpack_visual_output(model.visual(blank, grid_thw=grid))
    return embeddings + 0.0 * unused.mean(), attention_mask


def mark_tokens_as_ragged(data: Any) -> None:
    positions = data.get("position_ids", None)
    if positions is None or not positions.is_nested or positions.dim() != 3:
        return
    values, rows = positions.values(), len(positions.offsets()) - 1
    if len(values) == int(positions.offsets()[-1]):  # one row's axes after the other's
        data["position_ids"] = nested_tensor_from_tensor_list(list(values.chunk(rows)))
    else:
        positions._ragged_idx = 2


qwen2_vl._get_input_embeds = input_embeddings
for _name in _USERS:
    _module: Any = sys.modules.get(_name)
    if _module is not None:
        _module.maybe_fix_3d_position_ids = mark_tokens_as_ragged
