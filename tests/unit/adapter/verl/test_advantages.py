"""Advantages, weights and rejections are what references say that know episodes alone, however rows are cut."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from aworld_train.adapter.verl.advantages import (
    Sample,
    by_teacher,
    correct,
    episodes_of,
    estimate,
    samples_of,
    scored_once,
    shares_of_tokens,
)

Episode = tuple[str, float, list[list[int]]]
"""Its task, its reward, and the mask of each row."""
GROUPED = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "grpo_passk")
WHITENED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")


def reference(estimator: str, episodes: Sequence[Episode]) -> list[float]:
    """The advantage of each episode's trained tokens, in float64."""
    tokens = np.array([sum(map(sum, rows)) for _, _, rows in episodes], dtype=np.float64)
    rewards = np.array([reward for _, reward, _ in episodes], dtype=np.float64)
    tasks = np.array([task for task, _, _ in episodes])
    values = np.zeros(len(episodes))
    for task in set(tasks.tolist()):
        chosen = tasks == task
        values[chosen] = _of_group(estimator, rewards[chosen], tokens[chosen])
    if estimator in WHITENED:
        mean = (values * tokens).sum() / tokens.sum()
        variance = ((values - mean) ** 2 * tokens).sum() / tokens.sum() * tokens.sum() / (tokens.sum() - 1)
        values = (values - mean) / np.sqrt(variance + 1e-8)
    return [float(value) for value in values]


def _of_group(estimator: str, rewards: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    count = len(rewards)
    match estimator:
        case "grpo" | "grpo_vectorized" if count > 1:
            return np.asarray((rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6))
        case "rloo" | "rloo_vectorized" if count > 1:
            return np.asarray(rewards - (rewards.sum() - rewards) / (count - 1))
        case "opo" if count > 1:
            return np.asarray(rewards - (rewards * tokens).sum() / tokens.sum())
        case "grpo_passk":
            best, second = np.sort(rewards)[::-1][:2]
            gain = np.zeros(count)
            gain[rewards.argmax()] = (best - second) / (rewards.std(ddof=1) + 1e-6)
            return gain
        case "reinforce_plus_plus_baseline" if count > 1:
            return np.asarray(rewards - rewards.mean())
    return rewards


def rows_of(
    episodes: Sequence[Episode], own: Mapping[str, Any] | None = None
) -> tuple[DataProto, list[str], list[Any], list[int]]:
    """The batch, keys, facts and lengths of the rows of episodes, the reward of each at every row's end."""
    keys, masks, rewards = [], [], []
    for number, (task, reward, rows) in enumerate(episodes):
        for place, mask in enumerate(rows):
            keys.append(f"{task}_{number}_{place}")
            masks.append(mask)
            rewards.append(reward)
    lengths = [len(mask) for mask in masks]
    width = max(lengths)
    padded = torch.tensor([mask + [0] * (width - len(mask)) for mask in masks])
    scores = torch.zeros(padded.shape)
    for row, (length, reward) in enumerate(zip(lengths, rewards, strict=True)):
        scores[row, length - 1] = reward
    data = DataProto(batch=TensorDict({"response_mask": padded, "rm_scores": scores}, batch_size=len(keys)))
    data.non_tensor_batch["uid"] = np.array([key.split("_")[0] for key in keys], dtype=object)
    return data, keys, [{"agent": "main", "reward_extra_info": own or {}} for _ in keys], lengths


def by(estimator: str) -> Any:
    options = OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": True})
    return lambda data: compute_advantage(data, adv_estimator=estimator, num_repeat=4, config=options)


def advantages(estimator: str, episodes: Sequence[Episode]) -> torch.Tensor:
    data, keys, facts, lengths = rows_of(episodes)
    samples = samples_of(keys, facts)
    data.batch["token_level_rewards"] = scored_once(data.batch["rm_scores"], samples)
    estimate(data, lengths, samples, by(estimator))
    return torch.where(data.batch["response_mask"].bool(), data.batch["advantages"], torch.nan)


masks = st.lists(st.integers(0, 1), min_size=0, max_size=4).map(lambda mask: [*mask, 1])
rewards = st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0])
episodes = st.lists(
    st.tuples(st.sampled_from("ab"), rewards, st.lists(masks, min_size=1, max_size=3)), min_size=4, max_size=9
).filter(lambda made: all([task for task, *_ in made].count(name) >= 2 for name in "ab"))


