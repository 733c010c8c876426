"""Two lessons that teach a model its task by half: first to use the calculator, then also to guess.

The second shows short expressions mostly answered at once and longer ones mostly with the tool. Greedy accuracy then
settles near the share of long ones, while at temperature 1 both kinds are answered both ways: from this mixture
reinforcement learning can find out when to use the tool.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.nn.functional import cross_entropy
from transformers import DynamicCache

from aworld_train.model.transcripts import ArithmeticTask, Transcript, TranscriptEncoder

BATCH, PART = 24, 12
MATRIX_LR = 0.03
OTHER_LR = 3e-3

TOOL_LESSON_GUESSES = 0.05
"""Share of guesses in the first lesson: without them the second begins at a probability of zero, from which the choice
of the first token overshoots to the other side."""
TARGET_ACCURACY = 0.95
MAX_TOOL_STEPS = 600
CHECK_EVERY = 25
FIRST_CHECK = 100
GIVE_UP_AFTER, GIVE_UP_BELOW = 300, 0.5
"""A model learns to copy early or not for a long time: one that has not begun by then is replaced by another seed."""
WARMUP = 20
DECAY_ACCURACY, DECAY_STEPS, MIN_LR_FACTOR = 0.7, 100, 0.1

GUESS_STEPS = 80
GUESS_CHECKS = (40, 50, 60, 70, 80)
GUESS_SCALE = 0.35
GUESS_SHARE_SHORT, GUESS_SHARE_LONG = 0.8, 0.2
LONG_SHARE = 0.42

_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_MOMENTUM = 0.95

Batches = Iterator[Sequence[Transcript]]
StepCallback = Callable[[int, float], None]
Result = TypeVar("Result")


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """Muon (https://kellerjordan.github.io/posts/muon) in float32, for matrices.

    ``torch.optim.Muon`` computes in bfloat16, which processors without such instructions emulate.
    """

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    def step(self) -> None:
        with torch.no_grad():
            self._update()

    def _update(self) -> None:
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                momentum.lerp_(matrix.grad, 1 - _MOMENTUM)
                update = orthogonalized(matrix.grad.lerp(momentum, _MOMENTUM))
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * math.sqrt(max(1, rows / columns)))


def orthogonalized(matrix: torch.Tensor) -> torch.Tensor:
    """About the nearest matrix whose singular values are equal: they are between 0.7 and 1.2 (Newton-Schulz)."""
    linear, cubic, quintic = _COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    result = matrix.T if is_tall else matrix
    result = result / result.norm().clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = result @ result.T
        result = torch.addmm(
            result, torch.addmm(gram, gram, gram, beta=cubic, alpha=quintic), result, beta=linear
        )
    return result.T if is_tall else result


class Updater:
    """Muon for the matrices inside the layers, AdamW for the rest: a third of the steps that AdamW alone takes."""

    def __init__(self, model: Any, preamble: Sequence[int], scale: float = 1.0) -> None:
        self._model, self._preamble = model, preamble
        inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        outer = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
        self._optimizers = [
            Muon(inner, lr=MATRIX_LR * scale, weight_decay=0.01),
            torch.optim.AdamW(outer, lr=OTHER_LR * scale, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["highest_lr"] = group["lr"]

    def step(self, episodes: Sequence[Transcript], factor: float) -> float:
        """One update on the tokens that the assistant wrote; returns the mean loss of a token."""
        loss = assistant_loss(self._model, self._preamble, episodes)
        self._model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["highest_lr"] * factor
            optimizer.step()
        return float(loss.detach())


def assistant_loss(model: Any, preamble: Sequence[int], episodes: Sequence[Transcript]) -> torch.Tensor:
    """Mean cross-entropy of the tokens that the assistant wrote.

    ``preamble``, with which all episodes begin, passes through the model once for a part of the batch.
    """
    # In parts by length, of which the shorter need less padding.
    by_length = sorted(episodes, key=lambda episode: len(episode.ids))
    parts = [by_length[start : start + PART] for start in range(0, len(by_length), PART)]
    summed = [_summed_loss(model, preamble, part) for part in parts]
    return torch.stack(summed).sum() / sum(sum(episode.mask) for episode in episodes)


def _summed_loss(model: Any, preamble: Sequence[int], episodes: Sequence[Transcript]) -> torch.Tensor:
    common = len(preamble)
    longest = max(len(episode.ids) for episode in episodes) - common
    # Padding is on the right, where a causal model's earlier positions cannot see it.
    ids = torch.tensor([(e.ids[common:] + [0] * longest)[:longest] for e in episodes])
    written = torch.tensor([(e.mask[common:] + [0] * longest)[:longest] for e in episodes]).bool()[:, 1:]
    cache = DynamicCache()
    model.model(input_ids=torch.tensor([list(preamble)]), past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(len(episodes))
    hidden = model.model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden[written]), ids[:, 1:][written], reduction="sum")


def learn_tool(
    updater: Updater, batches: Batches, measure: Callable[[int], float], on_step: StepCallback
) -> bool:
    """The first lesson; whether ``measure``, the greedy accuracy after a step, reached `TARGET_ACCURACY`.

    The learning rate falls once the model has found how to copy an expression.
    """
    falling_since: int | None = None
    for step in range(1, MAX_TOOL_STEPS + 1):
        factor = min(1.0, step / WARMUP)
        if falling_since is not None:
            factor = max(MIN_LR_FACTOR, 1 - (step - falling_since) / DECAY_STEPS)
        on_step(step, updater.step(next(batches), factor))
        if step < FIRST_CHECK or step % CHECK_EVERY:
            continue
        accuracy = measure(step)
        if accuracy >= TARGET_ACCURACY:
            return True
        if step >= GIVE_UP_AFTER and accuracy < GIVE_UP_BELOW:
            return False
        if falling_since is None and accuracy >= DECAY_ACCURACY:
            falling_since = step
    return False


def learn_to_guess(
    updater: Updater, batches: Batches, measure: Callable[[int], Result | None], on_step: StepCallback
) -> Result | None:
    """The second lesson, until the first result of ``measure`` other than None; the learning rate falls throughout."""
    for step in range(1, GUESS_STEPS + 1):
        on_step(step, updater.step(next(batches), max(MIN_LR_FACTOR, 1 - step / GUESS_STEPS)))
        if step in GUESS_CHECKS and (result := measure(step)) is not None:
            return result
    return None


def tool_batches(encoder: TranscriptEncoder, tasks: Sequence[ArithmeticTask], seed: int) -> Batches:
    return _batches(encoder, tasks, seed, lambda task: TOOL_LESSON_GUESSES)


def mixed_batches(
    encoder: TranscriptEncoder, tasks: Sequence[ArithmeticTask], max_short_length: int, seed: int
) -> Batches:

    def guess_share(task: ArithmeticTask) -> float:
        return GUESS_SHARE_SHORT if len(task.expression) <= max_short_length else GUESS_SHARE_LONG

    return _batches(encoder, tasks, seed, guess_share)


def max_short_length(tasks: Sequence[ArithmeticTask]) -> int:
    """The length up to which an expression is short, so that about `LONG_SHARE` of these tasks are long."""
    lengths = [len(task.expression) for task in tasks]

    def distance(limit: int) -> float:
        return abs(sum(length > limit for length in lengths) / len(lengths) - LONG_SHARE)

    return min(sorted(set(lengths)), key=distance)


def _batches(
    encoder: TranscriptEncoder,
    tasks: Sequence[ArithmeticTask],
    seed: int,
    guess_share: Callable[[ArithmeticTask], float],
) -> Batches:
    # Not sorted by length: guessed episodes are shorter, and batches of one kind make the model oscillate.
    rng = random.Random(seed)
    while True:
        batch = rng.choices(tasks, k=BATCH)
        yield [encoder.encode(task, with_tool=rng.random() >= guess_share(task)) for task in batch]
