"""Tokens come from the distribution that was asked for, and their log-probabilities are those of that distribution."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.cpu import sampling
from aworld_train.adapter.verl.cpu.sampling import MAX_TOP_LOGPROBS, GenerationParams, most_likely, sample
from tests.properties import examples

VOCABULARY = 12


def reference(logits: torch.Tensor, params: GenerationParams) -> list[float]:
    """The distribution of one row, the slow way: token by token, in double precision."""
    scores = [score / (params.temperature or 1.0) for score in logits.double().tolist()]
    total = sum(math.exp(score) for score in scores)
    probabilities = [math.exp(score) / total for score in scores]
    if params.temperature == 0:
        return probabilities
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if params.top_k > 0:
        order = order[: params.top_k]
    kept_mass = sum(probabilities[token] for token in order)
    kept: list[int] = []
    for token in order:
        kept.append(token)
        if sum(probabilities[t] for t in kept) / kept_mass >= params.top_p:
            break
    mass = sum(probabilities[token] for token in kept)
    return [probabilities[token] / mass if token in kept else 0.0 for token in range(len(scores))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=generator(seed)) * 2


@pytest.mark.parametrize(
    "params",
    [
        GenerationParams(1),
        GenerationParams(1, temperature=0.5),
        GenerationParams(1, temperature=1.7),
        GenerationParams(1, top_k=1),
        GenerationParams(1, top_k=4),
        GenerationParams(1, top_k=10 * VOCABULARY),
        GenerationParams(1, top_p=0.6),
        GenerationParams(1, top_p=1e-9),
        GenerationParams(1, temperature=1.3, top_k=6, top_p=0.8),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_the_reference_says(params: GenerationParams) -> None:
    draws = 20_000
    logits = some_logits()
    tokens, _ = sample(logits.expand(draws, -1), [params] * draws, generator())
    drawn = torch.bincount(tokens, minlength=VOCABULARY).double()
    expected = torch.tensor(reference(logits, params), dtype=torch.double) * draws
    assert not drawn[expected == 0].any(), "a token was drawn that top-k or top-p leaves out"
    possible = expected > 0
    chi_square = float(((drawn - expected)[possible] ** 2 / expected[possible]).sum())
    freedom = int(possible.sum()) - 1
    # Six standard deviations of the chi-square distribution above its mean; the draws are seeded.
    assert chi_square <= freedom + 6 * math.sqrt(2 * freedom)


# Logits far enough apart that single and double precision put them into the same order.
rows = st.tuples(
    st.lists(
        st.integers(-512, 512).map(lambda i: i / 64), min_size=VOCABULARY, max_size=VOCABULARY, unique=True
    ),
    st.builds(
        GenerationParams,
        max_tokens=st.just(1),
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        top_p=st.sampled_from([0.1, 0.5, 0.95, 1.0]),
        top_k=st.sampled_from([-1, 1, 3, 100]),
    ),
)


@examples(200)
@given(st.lists(rows, min_size=1, max_size=6), st.integers(0, 2**32))
def test_each_row_of_a_mixed_batch_is_sampled_by_its_own_parameters(
    batch: list[tuple[list[float], GenerationParams]], seed: int
) -> None:
    logits = torch.tensor([row for row, _ in batch])
    params = [p for _, p in batch]
    tokens, logprobs = sample(logits, params, generator(seed))
    for row, token, logprob, given_params in zip(
        logits, tokens.tolist(), logprobs.tolist(), params, strict=True
    ):
        probability = reference(row, given_params)[token]
        if given_params.temperature == 0:
            assert token == int(row.argmax())
        if not _on_the_edge(row, given_params):
            assert probability > 0
            assert logprob == pytest.approx(math.log(probability), abs=2e-5)


def _on_the_edge(row: torch.Tensor, params: GenerationParams) -> bool:
    """Whether rounding in single precision may decide where top-p cuts."""
    plain = reference(row, GenerationParams(1, temperature=params.temperature or 1.0, top_k=params.top_k))
    cumulative = torch.tensor(sorted(plain, reverse=True), dtype=torch.double).cumsum(0)
    return bool(((cumulative - params.top_p).abs() < 1e-5).any()) and params.top_p < 1


def test_greedy_takes_the_most_likely_token_with_its_plain_log_probability() -> None:
    logits = torch.randn(50, VOCABULARY, generator=generator(1)) * 3
    params = GenerationParams(1, temperature=0, top_k=1, top_p=0.01)
    tokens, logprobs = sample(logits, [params] * 50, generator())
    assert torch.equal(tokens, logits.argmax(-1))
    assert torch.allclose(logprobs, logits.log_softmax(-1).max(-1).values, atol=1e-6)


def test_greedy_tells_logits_apart_that_differ_in_the_last_bit() -> None:
    smaller = torch.tensor(3.0)
    larger = torch.nextafter(smaller, torch.tensor(9.0))
    logits = torch.stack([smaller, larger]).repeat(1, VOCABULARY // 2)
    tokens, _ = sample(logits, [GenerationParams(1, temperature=0)], generator())
    assert tokens.tolist() == [1]


def test_top_p_keeps_what_reaches_it_and_without_top_p_rounding_removes_nothing() -> None:
    halves, likely = torch.zeros(2), torch.tensor([0.0, -30.0])
    assert [pair[1] for pair in most_likely(halves, GenerationParams(1, top_p=0.5, top_logprobs=2))] == [0.0]
    assert len(most_likely(likely, GenerationParams(1, top_k=2, top_logprobs=2))) == 2


def test_rows_without_limits_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sampling, "_truncate")
    logits = some_logits()[None]
    assert sample(logits, [GenerationParams(1)], generator())[1].isfinite().all()


def test_greedy_rows_use_no_randomness() -> None:
    source = generator(7)
    before = source.get_state()
    sample(some_logits()[None], [GenerationParams(1, temperature=0)], source)
    assert torch.equal(before, source.get_state())


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    logits = torch.randn(64, VOCABULARY, generator=generator(2))
    params = [GenerationParams(1)] * 64
    first, again, other = (sample(logits, params, generator(seed))[0] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_row_with_its_own_source_draws_the_same_whatever_stands_beside_it() -> None:
    logits = torch.randn(40, VOCABULARY, generator=generator(2))
    params = [GenerationParams(1, seed=5), GenerationParams(1, seed=5, top_k=1)] * 20
    own = [generator(row) for row in range(40)]
    together, _ = sample(logits, params, generator(1), own)
    alone = [
        int(sample(logits[row : row + 1], [params[row]], generator(9), [generator(row)])[0][0])
        for row in range(40)
    ]
    assert together.tolist() == alone
    assert GenerationParams.parse({"seed": 7}, default_max_tokens=1).seed == 7


def test_half_precision_logits_are_sampled_in_single_precision() -> None:
    logits = some_logits().to(torch.bfloat16)[None]
    tokens, logprobs = sample(logits, [GenerationParams(1)], generator())
    assert logprobs.dtype == torch.float32
    assert logprobs[0] == logits.float().log_softmax(-1)[0, tokens[0]]


def test_parameters_as_verl_sends_them_are_read() -> None:
    sent = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "repetition_penalty": 1.0,
        "logprobs": True,
        "max_tokens": 33,
        "stop_token_ids": [4, 2],
    }
    assert GenerationParams.parse(sent, default_max_tokens=9) == GenerationParams(
        33, temperature=0.7, top_p=0.9, top_k=5, stop_token_ids=frozenset({2, 4})
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("repetition_penalty", (1.0, None)),
        *((name, (0.0, None)) for name in ("frequency_penalty", "presence_penalty", "min_p")),
        ("n", (1, None)),
        ("logprobs", (True, False, None)),
        ("include_stop_str_in_output", (True, None)),
        ("top_logprobs", (0, None)),
    ],
)
def test_what_changes_nothing_may_be_sent(name: str, values: tuple[object, ...]) -> None:
    for value in values:
        assert GenerationParams.parse({name: value}, default_max_tokens=9) == GenerationParams(9)


def test_what_is_not_sent_has_its_default() -> None:
    assert GenerationParams.parse({}, default_max_tokens=9) == GenerationParams(9)
    assert GenerationParams.parse({"max_new_tokens": 3}, default_max_tokens=9).max_tokens == 3
    assert GenerationParams.parse({"top_k": 0}, default_max_tokens=9).top_k == -1
    least = {"max_tokens": 1, "temperature": 0, "top_k": 1, "top_logprobs": MAX_TOP_LOGPROBS}
    assert GenerationParams.parse(least, default_max_tokens=9) == GenerationParams(
        1, temperature=0.0, top_k=1, top_logprobs=20
    )
    assert (
        GenerationParams.parse({"stop_token_ids": None}, default_max_tokens=9).stop_token_ids == frozenset()
    )


@pytest.mark.parametrize(
    ("sent", "stop"), [(None, ()), ([], ()), ("end", ("end",)), (["a", "", "b"], ("a", "b"))]
)
def test_stop_texts_may_be_one_or_several(sent: object, stop: tuple[str, ...]) -> None:
    request = {"stop": sent, "include_stop_str_in_output": True}
    assert GenerationParams.parse(request, default_max_tokens=9).stop == stop


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        ({"guided_json": "{}"}, "does not know the sampling parameter 'guided_json'"),
        ({"top-p": 0.9}, "does not know the sampling parameter 'top-p'"),
        ({"repetition_penalty": 1.2}, r"does not support repetition_penalty=1\.2"),
        ({"presence_penalty": 0.5}, r"does not support presence_penalty=0\.5"),
        ({"min_p": 0.1}, r"does not support min_p=0\.1"),
        ({"n": 2}, "does not support n=2"),
        ({"logprobs": 5}, "does not support logprobs=5"),
        ({"include_stop_str_in_output": False}, "does not support include_stop_str_in_output=False"),
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"temperature": math.nan}, "temperature must be at least 0"),
        ({"temperature": math.inf}, "temperature must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "top_p must be above 0"),
        ({"top_p": math.nan}, "top_p must be above 0"),
        ({"top_k": -2}, "top_k must be -1"),
        ({"max_tokens": -1}, "max_tokens must be at least 1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"top_logprobs": -1}, "top_logprobs must be 0 to 20, not -1"),
        ({"top_logprobs": 21}, "top_logprobs must be 0 to 20, not 21"),
    ],
    ids=str,
)
def test_what_would_change_sampling_and_is_not_supported_is_refused(
    sent: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        GenerationParams.parse(sent, default_max_tokens=9)


@pytest.mark.parametrize(
    "params",
    [
        GenerationParams(1, top_logprobs=3),
        GenerationParams(1, temperature=0, top_logprobs=1),
        GenerationParams(1, temperature=1.3, top_k=2, top_logprobs=5),
        GenerationParams(1, top_logprobs=20),
    ],
    ids=str,
)
def test_the_most_likely_tokens_are_those_of_the_distribution(params: GenerationParams) -> None:
    logits = some_logits()
    expected = sorted(enumerate(reference(logits, params)), key=lambda pair: -pair[1])
    expected = [pair for pair in expected if pair[1] > 0][: params.top_logprobs]
    found = most_likely(logits, params)
    assert [token for token, _ in found] == [token for token, _ in expected]
    assert [math.exp(logprob) for _, logprob in found] == pytest.approx([p for _, p in expected], rel=1e-4)
