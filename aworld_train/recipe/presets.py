"""What `algorithm.preset` stands for: values of a recipe, below the layer that names it.

What that layer and later ones give wins; what the preset does not name stays as it is. A preset is of the loss alone:
learning rate, KL terms and sizes are the recipe's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_train.recipe.schema import Preset, Recipe
from aworld_train.recipe.source import Layer
from aworld_train.recipe.tree import KeyPath, map_values

MINIRL = "minirl"
"""The loss that is not the framework's own."""


@dataclass(frozen=True)
class PresetKeys:
    source: str
    values: Mapping[str, Any]


PRESETS: Mapping[Preset, PresetKeys] = {
    Preset.grpo: PresetKeys(
        "DeepSeekMath, arXiv:2402.03300, without its KL term (`algorithm.kl_coef`)",
        {
            "algorithm": {
                "name": "grpo",
                "loss": "vanilla",
                "loss_aggregation": "seq-mean-token-mean",
                "clip_low": 0.2,
                "clip_high": 0.2,
                "normalize_by_std": True,
            }
        },
    ),
    Preset.dr_grpo: PresetKeys(
        "Understanding R1-Zero-like training, arXiv:2503.20783",
        {
            "algorithm": {
                "name": "grpo",
                "loss": "vanilla",
                "loss_aggregation": "seq-mean-token-sum-norm",
                "clip_low": 0.2,
                "clip_high": 0.2,
                "normalize_by_std": False,
            }
        },
    ),
    Preset.dapo: PresetKeys(
        "arXiv:2503.14476, without its penalty on length",
        {
            "algorithm": {
                "name": "grpo",
                "loss": "vanilla",
                "loss_aggregation": "token-mean",
                "clip_low": 0.2,
                "clip_high": 0.28,
                "clip_c": 10.0,
                "normalize_by_std": True,
            },
            "rollout": {"equal_group": "resample"},
        },
    ),
    Preset.gspo: PresetKeys(
        "arXiv:2507.18071; one ratio for each row, of which an episode may have several",
        {
            "algorithm": {
                "name": "grpo",
                "loss": "gspo",
                "loss_aggregation": "seq-mean-token-mean",
                "clip_low": 3e-4,
                "clip_high": 4e-4,
                "normalize_by_std": True,
            }
        },
    ),
    Preset.rloo: PresetKeys(
        "Back to basics, arXiv:2402.14740; with the clip of PPO, where a step has several updates",
        {
            "algorithm": {
                "name": "rloo",
                "loss": "vanilla",
                "loss_aggregation": "seq-mean-token-sum",
                "clip_low": 0.2,
                "clip_high": 0.2,
            }
        },
    ),
    Preset.reinforce_pp: PresetKeys(
        "REINFORCE++, arXiv:2501.03262, without its KL penalty (`algorithm.kl_reward_coef`)",
        {
            "algorithm": {
                "name": "reinforce_plus_plus",
                "loss": "vanilla",
                "loss_aggregation": "token-mean",
                "clip_low": 0.2,
                "clip_high": 0.2,
            }
        },
    ),
    Preset.cispo: PresetKeys(
        "MiniMax-M1, arXiv:2506.13585: no lower bound; the paper has no number for the upper one, 0.28 is DAPO's",
        {
            "algorithm": {
                "name": "grpo",
                "loss": "cispo",
                "loss_aggregation": "token-mean",
                "clip_low": 1.0,
                "clip_high": 0.28,
                "normalize_by_std": True,
            }
        },
    ),
    Preset.minirl: PresetKeys(
        "AgentRL of AgentCPM, with its strict bounds",
        {
            "algorithm": {
                "name": "rloo",
                "loss": MINIRL,
                "loss_aggregation": "seq-mean-token-sum",
                "clip_low": 0.2,
                "clip_high": 0.3,
                "rollout_correction": "off",
            },
            "rollout": {"equal_group": "drop"},
            "trainer": {"async": {"correction": "none"}},
        },
    ),
}


def with_preset(layers: Sequence[Layer], overrides: int) -> list[Layer]:
    """The layers with that of the preset that the last of them names; the last ``overrides`` count as one."""
    place: int | None = None
    name: Any = None
    for number, layer in enumerate(layers):
        section = layer.data.get("algorithm")
        if isinstance(section, Mapping) and "preset" in section:
            place, name = min(number, len(layers) - overrides), section["preset"]
    if place is None or name not in list(
        Preset.__members__
    ):  # another value is refused with the other faults
        return list(layers)
    values = {key: dict(section) for key, section in PRESETS[Preset(name)].values.items()}
    return [*layers[:place], Layer(values, f"algorithm.preset={name}"), *layers[place:]]


def lacks_its_preset(recipe: Recipe) -> bool:
    """Whether a ``Recipe`` object names a preset and has none of its values, which only loading puts there."""
    if recipe.algorithm.preset is None:
        return False
    default = Recipe()
    values = map_values(PRESETS[recipe.algorithm.preset].values)
    changed = [path for path, value in values if _value(default, path) != value]
    return bool(changed) and all(_value(recipe, path) == _value(default, path) for path in changed)


def _value(recipe: Recipe, path: KeyPath) -> Any:
    value: Any = recipe
    for name in path:
        value = getattr(value, "async_" if name == "async" else name)
    return getattr(value, "value", value)
