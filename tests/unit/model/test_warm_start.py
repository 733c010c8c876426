"""The lessons: what the loss covers, what the batches hold, and that an update learns."""

import pytest

pytest.importorskip("torch")

import torch

from aworld_train.model import attempt, warm_start
from aworld_train.model import tokenizer as tiny_tokenizer
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

TOKENIZER = tiny_tokenizer.build()
ENCODER = TranscriptEncoder(TOKENIZER)
TASKS = [
    ArithmeticTask("1+1", "2"),
    ArithmeticTask("48/2", "24"),
    ArithmeticTask("12.5*(3-1)", "25"),
    ArithmeticTask("100-37-9", "54"),
]


def test_passing_the_common_beginning_once_changes_neither_loss_nor_gradients() -> None:
    model = attempt.new_model(TOKENIZER, seed=0)
    episodes = [ENCODER.encode(task, with_tool=at % 2 == 0) for at, task in enumerate(TASKS)]
    warm_start.assistant_loss(model, ENCODER.preamble, episodes).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()

    losses = []
    for episode in episodes:
        logits = model(input_ids=torch.tensor([episode.ids])).logits[0, :-1]
        each = torch.nn.functional.cross_entropy(logits, torch.tensor(episode.ids[1:]), reduction="none")
        losses.append(each[torch.tensor(episode.mask[1:]).bool()])
    torch.cat(losses).mean().backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)


def learn(seed: int, steps: int) -> tuple[list[float], list[float]]:
    """Losses of some steps of the first lesson, and the last weights."""
    model = attempt.new_model(TOKENIZER, seed)
    updater = warm_start.Updater(model, ENCODER.preamble)
    batches = warm_start.tool_batches(ENCODER, TASKS, seed)
    losses = [updater.step(next(batches), 1.0) for _ in range(steps)]
    return losses, torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()


def test_updates_lower_the_loss_and_repeat_exactly_for_the_same_seed() -> None:
    losses, weights = learn(seed=0, steps=8)
    assert losses[-1] < 0.7 * losses[0]
    assert learn(seed=0, steps=8) == (losses, weights)
    assert learn(seed=1, steps=1)[0] != losses[:1]


def test_short_expressions_are_mostly_guessed_and_long_ones_mostly_computed() -> None:
    limit = warm_start.max_short_length(TASKS)
    batches = warm_start.mixed_batches(ENCODER, TASKS, limit, seed=0)
    guessed = {
        len(task.expression) <= limit: ENCODER.encode(task, with_tool=False).ids
        for task in (TASKS[0], TASKS[2])
    }
    tool = {
        len(task.expression) <= limit: ENCODER.encode(task, with_tool=True).ids
        for task in (TASKS[0], TASKS[2])
    }
    seen = [episode.ids for _ in range(40) for episode in next(batches)]
    for short, share in ((True, 0.8), (False, 0.2)):
        direct, called = seen.count(guessed[short]), seen.count(tool[short])
        assert direct + called > 200
        assert direct / (direct + called) == pytest.approx(share, abs=0.1)


def test_the_limit_of_short_leaves_about_the_intended_share_of_long_ones() -> None:
    tasks = [ArithmeticTask("1" * length, "1") for length in range(1, 101)]
    assert warm_start.max_short_length(tasks) == 58


def first_lesson(accuracies: list[float]) -> tuple[bool, list[float]]:
    """Whether the first lesson succeeds when these accuracies are measured, and the learning rates' factors."""
    factors: list[float] = []

    class Recorder:
        def step(self, episodes: object, factor: float) -> float:
            factors.append(factor)
            return 1.0

    measured = iter(accuracies)
    learned = warm_start.learn_tool(
        Recorder(),  # type: ignore[arg-type]
        iter([[]] * 1000),
        lambda step: next(measured, 0.9),
        lambda step, loss: None,
    )
    return learned, factors


def test_the_first_lesson_ends_at_the_first_check_that_measures_enough() -> None:
    learned, factors = first_lesson([0.5, 0.8, 0.96])
    assert learned
    assert len(factors) == warm_start.FIRST_CHECK + 2 * warm_start.CHECK_EVERY


def test_the_learning_rate_falls_only_once_copying_was_found() -> None:
    _, factors = first_lesson([0.1, 0.2, 0.75, 0.8, 0.96])
    begins = warm_start.FIRST_CHECK + 2 * warm_start.CHECK_EVERY
    assert set(factors[warm_start.WARMUP : begins]) == {1.0}
    assert factors[begins:] == sorted(factors[begins:], reverse=True)
    assert factors[-1] < 1.0


def test_a_model_that_does_not_begin_to_copy_is_given_up_early() -> None:
    learned, factors = first_lesson([0.1] * 100)
    assert not learned
    assert len(factors) == warm_start.GIVE_UP_AFTER


def test_the_first_lesson_ends_without_success_when_enough_is_never_measured() -> None:
    learned, factors = first_lesson([0.6] * 100)
    assert not learned
    assert len(factors) == warm_start.MAX_TOOL_STEPS
