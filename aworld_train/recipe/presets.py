"""What `algorithm.preset` stands for: values of a recipe, below the layer that names it.

What that layer and later ones give wins; what the preset does not name stays as it is. A preset is of the loss alone:
learning rate, KL terms and sizes are the recipe's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_train.recipe.output import to_dict
from aworld_train.recipe.schema import Preset, Recipe
from aworld_train.recipe.source import Layer
from aworld_train.recipe.tree import map_values

MINIRL = "minirl"
"""The loss that is not the framework's own."""


@dataclass(frozen=True)
class PresetKeys:
    source: str
    values: Mapping[str, Any]


def _algorithm(
    name: str, loss: str, aggregation: str, clip_low: float, clip_high: float, **others: Any
) -> dict[str, Any]:
    bounds = {"clip_low": clip_low, "clip_high": clip_high}
    return {"algorithm": {"name": name, "loss": loss, "loss_aggregation": aggregation, **bounds, **others}}


PRESETS: Mapping[Preset, PresetKeys] = {
    Preset.grpo: PresetKeys(
        "DeepSeekMath, arXiv:2402.03300, without its KL term (`algorithm.kl_coef`)",
        _algorithm("grpo", "vanilla", "seq-mean-token-mean", 0.2, 0.2, normalize_by_std=True),
    ),
    Preset.dr_grpo: PresetKeys(
        "Understanding R1-Zero-like training, arXiv:2503.20783",
        _algorithm("grpo", "vanilla", "seq-mean-token-sum-norm", 0.2, 0.2, normalize_by_std=False),
    ),
    Preset.dapo: PresetKeys(
        "arXiv:2503.14476, without its penalty on length",
        {
            **_algorithm("grpo", "vanilla", "token-mean", 0.2, 0.28, clip_c=10.0, normalize_by_std=True),
            "rollout": {"equal_group": "resample"},
        },
    ),
    Preset.gspo: PresetKeys(
        "arXiv:2507.18071; one ratio for each row, of which an episode may have several",
        _algorithm("grpo", "gspo", "seq-mean-token-mean", 3e-4, 4e-4, normalize_by_std=True),
    ),
    Preset.rloo: PresetKeys(
        "Back to basics, arXiv:2402.14740; with the clip of PPO, where a step has several updates",
        _algorithm("rloo", "vanilla", "seq-mean-token-sum", 0.2, 0.2),
    ),
    Preset.reinforce_pp: PresetKeys(
        "REINFORCE++, arXiv:2501.03262, without its KL penalty (`algorithm.kl_reward_coef`)",
        _algorithm("reinforce_plus_plus", "vanilla", "token-mean", 0.2, 0.2),
    ),
    Preset.cispo: PresetKeys(
        "MiniMax-M1, arXiv:2506.13585: no lower bound; the paper has no number for the upper one, 0.28 is DAPO's",
        _algorithm("grpo", "cispo", "token-mean", 1.0, 0.28, normalize_by_std=True),
    ),
    Preset.minirl: PresetKeys(
        "AgentRL of AgentCPM, with its strict bounds",
        {
            **_algorithm("rloo", MINIRL, "seq-mean-token-sum", 0.2, 0.3, rollout_correction="off"),
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
    known = list(Preset.__members__)
    if place is None or name not in known:  # another value is refused with the other faults
        return list(layers)
    values = {key: dict(section) for key, section in PRESETS[Preset(name)].values.items()}
    return [*layers[:place], Layer(values, f"algorithm.preset={name}"), *layers[place:]]


def lacks_its_preset(recipe: Recipe) -> bool:
    """Whether a ``Recipe`` object names a preset and has none of its values, which only loading puts there."""
    if recipe.algorithm.preset is None:
        return False
    given, default = (dict(map_values(to_dict(each))) for each in (recipe, Recipe()))
    values = map_values(PRESETS[recipe.algorithm.preset].values)
    changed = [path for path, value in values if default[path] != value]
    return bool(changed) and all(given[path] == default[path] for path in changed)