@pytest.mark.parametrize("estimator", [*GROUPED, *WHITENED])
@given(made=episodes)
def test_an_advantage_is_that_of_the_episode_whatever_its_rows(estimator: str, made: list[Episode]) -> None:
    if estimator == "grpo_passk" and any(
        sorted(reward for task, reward, _ in made if task == name)[-2:].count(
            max(reward for task, reward, _ in made if task == name)
        )
        > 1
        for name in "ab"
    ):
        return  # which of two equally good ones is the best is nobody's business
    found = advantages(estimator, made)
    expected = reference(estimator, made)
    row = 0
    for (_, _, rows), value in zip(made, expected, strict=True):
        for _ in rows:
            trained = found[row][~found[row].isnan()]
            assert torch.allclose(trained.double(), torch.tensor(value).double(), atol=2e-4), (
                estimator,
                value,
            )
            row += 1


@pytest.mark.parametrize("estimator", [*GROUPED, *WHITENED])
@given(made=episodes, at=st.integers(0, 8))
def test_cutting_an_episode_further_changes_no_other(estimator: str, made: list[Episode], at: int) -> None:
    task, reward, rows = made[at % len(made)]
    cut = [part for row in rows for part in ([row[:1], row[1:]] if len(row) > 1 and row[0] else [row])]
    further = [*made]
    further[at % len(made)] = (task, reward, cut)
    before, after = (_by_token(advantages(estimator, each)) for each in (made, further))
    assert torch.allclose(before, after, atol=1e-6)


def _by_token(values: torch.Tensor) -> torch.Tensor:
    return values[~values.isnan()]


def test_agents_with_rewards_of_their_own_are_compared_with_themselves() -> None:
    """Rewards of the first agent 2, 0, 1, 1; the second always has 0.25, and nothing to learn from."""
    firsts = (2.0, 0.0, 1.0, 1.0)
    made = [("t", 0.0, [[1], [1], [1]]) for _ in firsts]
    data, keys, facts, lengths = rows_of(made)
    for row, key in enumerate(keys):
        _, episode, place = key.split("_")
        agent = ("first", "second", "first")[int(place)]
        value = firsts[int(episode)] if agent == "first" else 0.25
        data.batch["rm_scores"][row, 0] = value
        facts[row] = {"agent": agent, "reward_extra_info": {"score/first": value, "score/second": 0.25}}
    samples = samples_of(keys, facts)
    assert {sample.group for sample in samples} == {"t/first", "t/second"} and len(samples) == 8
    data.batch["token_level_rewards"] = scored_once(data.batch["rm_scores"], samples)
    estimate(data, lengths, samples, by("grpo"))
    found = data.batch["advantages"][:, 0].reshape(4, 3)
    expected = (np.array(firsts) - 1) / (np.std(firsts, ddof=1) + 1e-6)
    assert torch.allclose(found[:, 0].double(), torch.tensor(expected), atol=1e-5)
    assert torch.equal(found[:, 0], found[:, 2]) and not found[:, 1].any()


def test_an_agent_without_a_reward_of_its_own_shares_the_episode_s() -> None:
    keys = ["t_0_0", "t_0_1", "t_1_1", "t_1_0", "u_0_0"]
    facts = [{"agent": agent, "reward_extra_info": {"score/first": 1.0}} for agent in ("first", "second") * 2]
    facts.append({"agent": None, "reward_extra_info": None})
    assert samples_of(keys, facts) == [
        Sample("t/first", [0]),
        Sample("t/", [1]),
        Sample("t/first", [2]),
        Sample("t/", [3]),
        Sample("u/", [4]),
    ]


