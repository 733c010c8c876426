"""The continuous batcher computes what the model computes, whatever joins and leaves beside a request."""

import random
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from aworld_train.adapter.verl.cpu import batching
from aworld_train.adapter.verl.cpu.batching import ATTENTION, ContinuousBatcher, GenerationRequest
from aworld_train.adapter.verl.cpu.kv_cache import CacheShape
from aworld_train.adapter.verl.cpu.sampling import GenerationParams
from tests.models import tiny_qwen3
from tests.properties import examples

VOCABULARY = 97


@pytest.fixture(scope="module")
def model():
    """Computed by one thread: for so little, others only cost time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_qwen3(VOCABULARY)
    torch.set_num_threads(threads)


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


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many tokens of each new sequence are computed, by pass."""
    made: list[list[int]] = []
    prefill = ContinuousBatcher._prefill_pass

    def count(self: Any, first: int, requests: list[GenerationRequest]) -> None:
        made.append([request.length - request.reused_tokens for request in requests])
        prefill(self, first, requests)

    monkeypatch.setattr(ContinuousBatcher, "_prefill_pass", count)
    return made


def greedy(name: str, tokens: list[int], count: int) -> GenerationRequest:
    return GenerationRequest(name, tokens, GenerationParams(max_tokens=count, temperature=0))


@pytest.mark.parametrize(("head_dim", "width"), [(6, 6), (None, 8)])
def test_memory_is_made_for_the_model_s_heads_and_half_as_much_for_what_has_ended(head_dim, width):
    size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=2, **size)).eval()
    model.config.head_dim = head_dim
    batcher = ContinuousBatcher(model, eos_ids=(), kv_budget_bytes=1000)
    assert batcher.cache.shape == CacheShape(layers=2, heads=2, width=width)
    assert (batcher.cache.budget_bytes, batcher.prefixes.budget_bytes) == (1000, 500)
    assert batcher._generator.initial_seed() == 0
    assert model.config._attn_implementation == ATTENTION


def test_a_model_with_other_layers_is_refused_by_name(model):
    model = deepcopy(model)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ValueError, match=r"this one \(Qwen3ForCausalLM\) has sliding_attention: use"):
        ContinuousBatcher(model, eos_ids=())
    model.config.layer_types = None
    ContinuousBatcher(model, eos_ids=())


def test_a_prompt_without_tokens_or_room_is_refused_and_the_longest_sequence_ends_there(model):
    batcher = ContinuousBatcher(model, eos_ids=(), max_length=25)
    with pytest.raises(ValueError, match="at least one token"):
        batcher.submit(greedy("a", [], 5))
    with pytest.raises(ValueError, match="the prompt has 25 tokens; the longest sequence is 25"):
        batcher.submit(greedy("a", [1] * 25, 5))
    assert batcher.idle
    request = greedy("a", prompt(random.Random(12), 20, 20), 99)
    batcher.submit(request)
    drain(batcher)
    assert (request.tokens, request.finish_reason) == (greedy_reference(model, request.prompt, 5), "length")


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
    second = GenerationRequest("episode", longer, GenerationParams(8, temperature=0, top_logprobs=2))
    batcher.submit(second)
    drain(batcher)
    assert second.reused_tokens == len(first.prompt) + len(first.tokens) - 1
    assert second.tokens == greedy_reference(model, longer, 8)
    assert (first.top_logprobs, [len(pairs) for pairs in second.top_logprobs]) == ([], [2] * 8)
    assert [pairs[0] for pairs in second.top_logprobs] == list(
        zip(second.tokens, second.logprobs, strict=True)
    )


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


