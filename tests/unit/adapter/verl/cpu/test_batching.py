"""The continuous batcher computes what the model computes, whatever joins and leaves beside a request."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.cpu.batching import ContinuousBatcher, GenerationRequest
from aworld_train.adapter.verl.cpu.sampling import GenerationParams
from tests.models import tiny_qwen3
from tests.properties import examples

VOCABULARY = 97


@pytest.fixture(scope="module")
def model():
    return tiny_qwen3(VOCABULARY)


def prompt(rng: random.Random, low: int = 1, high: int = 60) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high))]


def greedy_reference(model, tokens: list[int], count: int) -> list[int]:
    with torch.inference_mode():
        out = model.generate(torch.tensor([tokens]), max_new_tokens=count, do_sample=False, eos_token_id=None)
    return out[0, len(tokens) :].tolist()


def reference_logprobs(model, request: GenerationRequest) -> torch.Tensor:
    full = torch.tensor([request.prompt + request.tokens])
    with torch.inference_mode():
        logits = model(full).logits[0].float() / (request.params.temperature or 1.0)
    at = slice(len(request.prompt) - 1, len(request.prompt) + len(request.tokens) - 1)
    return logits.log_softmax(-1)[at].gather(1, torch.tensor(request.tokens)[:, None])[:, 0]


def drain(batcher: ContinuousBatcher) -> list[GenerationRequest]:
    done: list[GenerationRequest] = []
    while not batcher.idle:
        done += batcher.step()
    return done


def test_greedy_tokens_equal_those_of_generate_for_ragged_requests_that_arrive_over_time(model):
    rng = random.Random(1)
    batcher = ContinuousBatcher(model, eos_ids=(), max_running=5)
    requests = [
        GenerationRequest(str(i), prompt(rng), GenerationParams(max_tokens=rng.randint(1, 30), temperature=0))
        for i in range(17)
    ]
    waiting, done = list(requests), []
    while waiting or not batcher.idle:
        for _ in range(min(len(waiting), rng.randint(0, 2))):
            batcher.submit(waiting.pop())
        done += batcher.step()
    assert len(done) == len(requests)
    for request in requests:
        assert request.tokens == greedy_reference(model, request.prompt, request.params.max_tokens)
        assert request.finish_reason == "length"


def test_logprobs_are_those_of_the_sampled_distribution(model):
    rng = random.Random(2)
    batcher = ContinuousBatcher(model, eos_ids=(), seed=3)
    requests = [
        GenerationRequest(
            str(i), prompt(rng), GenerationParams(max_tokens=12, temperature=rng.choice([0.0, 0.7, 1.0, 1.5]))
        )
        for i in range(12)
    ]
    for request in requests:
        batcher.submit(request)
    drain(batcher)
    for request in requests:
        got = torch.tensor(request.logprobs)
        assert torch.allclose(got, reference_logprobs(model, request), atol=2e-5)


def test_a_seeded_request_gives_the_same_tokens_whatever_runs_beside_it(model):
    tokens = prompt(random.Random(3))

    def sampled(others: int) -> list[int]:
        batcher = ContinuousBatcher(model, eos_ids={1}, max_running=8, kv_budget_bytes=1 << 26)
        request = GenerationRequest("own", tokens, GenerationParams(max_tokens=12, seed=11))
        for number in range(others):
            batcher.submit(GenerationRequest(str(number), tokens, GenerationParams(max_tokens=9)))
        batcher.submit(request)
        drain(batcher)
        return request.tokens

    assert sampled(0) == sampled(0) == sampled(4)


def test_a_second_turn_reuses_what_the_first_computed_and_gives_the_same_tokens(model):
    rng = random.Random(4)
    batcher = ContinuousBatcher(model, eos_ids=())
    first = GenerationRequest("episode", prompt(rng, 40, 40), GenerationParams(max_tokens=20, temperature=0))
    batcher.submit(first)
    drain(batcher)
    longer = first.prompt + first.tokens + prompt(rng, 5, 5)
    second = GenerationRequest("episode", longer, GenerationParams(max_tokens=8, temperature=0))
    batcher.submit(second)
    drain(batcher)
    assert second.reused_tokens == len(first.prompt) + len(first.tokens) - 1
    assert second.tokens == greedy_reference(model, longer, 8)


def test_episodes_of_one_task_compute_their_prompt_once(model):
    batcher = ContinuousBatcher(model, eos_ids=(), seed=1)
    shared = prompt(random.Random(5), 50, 50)
    group = [GenerationRequest(str(i), shared, GenerationParams(max_tokens=4)) for i in range(8)]
    for request in group:
        batcher.submit(request)
    drain(batcher)
    assert [r.reused_tokens for r in group] == [0] + [len(shared) - 1] * 7
    for request in group:
        assert torch.allclose(torch.tensor(request.logprobs), reference_logprobs(model, request), atol=2e-5)


def test_new_weights_are_used_and_old_keys_and_values_are_not(model):
    from copy import deepcopy

    batcher = ContinuousBatcher(deepcopy(model), eos_ids=())
    tokens = prompt(random.Random(6), 40, 40)
    batcher.submit(GenerationRequest("a", tokens, GenerationParams(max_tokens=5, temperature=0)))
    drain(batcher)
    changed = deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    batcher.load_weights(changed.state_dict().items())
    after = GenerationRequest("b", tokens, GenerationParams(max_tokens=5, temperature=0))
    batcher.submit(after)
    drain(batcher)
    assert after.reused_tokens == 0
    assert after.tokens == greedy_reference(changed, tokens, 5)


def test_a_weight_the_model_does_not_have_is_refused(model):
    with pytest.raises(KeyError, match=r"no\.such\.weight"):
        ContinuousBatcher(model, eos_ids=()).load_weights([("no.such.weight", torch.zeros(1))])


def test_an_aborted_request_keeps_its_tokens_and_the_others_go_on(model):
    rng = random.Random(7)
    batcher = ContinuousBatcher(model, eos_ids=())
    requests = [
        GenerationRequest(str(i), prompt(rng), GenerationParams(max_tokens=9, temperature=0))
        for i in range(4)
    ]
    for request in requests:
        batcher.submit(request)
    batcher.step()
    batcher.step()
    batcher.abort("1")
    drain(batcher)
    assert requests[1].finish_reason == "aborted"
    assert len(requests[1].tokens) == 2
    for request in (requests[0], requests[2], requests[3]):
        assert request.tokens == greedy_reference(model, request.prompt, 9)


def test_stop_tokens_end_a_request_and_are_part_of_it(model):
    tokens = prompt(random.Random(8), 20, 20)
    stop = greedy_reference(model, tokens, 3)[2]
    before = greedy_reference(model, tokens, 3).index(stop)
    for params, eos in (
        (GenerationParams(max_tokens=9, temperature=0, stop_token_ids=frozenset({stop})), ()),
        (GenerationParams(max_tokens=9, temperature=0), (stop,)),
    ):
        batcher = ContinuousBatcher(model, eos_ids=eos)
        request = GenerationRequest("a", tokens, params)
        batcher.submit(request)
        drain(batcher)
        assert request.finish_reason == "stop"
        assert request.tokens[-1] == stop
        assert len(request.tokens) == before + 1


def words(tokens: list[int]) -> str:
    return "".join(f"<{token}>" for token in tokens)


def test_a_stop_text_ends_a_request_with_the_token_that_completes_it(model):
    tokens = prompt(random.Random(8), 20, 20)
    sampled = greedy_reference(model, tokens, 9)
    stop = words(sampled[2:4])[1:-1]
    end = next(count for count in range(1, 10) if stop in words(sampled[:count]))
    decoded_lengths = []

    def text_of(part: list[int]) -> str:
        decoded_lengths.append(len(part))
        return words(part)

    batcher = ContinuousBatcher(model, eos_ids=(), text_of=text_of)
    params = GenerationParams(max_tokens=9, temperature=0, stop=("never", stop))
    stopped, free = (
        GenerationRequest("a", tokens, params),
        GenerationRequest("b", tokens[1:], GenerationParams(max_tokens=9, temperature=0)),
    )
    batcher.submit(stopped)
    batcher.submit(free)
    drain(batcher)
    assert (stopped.tokens, stopped.finish_reason) == (sampled[:end], "stop")
    assert (len(free.tokens), free.finish_reason) == (9, "length")
    assert len(decoded_lengths) == end  # only the request with a stop text is decoded


def test_the_search_for_a_stop_text_decodes_only_the_end(model):
    longest = 0

    def text_of(part: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(part))
        return words(part)

    batcher = ContinuousBatcher(model, eos_ids=(), text_of=text_of)
    params = GenerationParams(max_tokens=60, temperature=0, stop=("four",))
    request = GenerationRequest("a", prompt(random.Random(8), 20, 20), params)
    batcher.submit(request)
    drain(batcher)
    assert len(request.tokens) == 60
    assert longest == len("four") + 8


def test_memory_for_keys_and_values_bounds_how_many_run_together(model):
    batcher = ContinuousBatcher(model, eos_ids=(), kv_budget_bytes=3 * 50 * 2 * 4 * 2 * 2 * 8)
    rng = random.Random(9)
    for i in range(9):
        batcher.submit(GenerationRequest(str(i), prompt(rng, 45, 45), GenerationParams(max_tokens=5)))
    most = 0
    while not batcher.idle:
        batcher.step()
        most = max(most, len(batcher.running))
    assert 0 < most <= 3


def test_sequences_that_outgrow_the_memory_wait_and_lose_nothing(model):
    rng = random.Random(10)
    batcher = ContinuousBatcher(model, eos_ids=())
    batcher.kv_budget_bytes = batcher.cache.budget_bytes = 200 * batcher.cache.shape.bytes_per_token
    requests = [
        GenerationRequest(str(i), prompt(rng, 20, 20), GenerationParams(max_tokens=60, temperature=0))
        for i in range(8)
    ]
    for request in requests:
        batcher.submit(request)
    rows = []
    while not batcher.idle:
        batcher.step()
        rows.append(len(batcher.running))
        # A step looks at the memory before it adds a token to each sequence.
        assert len(batcher.running) * (max((r.length for r in batcher.running), default=1) - 1) <= 200
    assert max(rows) == 8  # all began together, and had to make room for one another
    for request in requests:
        assert request.tokens == greedy_reference(model, request.prompt, 60)


def test_new_weights_count_from_the_next_token_on_in_sequences_in_flight(model):
    from copy import deepcopy

    batcher = ContinuousBatcher(deepcopy(model), eos_ids=())
    rng = random.Random(11)
    requests = [
        GenerationRequest(str(i), prompt(rng), GenerationParams(max_tokens=12, temperature=0))
        for i in range(5)
    ]
    for request in requests:
        batcher.submit(request)
    for _ in range(4):
        batcher.step()
    changed = deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    batcher.load_weights(changed.state_dict().items())
    drain(batcher)
    for request in requests:
        before, after = request.tokens[:4], request.tokens[4:]
        assert before == greedy_reference(model, request.prompt, 4)
        assert after == greedy_reference(changed, request.prompt + before, 8)


@examples(15)
@given(st.integers(0, 2**16))
def test_any_order_of_arrival_and_abort_gives_exact_logprobs(model, seed):
    rng = random.Random(seed)
    batcher = ContinuousBatcher(
        model,
        eos_ids=(3,),
        max_running=rng.randint(1, 6),
        kv_budget_bytes=rng.choice([4096, 1 << 16, 1 << 22]),
    )
    shared = prompt(rng, 18, 40)
    todo = [
        GenerationRequest(
            str(i),
            (shared + prompt(rng, 0, 9)) if rng.random() < 0.5 else prompt(rng),
            GenerationParams(max_tokens=rng.randint(1, 12), temperature=rng.choice([0.0, 1.0])),
        )
        for i in range(10)
    ]
    requests = list(todo)
    while todo or not batcher.idle:
        for _ in range(min(len(todo), rng.randint(0, 3))):
            batcher.submit(todo.pop())
        batcher.step()
        if rng.random() < 0.1:
            batcher.abort(str(rng.randrange(10)))
    for request in requests:
        assert request.finish_reason in ("stop", "length", "aborted")
        if request.tokens:
            assert torch.allclose(
                torch.tensor(request.logprobs), reference_logprobs(model, request), atol=5e-5
            )