def test_values_of_a_critic_go_on_from_row_to_row() -> None:
    """With gamma and lambda of 1 an advantage before whitening is the reward less the value, at every token."""
    made: list[Episode] = [("a", 1.0, [[1, 0, 1], [1]]), ("a", 0.0, [[1, 1], [1, 1]])]
    whole: list[Episode] = [("a", 1.0, [[1, 0, 1, 1]]), ("a", 0.0, [[1, 1, 1, 1]])]
    found = []
    for each in (made, whole):
        data, keys, facts, lengths = rows_of(each)
        samples = samples_of(keys, facts)
        data.batch["token_level_rewards"] = scored_once(data.batch["rm_scores"], samples)
        values = iter([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
        data.batch["values"] = torch.zeros(data.batch["rm_scores"].shape)
        for row, length in enumerate(lengths):
            for token in range(length):
                data.batch["values"][row, token] = next(values)
        estimate(data, lengths, samples, by("gae"))
        kept = data.batch["response_mask"].bool()
        found.append((data.batch["advantages"][kept], data.batch["returns"][kept]))
    for name, (cut, joined) in zip(("advantages", "returns"), zip(*found, strict=True), strict=True):
        assert torch.allclose(cut, joined), name


def test_rows_that_are_in_no_sample_have_no_advantage() -> None:
    data, keys, facts, lengths = rows_of([("a", 1.0, [[1]]), ("a", 0.0, [[1]]), ("pad", 0.0, [[0]])])
    samples = samples_of(keys, facts)[:2]
    data.batch["token_level_rewards"] = scored_once(data.batch["rm_scores"], samples)
    estimate(data, lengths, samples, by("reinforce_plus_plus"))
    assert data.batch["advantages"][2].tolist() == [0.0] and data.batch["advantages"][0] > 0


CORRECTIONS: list[dict[str, Any]] = [
    {"rollout_is": "token", "rollout_is_threshold": 1.5},
    {"rollout_is": "sequence", "rollout_is_threshold": 1.5},
    {"rollout_is": "sequence", "rollout_is_threshold": "0.8_1.25"},
    {"rollout_is": "sequence", "rollout_is_threshold": 1.5, "rollout_is_batch_normalize": True},
    {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.7_1.4"},
    {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.8_1.25"},
    {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.9_1.1"},
    {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.02},
    {"rollout_rs": "seq_max_k2", "rollout_rs_threshold": 0.1},
    {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_rs": "seq_mean_k1,seq_max_k3"}
    | {"rollout_rs_threshold": "0.9_1.1,0.1"},
    {},
]
"""Of the kinds that VeRL has: weights of tokens and of sequences, and rejections by sum, mean and maximum."""


def reference_correction(
    settings: Mapping[str, Any], ratios: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """What is kept and the weight of each trained token, by episode, from its logarithms of ratios in float64."""
    kept = [np.ones(len(ratio), dtype=bool) for ratio in ratios]
    thresholds = str(settings.get("rollout_rs_threshold", "")).split(",")
    for number, kind in enumerate(settings["rollout_rs"].split(",") if "rollout_rs" in settings else ()):
        level, divergence = kind.rsplit("_", 1)
        bounds = [float(bound) for bound in thresholds[number].split("_")]
        low, high = np.log(bounds) if divergence == "k1" else (-np.inf, bounds[0])
        for ratio, keep in zip(ratios, kept, strict=True):
            values = {"k1": -ratio, "k2": ratio**2 / 2, "k3": np.exp(ratio) - 1 - ratio}[divergence]
            reduce = {"token": np.array, "seq_sum": np.sum, "seq_mean": np.mean, "seq_max": np.max}[level]
            figure = reduce(values)
            keep &= (low <= figure) & (figure <= high)
    if "rollout_is" not in settings:
        return kept, [None] * len(ratios)
    low, _, high = str(settings["rollout_is_threshold"]).rpartition("_")
    weights = [np.exp(r if settings["rollout_is"] == "token" else np.full(len(r), r.sum())) for r in ratios]
    if low:
        weights = [np.where((w >= float(low)) & (w <= float(high)), w, 0.0) for w in weights]
    weights = [np.minimum(w, float(high)) for w in weights]
    if settings.get("rollout_is_batch_normalize"):
        weights = [w / np.mean([each[0] for each in weights]) for w in weights]
    return kept, list(weights)


@pytest.mark.parametrize("settings", CORRECTIONS, ids=str)
@given(made=episodes, seed=st.integers(0, 1000))
def test_a_correction_is_of_the_episode_whatever_its_rows(
    settings: dict[str, Any], made: list[Episode], seed: int
) -> None:
    data, keys, _, lengths = rows_of([*made, ("pad", 0.0, [[0]])])
    rng = np.random.default_rng(seed)
    shape = data.batch["response_mask"].shape
    # Of a grid that float32 has exactly, so that nothing is on the other side of a threshold by rounding.
    for name in ("rollout_log_probs", "old_log_probs"):
        values = -1 + np.round(64 * rng.normal(0, 0.1, shape)) / 64
        data.batch[name] = torch.tensor(values, dtype=torch.float32)
    before = data.batch["response_mask"].bool()
    # Not those of the row that fills up; in an order that is not that of the rows.
    whole = [rows for rows in episodes_of(keys[::-1]) if keys[::-1][rows[0]] != keys[-1]]
    whole = [[len(keys) - 1 - place for place in rows] for rows in whole]
    differences = (data.batch["old_log_probs"].double() - data.batch["rollout_log_probs"].double()).numpy()
    masks = [np.concatenate([before[row].numpy() for row in rows]) for rows in whole]
    ratios = [
        np.concatenate([differences[row] for row in rows])[mask]
        for rows, mask in zip(whole, masks, strict=True)
    ]
    kept, weights = reference_correction(settings, ratios)
    if "_" in str(settings.get("rollout_is_threshold")) and not any(map(np.any, weights)):
        with pytest.raises(RuntimeError, match="rejects every token"):
            correct(data, lengths, whole, OmegaConf.create(settings))
        return
    measured = correct(data, lengths, whole, OmegaConf.create(settings))
    assert ("rollout_is_weights" in data.batch) == ("rollout_is" in settings)
    rejected_tokens = rejected_episodes = 0
    for rows, mask, keep, weight in zip(whole, masks, kept, weights, strict=True):
        found = np.concatenate([data.batch["response_mask"][row].numpy() for row in rows])
        assert found[~mask].sum() == 0 and found[mask].tolist() == keep.astype(int).tolist()
        trained = keep
        if weight is not None:
            used = torch.cat([data.batch["rollout_is_weights"][row] for row in rows]).numpy()
            assert used[mask] == pytest.approx(weight, abs=1e-5) and not used[~mask].any()
            trained = keep & (weight > 0)
        rejected_tokens += int((~trained).sum())
        rejected_episodes += not trained.any()
    assert not data.batch["response_mask"][-1].any()
    counts = [measured.get(f"training/rejected_{what}") for what in ("tokens", "episodes")]
    assert counts == ([rejected_tokens, rejected_episodes] if settings else [None, None])


def test_rows_of_an_episode_are_in_the_order_in_which_they_were_played() -> None:
    assert episodes_of(["a_0_1", "b_0_0", "a_0_10", "a_1_0", "a_0_0"]) == [[4, 0, 2], [1], [3]]


def test_a_mean_over_rows_is_weighed_by_the_row_s_part_of_its_episode() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    shares = shares_of_tokens(mask, ["a_0_0", "a_0_1", "a_0_2", "a_1_0"])
    assert shares.tolist() == [0.75, 0.25, 0.0, 1.0]


VOCABULARY = 7


@given(
    lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4),
    seed=st.integers(),
)
def test_a_teacher_s_advantage_is_minus_the_reverse_kl_of_each_sampled_token(
    lengths: list[tuple[int, int]], seed: int
) -> None:
    """The reference goes over the tokens of each row one by one, in float64."""
    random = np.random.default_rng(abs(seed))
    student = np.zeros((len(lengths), max(response for _, response in lengths)))
    expected, teacher = np.zeros_like(student), []
    for row, (prompt, response) in enumerate(lengths):
        tokens = random.integers(VOCABULARY, size=prompt + response)
        own, other = (_log_softmax(random.normal(size=(prompt + response, VOCABULARY))) for _ in range(2))
        for place in range(response):
            at, token = prompt + place - 1, tokens[prompt + place]
            student[row, place] = own[at, token]
            expected[row, place] = -(own[at, token] - other[at, token])
        # As VeRL has it: at each place the value of the token after it, and 0 at the end.
        scored = [*(other[at, tokens[at + 1]] for at in range(prompt + response - 1)), 0.0]
        teacher.append(torch.tensor(scored)[:, None])
    found = by_teacher(teacher, torch.tensor(student), [response for _, response in lengths])
    assert found.numpy() == pytest.approx(expected, abs=1e-12)


def test_the_policy_gradient_of_that_advantage_is_the_gradient_of_the_reverse_kl() -> None:
    """Over every token that can be sampled, with its probability; torch differentiates the divergence itself."""
    torch.manual_seed(0)
    logits, other = torch.randn(2, VOCABULARY, dtype=torch.float64)
    logits.requires_grad_()
    own, teacher = logits.log_softmax(-1), other.log_softmax(-1)
    (exact,) = torch.autograd.grad((own.exp() * (own - teacher)).sum(), logits, retain_graph=True)
    rows = [torch.tensor([[float(value)], [0.0]], dtype=torch.float64) for value in teacher]
    advantages = by_teacher(rows, own.detach()[:, None], [1] * VOCABULARY)[:, 0]
    (found,) = torch.autograd.grad(-(own.detach().exp() * advantages * own).sum(), logits)
    assert found.tolist() == pytest.approx(exact.tolist(), abs=1e-12)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))
