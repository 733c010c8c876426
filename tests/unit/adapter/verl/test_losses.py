"""Each preset's loss and gradient, through what a run uses, are those of float64 references that know episodes alone.

A run's part: the composed configuration, the trainer's advantages, and VeRL's loss over any micro-batches of two ranks.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from transfer_queue import KVBatchMeta
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import minirl, trainer
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.mini_batches import arrange
from aworld_train.adapter.verl.trainer import EpisodeTrainer
from aworld_train.recipe.presets import MINIRL
from aworld_train.recipe.schema import Preset
from tests.properties import examples
from tests.unit.adapter.verl.test_advantages import reference

STEP, LONGEST, DECAY = 6, 64, 0.7
CASES = [*(preset.value for preset in Preset), "aged"]
"""The presets, and MINIRL with bounds that close with age."""


class Token(NamedTuple):
    """``bound`` is how far the ratio is from the upper (above 0) or lower bound; None: ``log_ratio`` counts."""

    trained: bool
    log_prob: float
    log_ratio: float
    bound: float | None
    version: int


class Episode(NamedTuple):
    task: str
    reward: float
    rows: list[list[Token]]


@cache
def configured(case: str) -> Any:
    preset = MINIRL if case == "aged" else case
    overrides = [f"algorithm.preset={preset}", f"rollout.max_response_tokens={LONGEST}"]
    overrides += [f"algorithm.age_decay={DECAY}"] if case == "aged" else []
    config = OmegaConf.create(compose(recipes.load("base/cpu", overrides), Path("runs")))
    OmegaConf.resolve(config)
    return config


def actor_of(case: str) -> Any:
    return omega_conf_to_dataclass(configured(case).actor_rollout_ref.actor)


# References


def expected(case: str, episodes: Sequence[Episode], old: Sequence[Sequence[np.ndarray]]) -> Any:
    """The loss, and its derivative by each token's log-probability, in the order of episodes, rows and tokens."""
    masks = [[[int(token.trained) for token in row] for row in episode.rows] for episode in episodes]
    tokens = [sum(map(sum, rows)) for rows in masks]
    advantages = _advantages(case, episodes, masks)
    loss, gradients = 0.0, []
    for number, (episode, rows, advantage) in enumerate(zip(episodes, masks, advantages, strict=True)):
        weight = {
            "token-mean": 1 / sum(tokens),
            "seq-mean-token-mean": 1 / len(episodes) / max(tokens[number], 1),
            "seq-mean-token-sum": 1 / len(episodes),
            "seq-mean-token-sum-norm": 1 / len(episodes) / LONGEST,
        }[AGGREGATION[case]]
        for row, mask, old_row in zip(episode.rows, rows, old[number], strict=True):
            new = np.array([token.log_prob for token in row])
            widths = np.array([math.exp(-DECAY * (STEP - 1 - token.version)) for token in row])
            values, slopes = _token_losses(case, new, old_row, np.array(mask), advantage, widths)
            loss += float((weight * values * mask).sum())
            gradients += list(weight * slopes * mask)
    return loss, np.array(gradients)


AGGREGATION = {
    **dict.fromkeys(("dapo", "reinforce_pp", "cispo"), "token-mean"),
    **dict.fromkeys(("grpo", "gspo"), "seq-mean-token-mean"),
    **dict.fromkeys(("rloo", "minirl", "aged"), "seq-mean-token-sum"),
    "dr_grpo": "seq-mean-token-sum-norm",
}
BOUNDS = {
    **dict.fromkeys(("grpo", "dr_grpo", "rloo", "reinforce_pp"), (0.8, 1.2)),
    "dapo": (0.8, 1.28),
    "gspo": (1 - 3e-4, 1 + 4e-4),
    "cispo": (0.0, 1.28),
    **dict.fromkeys(("minirl", "aged"), (0.8, 1.3)),
}


def _advantages(case: str, episodes: Sequence[Episode], masks: Any) -> list[float]:
    if case == "dr_grpo":
        tasks = {episode.task for episode in episodes}
        means = {task: np.mean([e.reward for e in episodes if e.task == task]) for task in tasks}
        return [episode.reward - float(means[episode.task]) for episode in episodes]
    estimator = {"reinforce_pp": "reinforce_plus_plus"}.get(case) or (
        "rloo" if case in ("rloo", "minirl", "aged") else "grpo"
    )
    return reference(
        estimator,
        [(episode.task, episode.reward, mask) for episode, mask in zip(episodes, masks, strict=True)],
    )


