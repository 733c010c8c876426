"""Playing episodes: batching changes nothing, randomness is seeded, and the calculator answers calls."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from aworld_train.model import attempt
from aworld_train.model import tokenizer as tiny_tokenizer
from aworld_train.model.sampling import generate, play, tool_result
from aworld_train.model.transcripts import ArithmeticTask, TranscriptEncoder

TOKENIZER = tiny_tokenizer.build()
ENCODER = TranscriptEncoder(TOKENIZER)
MODEL = attempt.new_model(TOKENIZER, seed=0)
EXPRESSIONS = ["1+1", "12.5*(3-1)", "100/8"]


class Scripted:
    """A model that writes a scripted text after a prompt, by the expression in the prompt and by turn."""

    def __init__(self, *turns: dict[str, str]) -> None:
        self.turns = [
            {tuple(ENCODER.prompt(expression)): TOKENIZER.encode(text) for expression, text in turn.items()}
            for turn in turns
        ]
        self.rows: list[list[int]] = []

    def __call__(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        if input_ids.shape[1] > 1:
            pairs = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
            prompts = [[i for i, seen in zip(ids, mask, strict=True) if seen] for ids, mask in pairs]
            turn = 0 if all(tuple(p) in self.turns[0] for p in prompts) else 1
            self.rows = [self._reply(tuple(p), self.turns[turn]) for p in prompts]
        tokens = [row.pop(0) if row else TOKENIZER.pad_token_id for row in self.rows]
        logits = torch.nn.functional.one_hot(torch.tensor(tokens), len(TOKENIZER)).float()
        return SimpleNamespace(logits=logits[:, None])

    def _reply(self, prompt: tuple[int, ...], turn: dict[tuple[int, ...], list[int]]) -> list[int]:
        return list(next(ids for expression, ids in turn.items() if prompt[: len(expression)] == expression))


def call(expression: str) -> str:
    return (
        f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n'
        "</tool_call><|im_end|>"
    )


def test_a_batch_generates_what_each_prompt_generates_alone() -> None:
    prompts = [ENCODER.prompt(expression) for expression in EXPRESSIONS]
    together = generate(MODEL, TOKENIZER, prompts, max_tokens=12)
    assert together == [generate(MODEL, TOKENIZER, [prompt], max_tokens=12)[0] for prompt in prompts]


def test_greedy_generation_takes_the_likeliest_token_of_a_whole_forward_pass() -> None:
    prompt = ENCODER.prompt("12.5*(3-1)")
    (written,) = generate(MODEL, TOKENIZER, [prompt], max_tokens=6)
    ids = torch.tensor([prompt + written])
    with torch.no_grad():
        likeliest = MODEL(input_ids=ids).logits[0].argmax(dim=-1).tolist()
    assert written == likeliest[len(prompt) - 1 : -1]


def test_the_same_generator_state_samples_the_same_episodes() -> None:
    def sample(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        episodes = play(MODEL, ENCODER, EXPRESSIONS, temperature=1.0, generator=generator)
        return [episode.transcript.ids for episode in episodes]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_an_episode_with_a_call_is_the_transcript_of_that_conversation() -> None:
    model = Scripted(
        {"48/2": call("48/2"), "3*9": "<answer>26</answer><|im_end|>"},
        {"48/2": "<answer>24</answer><|im_end|>"},
    )
    used, guessed = play(model, ENCODER, ["48/2", "3*9"])
    end_of_turn = TOKENIZER.encode("\n")
    expected = ENCODER.encode(ArithmeticTask("48/2", "24"), with_tool=True)
    assert used.transcript.ids + end_of_turn == expected.ids
    assert [*used.transcript.mask, 0] == expected.mask
    assert (used.used_tool, used.answer) == (True, "24")
    expected = ENCODER.encode(ArithmeticTask("3*9", "26"), with_tool=False)
    assert guessed.transcript.ids + end_of_turn == expected.ids
    assert [*guessed.transcript.mask, 0] == expected.mask
    assert (guessed.used_tool, guessed.answer) == (False, "26")


def test_greedy_measurement_counts_right_answers_and_calls() -> None:
    model = Scripted(
        {"48/2": call("48/2"), "3*9": "<answer>26</answer><|im_end|>", "1+1": "<answer>2</answer><|im_end|>"},
        {"48/2": "<answer>24</answer><|im_end|>"},
    )
    tasks = [ArithmeticTask("48/2", "24"), ArithmeticTask("3*9", "27"), ArithmeticTask("1+1", "2")]
    found = attempt.greedy(model, ENCODER, tasks)
    assert (found.accuracy, found.tool_use) == (
        pytest.approx(2 / 3, abs=1e-4),
        pytest.approx(1 / 3, abs=1e-4),
    )


@pytest.mark.parametrize(
    ("turn", "result"),
    [
        (call("48/2"), "24"),
        (call("1/3"), "0.333333"),
        (call("1/0"), "error: division by zero"),
        (call("two"), "error: words or units in the expression"),
        ("<tool_call>\nnot json\n</tool_call>", None),
        ('<tool_call>\n{"name": "calculator"}\n</tool_call>', None),
        ("<tool_call>\n[1]\n</tool_call>", None),
        ("<answer>24</answer>", None),
    ],
)
def test_the_calculator_answers_calls_that_can_be_read(turn: str, result: str | None) -> None:
    assert tool_result(turn) == result
