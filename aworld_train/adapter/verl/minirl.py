"""The policy loss MINIRL of AgentRL, which VeRL imports in every process that builds a model (``model.external_lib``).

With r the probability of a token over that with which it was sampled, and A its advantage, its loss is ``-r A log p``,
in which r is a number without a gradient. A token above its upper bound that should become likelier, or below its lower
one that should become less likely, has no loss.
"""

from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.utils.torch_functional import masked_mean
from verl.workers.config import ActorConfig

from aworld_train.recipe.presets import MINIRL

_MAX_LOG_RATIO = 20.0  # as in VeRL's losses


@register_policy_loss(MINIRL)  # type: ignore[untyped-decorator]
def minirl(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str,
    config: ActorConfig,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Takes VeRL's arguments; ``rollout_is_weights`` are ``bound_widths``, and None where ages do not count."""
    width = 1.0 if rollout_is_weights is None else rollout_is_weights
    log_ratio = (log_prob - old_log_prob).detach().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    is_above = (ratio > 1 + config.clip_ratio_high * width) & (advantages > 0)
    is_below = (ratio < 1 - config.clip_ratio_low * width) & (advantages < 0)
    is_out = is_above | is_below
    loss = agg_loss(
        loss_mat=torch.where(is_out, 0.0, -ratio * advantages * log_prob),
        loss_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        **config.global_batch_info,
    )
    return loss, {
        "actor/pg_clipfrac": masked_mean(is_out.float(), response_mask).item(),
        "actor/ppo_kl": masked_mean(-log_ratio, response_mask).item(),
    }