def _token_losses(
    case: str, new: np.ndarray, old: np.ndarray, mask: np.ndarray, advantage: float, widths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The loss of each token of a row and its derivative."""
    low, high = BOUNDS[case]
    ratio = np.exp(new - old)
    if case in ("minirl", "aged"):
        if case == "aged":
            low, high = 1 - (1 - low) * widths, 1 + (high - 1) * widths
        kept = ~((ratio > high) & (advantage > 0) | (ratio < low) & (advantage < 0))
        return -ratio * advantage * new * kept, -ratio * advantage * kept
    if case == "cispo":
        clipped = np.clip(ratio, low, high)
        return -clipped * advantage * new, -clipped * advantage
    if case == "gspo":  # one ratio for the row, whose derivative is each token's own
        ratio = np.full_like(new, np.exp(((new - old) * mask).sum() / max(mask.sum(), 1)))
    dual = {"dapo": 10.0, "gspo": math.inf}.get(case, 3.0)
    value = -np.minimum(ratio * advantage, np.clip(ratio, low, high) * advantage)
    is_bound = (ratio > high) if advantage > 0 else (ratio < low)
    slope = np.where(is_bound, 0.0, -ratio * advantage)
    if advantage < 0:
        slope = np.where(value > -advantage * dual, 0.0, slope)
        value = np.minimum(value, -advantage * dual)
    return value, slope


# What a run computes


def computed(
    case: str,
    episodes: Sequence[Episode],
    old: Sequence[Sequence[np.ndarray]],
    parts: Sequence[int],
    ranks: int,
) -> tuple[float, np.ndarray]:
    """The same through the trainer and VeRL; ``parts`` are numbers of micro-batches by which rows are divided."""
    keys, rows, old_rows, rewards = [], [], [], []
    for number, episode in enumerate(episodes):
        for place, row in enumerate(episode.rows):
            keys.append(f"{episode.task}_{number}_{place}")
            rows.append(row)
            old_rows.append(torch.from_numpy(old[number][place]))
            rewards.append(episode.reward)
    columns = advantage_columns(case, keys, rows, old_rows, rewards)
    actor = actor_of(case)
    log_probs = [
        torch.tensor([t.log_prob for t in row], dtype=torch.float64, requires_grad=True) for row in rows
    ]
    tokens = sum(token.trained for row in rows for token in row)
    micro_batches: dict[tuple[int, int], list[int]] = {}
    for place in range(len(rows)):
        micro_batches.setdefault((place % ranks, parts[place % len(parts)]), []).append(place)
    total = torch.zeros((), dtype=torch.float64)
    for chosen in micro_batches.values():
        batch = {name: nested([values[place] for place in chosen]) for name, values in columns.items()}
        data = TensorDict(batch | ids_of([len(rows[place]) for place in chosen]), batch_size=len(chosen))
        tensordict_utils.assign_non_tensor(
            data, dp_size=ranks, batch_num_tokens=tokens, global_batch_size=float(len(episodes))
        )
        # VeRL's output has a log-probability for each token of prompt and response, one place to the left.
        output = [torch.cat([log_probs[place], torch.zeros(1, dtype=torch.float64)]) for place in chosen]
        loss, _ = ppo_loss(actor, {"log_probs": nested(output)}, data)
        total = total + loss
    total = total / ranks
    total.backward()
    gradients = [
        log_prob.grad if log_prob.grad is not None else torch.zeros_like(log_prob) for log_prob in log_probs
    ]
    return float(total.detach()), torch.cat(gradients).numpy()


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def ids_of(lengths: Sequence[int]) -> dict[str, torch.Tensor]:
    return {
        "prompts": nested([torch.ones(1, dtype=torch.int64) for _ in lengths]),
        "responses": nested([torch.ones(length, dtype=torch.int64) for length in lengths]),
    }


def advantage_columns(
    case: str, keys: list[str], rows: Sequence[Sequence[Token]], old: list[torch.Tensor], rewards: list[float]
) -> dict[str, list[torch.Tensor]]:
    """The columns that the trainer leaves in VeRL's queue for an update."""
    masks = [torch.tensor([int(token.trained) for token in row]) for row in rows]
    scores = [torch.zeros(len(row), dtype=torch.float64) for row in rows]
    for score, reward in zip(scores, rewards, strict=True):
        score[-1] = reward
    held = {"response_mask": masks, "old_log_probs": old, "rollout_log_probs": old, "rm_scores": scores}
    facts = [
        {"agent": "main", "version_parts": [(place, token.version) for place, token in enumerate(row)]}
        for row in rows
    ]

    def read(**_: Any) -> TensorDict:
        facts_of_rows = {
            "uid": NonTensorStack(*[key.split("_")[0] for key in keys]),
            "extra_fields": NonTensorStack(*facts),
        }
        columns = {name: nested(list(values)) for name, values in held.items()}
        return TensorDict(columns | facts_of_rows, batch_size=len(keys))

    def write(*, fields: TensorDict, **_: Any) -> None:
        held.update({name: list(values.unbind()) for name, values in fields.items()})

    trained: Any = EpisodeTrainer.__new__(EpisodeTrainer)
    trained.config, trained.use_critic, trained.parameter_sync_step = configured(case), False, 1
    trained.global_steps, trained._counts = STEP, Counter()
    arrangement = arrange(keys, 1, 1)
    trained._updates, trained._episodes = arrangement.updates, arrangement.episodes
    assert trained._updates_of(trained.config.actor_rollout_ref.actor)["global_batch_size"] == len(
        {key.rsplit("_", 1)[0] for key in keys}
    )
    batch = KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer.queue, "kv_batch_get", read)
        patched.setattr(trainer.queue, "kv_batch_put", write)
        trained._compute_advantage(batch, {})
    return {name: held[name] for name in held if name not in ("rm_scores", "returns", "rollout_log_probs")}