def test_all_requests_can_be_aborted_or_dropped(model):
    batcher = ContinuousBatcher(model, eos_ids=(), max_running=2)
    requests = [greedy(str(i), prompt(random.Random(i), 20, 20), 9) for i in range(3)]
    for request in requests:
        batcher.submit(request)
    batcher.step()
    assert batcher.abort() == [requests[2], *requests[:2]]
    assert batcher.idle and batcher.cache.rows == 0
    assert [(len(r.tokens), r.reused_tokens, r.finish_reason) for r in requests] == [
        *[(1, 0, "aborted")] * 2,
        (0, 0, "aborted"),
    ]
    for request in requests:
        batcher.submit(greedy("again", request.prompt, 9))
    batcher.step()
    batcher.drop()
    assert batcher.idle and (len(batcher.prefixes), batcher.cache.rows) == (0, 0)


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
    undecodable = ContinuousBatcher(model, eos_ids=())
    undecodable.submit(again := GenerationRequest("a", tokens, params))
    drain(undecodable)
    assert (again.tokens, again.finish_reason) == (sampled, "length")


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
    batcher = ContinuousBatcher(model, eos_ids=(), kv_budget_bytes=3 * 45 * 2 * 4 * 2 * 2 * 8)
    rng = random.Random(9)
    for i in range(9):
        batcher.submit(GenerationRequest(str(i), prompt(rng, 45, 45), GenerationParams(max_tokens=5)))
    running = []
    while not batcher.idle:
        batcher.step()
        running.append(len(batcher.running))
    assert running[0] == max(running) == 3


def test_few_new_tokens_join_at_once_because_running_sequences_wait_for_them(model, monkeypatch):
    monkeypatch.setattr(batching, "_ADMITTED_TOKENS", 90)
    batcher = ContinuousBatcher(model, eos_ids=(), max_running=4)
    rng = random.Random(13)
    for length in (100, 45, 45, 1, 1, 1):  # the first is longer than all that may join, and joins alone
        batcher.submit(greedy(str(length), prompt(rng, length, length), 9))
    running = []
    for _ in range(3):
        batcher.step()
        running.append([len(request.prompt) for request in batcher.running])
    assert running == [[100], [100, 45, 45], [100, 45, 45, 1]]


def test_new_sequences_are_computed_in_passes_of_similar_length(model, passes, monkeypatch):
    monkeypatch.setattr(batching, "_PASS_TOKENS", 80)
    batcher = ContinuousBatcher(model, eos_ids=())
    rng = random.Random(14)
    first = greedy("first", prompt(rng, 60, 60), 1)
    batcher.submit(first)
    drain(batcher)
    requests = [greedy(str(length), prompt(rng, length, length), 5) for length in (10, 30, 100, 20)]
    requests.append(greedy("longer", first.prompt + prompt(rng, 40, 40), 5))
    for request in requests:
        batcher.submit(request)
    drain(batcher)
    assert passes == [[60], [100], [40, 30], [20, 10]]
    for request in requests:
        assert request.tokens == greedy_reference(model, request.prompt, 5)


@pytest.mark.parametrize(("shared", "remembered"), [(38, 2), (39, 1)])
def test_a_prompt_is_remembered_at_once_unless_all_but_its_last_token_are(model, shared, remembered):
    batcher = ContinuousBatcher(model, eos_ids=())
    first = greedy("first", prompt(random.Random(15), 40, 40), 1)
    batcher.submit(first)
    drain(batcher)
    other = [(token + 1) % VOCABULARY for token in first.prompt]
    batcher.submit(greedy("second", first.prompt[:shared] + other[shared:], 5))
    batcher.step()
    assert len(batcher.prefixes) == remembered


def test_what_fits_or_runs_alone_is_computed_once(model, passes):
    batcher = ContinuousBatcher(model, eos_ids=(), kv_budget_bytes=60 * 2 * 4 * 2 * 2 * 8)
    rng = random.Random(16)
    fitting = [greedy(str(i), prompt(rng, 20, 20), 10) for i in range(2)]
    alone = greedy("alone", prompt(rng, 70, 70), 10)
    for request in (*fitting, alone):
        batcher.submit(request)
    drain(batcher)
    assert passes == [[20, 20], [70]]


def test_a_sequence_that_makes_room_is_computed_again_from_what_is_remembered_as_the_others_grow(
    model, passes
):
    batcher = ContinuousBatcher(model, eos_ids=())
    batcher.kv_budget_bytes = batcher.cache.budget_bytes = 3 * 255 * batcher.cache.shape.bytes_per_token
    rng = random.Random(17)
    requests = [greedy(str(i), prompt(rng, 252, 252), 8) for i in range(3)]
    for request in requests:
        batcher.submit(request)
    drain(batcher)
    # The first two passes compute the prompts; the tensors grow beyond 256 tokens without the third sequence.
    assert passes == [[252, 252], [252], [1]]
    for request in requests:
        assert request.tokens == greedy_reference(model, request.prompt, 8)


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
    assert batcher.cache.rows == 0
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