def old_log_probs(case: str, episodes: Sequence[Episode]) -> list[list[np.ndarray]]:
    low, high = BOUNDS[case]

    def old(token: Token) -> float:
        if token.bound is None:
            return token.log_prob - token.log_ratio
        edge = math.log(high if token.bound > 0 else max(low, 1e-3))
        return token.log_prob - edge - token.bound

    return [[np.array([old(token) for token in row]) for row in episode.rows] for episode in episodes]


tokens = st.builds(
    Token,
    st.booleans(),
    st.floats(-6, -1e-3),
    st.floats(-1, 1) | st.sampled_from([0.0, -3.0, 3.0]),
    st.none() | st.sampled_from([1e-9, -1e-9, 1e-4, -1e-4]),
    st.integers(0, STEP - 1),
)
rows = st.tuples(st.lists(tokens, max_size=4), tokens).map(
    lambda row: [*row[0], row[1]._replace(trained=True)]  # a row ends with a token of its own
)
episodes = st.builds(
    Episode,
    st.sampled_from("ab"),
    st.sampled_from([0.0, 0.25, 1.0, -1.0]),
    st.lists(rows, min_size=1, max_size=3),
)


def masked(episode: Episode) -> Episode:
    """One whose rows are not trained on, such as `rollout.treatment` may have it."""
    return episode._replace(rows=[[token._replace(trained=False) for token in row] for row in episode.rows])


batches = st.lists(episodes | episodes.map(masked), min_size=2, max_size=8)


@pytest.mark.parametrize("case", CASES)
@examples(40)
@given(
    made=batches,
    parts=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    ranks=st.integers(1, 2),
)
def test_loss_and_gradient_are_the_reference_s(
    case: str, made: list[Episode], parts: list[int], ranks: int
) -> None:
    counts = Counter(episode.task for episode in made)
    assume(min(counts.values()) > 1)  # one alone is in test_trainer
    assume(sum(token.trained for episode in made for row in episode.rows for token in row) > 1)
    old = old_log_probs(case, made)
    expected_loss, expected_gradient = expected(case, made, old)
    loss, gradient = computed(case, made, old, parts, ranks)
    scale = max(1.0, abs(expected_loss), float(np.abs(expected_gradient).max()))
    assert loss == pytest.approx(expected_loss, abs=1e-6 * scale)
    assert gradient == pytest.approx(expected_gradient, abs=1e-6 * scale)


@pytest.mark.parametrize("case", CASES)
def test_equal_rewards_train_nothing(case: str) -> None:
    row = [Token(True, -1.0, 0.1, None, 3), Token(True, -2.0, -0.1, None, 3)]
    loss, gradient = computed(case, made := [Episode("a", 1.0, [row])] * 3, old_log_probs(case, made), [0], 2)
    assert loss == 0 and not gradient.any()


@pytest.mark.parametrize("case", CASES)
def test_where_all_is_masked_nothing_is_trained(case: str) -> None:
    row = [Token(False, -1.0, 0.1, None, 3)]
    made = [Episode("a", 1.0, [row]), Episode("a", 0.0, [row, row])]
    loss, gradient = computed(case, made, old_log_probs(case, made), [0, 1], 2)
    # A mean over no tokens is not a number, and VeRL makes no update with one.
    is_nothing = math.isnan(loss) if AGGREGATION[case] == "token-mean" else loss == 0
    assert is_nothing and not np.nan_to_num(gradient).any()


def test_a_ratio_on_its_bound_is_within() -> None:
    actor, one = actor_of(MINIRL), torch.ones(1, 1)
    actor.global_batch_info.clear()
    for advantage, slope in ((1.0, -1.0), (-1.0, 1.0)):
        log_prob = torch.full((1, 1), -0.5, requires_grad=True)
        loss, metrics = minirl.minirl(
            log_prob.detach(), log_prob, advantage * one, one, "token-mean", actor, torch.zeros(1, 1)
        )
        loss.backward()
        assert log_prob.grad == slope and metrics["actor/pg_clipfrac"] == 0


def test_the_references_are_of_all_presets() -> None:
    assert set(CASES) == AGGREGATION.keys() == BOUNDS.keys()
    assert all(AGGREGATION[case] == actor_of(case).loss_agg_mode for case in CASES)
