"""The rollout server, called as Ray would call it: many requests on one event loop, and no request left waiting."""

import asyncio
import copy
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from verl.workers.config import RolloutConfig
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.verl.cpu import server as server_module
from aworld_train.adapter.verl.cpu.server import TransformersServer, eos_token_ids
from tests.models import tiny_qwen3

VOCABULARY = 97
END = 3
RESPONSE = 160
WITHIN = 120.0
GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3 with a tokenizer, as a directory that Hugging Face libraries load."""
    place = tmp_path_factory.mktemp("model")
    tiny_qwen3(VOCABULARY, eos_token_id=END).save_pretrained(place)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"w{END}", pad_token="w1", unk_token="w0"
    ).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def model(model_dir: Path) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()


@pytest.fixture
def server(model_dir: Path) -> TransformersServer:
    return server_of(model_dir)


def server_of(model_dir: Path, replica_rank: int = 0) -> TransformersServer:
    rollout = RolloutConfig(
        name="transformers", prompt_length=64, response_length=RESPONSE, tensor_model_parallel_size=1
    )
    model_config = OmegaConf.create(
        {
            "_target_": "verl.workers.config.HFModelConfig",
            "path": str(model_dir),
            "override_config": {"attn_implementation": "sdpa"},
        }
    )
    # As one of many replicas it computes with one thread.
    return TransformersServer(rollout, model_config, replica_rank, replicas=64)


def prompt(seed: int, length: int = 20) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def best_tokens(
    model: Qwen3ForCausalLM, given: list[int], sampled: list[int]
) -> tuple[list[int], list[float]]:
    """What the model finds most likely at each place of ``sampled``, and the log-probability of what is there."""
    with torch.inference_mode():
        logits = model(torch.tensor([given + sampled])).logits[0, len(given) - 1 : -1]
    logprobs = logits.log_softmax(-1).gather(1, torch.tensor(sampled)[:, None])[:, 0]
    return logits.argmax(-1).tolist(), logprobs.tolist()


def other_weights(model: Qwen3ForCausalLM, seed: int = 1) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return changed


def parts(model: Qwen3ForCausalLM) -> list[tuple[list[str], list[np.ndarray]]]:
    """The weights in two parts, as the trainer sends them."""
    named = [(name, tensor.numpy()) for name, tensor in model.state_dict().items()]
    half = len(named) // 2
    return [([n for n, _ in part], [a for _, a in part]) for part in (named[:half], named[half:])]


async def load(server: TransformersServer, model: Qwen3ForCausalLM, step: int | None) -> None:
    first, second = parts(model)
    await server.update_weights(*first, False, None)
    await server.update_weights(*second, True, step)


def start(server: TransformersServer, given: list[int], **params: Any) -> "asyncio.Task[TokenOutput]":
    return asyncio.create_task(server.generate("r", given, {**GREEDY, **params}))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():  # noqa: ASYNC110 - the batcher rings no bell
            await asyncio.sleep(0.001)


async def until_sampled(server: TransformersServer, tokens: int) -> None:
    await until(lambda: any(len(r.tokens) >= tokens for r in server._batcher.running))


async def results(*tasks: "asyncio.Task[TokenOutput]") -> list[Any]:
    async with asyncio.timeout(WITHIN):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_replica_has_its_share_of_the_machine_and_a_seed_of_its_own(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module.psutil, "virtual_memory", lambda: SimpleNamespace(total=64_000))
    torch.set_num_threads(2)
    made = server_of(model_dir, replica_rank=3)
    assert await made.ready() is True
    assert torch.get_num_threads() == 1
    assert (made._batcher.kv_budget_bytes, made._batcher.max_running) == (150, made.config.max_num_seqs)
    assert made._batcher._generator.initial_seed() == made.config.seed + 3
    assert made._batcher._text_of([END, 5]) == "w5"


@pytest.mark.parametrize(
    ("by_config", "by_tokenizer", "ends"), [([1, 2], 3, {1, 2, 3}), (4, None, {4}), (None, 4, {4})]
)
def test_a_turn_ends_with_the_tokens_of_the_model_and_of_its_tokenizer(
    by_config: Any, by_tokenizer: Any, ends: set[int]
) -> None:
    sources = {"generation_config": by_config, "tokenizer": by_tokenizer}
    config: Any = SimpleNamespace(
        **{name: SimpleNamespace(eos_token_id=ids) for name, ids in sources.items()}
    )
    assert eos_token_ids(config) == ends
    config.generation_config = config.tokenizer = None
    assert eos_token_ids(config) == set()


async def test_concurrent_requests_get_what_the_model_finds_most_likely(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    rng = random.Random(0)
    prompts = [prompt(i, rng.randint(1, 60)) for i in range(24)]
    tasks = []
    for given in prompts:
        tasks.append(start(server, given, max_tokens=rng.randint(1, 40)))
        await asyncio.sleep(rng.choice([0, 0, 0.005]))
    for given, output in zip(prompts, await results(*tasks), strict=True):
        best, logprobs = best_tokens(model, given, output.token_ids)
        assert output.token_ids == best
        assert output.log_probs == pytest.approx(logprobs, abs=2e-5)
        assert output.stop_reason == "completed"


async def test_the_end_token_of_the_model_ends_a_turn(server: TransformersServer) -> None:
    outputs = await results(
        *(
            asyncio.create_task(
                server.generate(str(i), prompt(i), {"temperature": 5.0, "max_tokens": RESPONSE})
            )
            for i in range(8)
        )
    )
    for output in outputs:
        assert END not in output.token_ids[:-1]
        assert output.token_ids[-1] == END or len(output.token_ids) == RESPONSE
    assert any(output.token_ids[-1] == END for output in outputs)


async def test_without_a_limit_the_response_length_is_the_limit(server: TransformersServer) -> None:
    output, silent = await results(start(server, prompt(0)), start(server, prompt(1), logprobs=False))
    assert len(output.token_ids) == len(output.log_probs) == len(silent.token_ids) == RESPONSE
    assert silent.log_probs is None


async def test_a_sequence_never_grows_beyond_what_the_model_may_hold(server: TransformersServer) -> None:
    [output] = await results(start(server, prompt(0, 200), max_tokens=RESPONSE))
    assert len(output.token_ids) == 64 + RESPONSE - 200


async def test_an_aborted_request_keeps_its_tokens_and_says_so(server: TransformersServer) -> None:
    task = start(server, prompt(0), max_tokens=RESPONSE)
    await until_sampled(server, 3)
    said = await server.abort_all_requests()
    [output] = await results(task)
    assert said == {"aborted_count": 1, "request_ids": ["r"]}
    assert output.stop_reason == "aborted"
    assert 3 <= len(output.token_ids) == len(output.log_probs) < RESPONSE


async def test_after_an_abort_requests_wait_for_resume(server: TransformersServer) -> None:
    await server.abort_all_requests()
    task = start(server, prompt(0), max_tokens=2)
    await asyncio.sleep(0.1)
    assert not task.done()
    assert server._batcher.idle
    await server.resume_generation()
    [output] = await results(task)
    assert len(output.token_ids) == 2


async def test_a_request_stays_out_if_the_door_closes_again_before_its_turn(
    server: TransformersServer,
) -> None:
    await server.abort_all_requests()
    task = start(server, prompt(0), max_tokens=1)
    await asyncio.sleep(0)
    await server.resume_generation()
    await server.abort_all_requests()
    await asyncio.sleep(0.2)
    assert not task.done()
    await server.resume_generation()
    [output] = await results(task)
    assert output.stop_reason == "completed"


async def test_after_an_abort_that_rejects_requests_fail_at_once_until_resume(
    server: TransformersServer,
) -> None:
    await server.abort_all_requests(reject_request=True)
    [error] = await results(start(server, prompt(0)))
    assert isinstance(error, RuntimeError)
    assert "takes no requests" in str(error)
    await server.resume_generation()
    [output] = await results(start(server, prompt(0), max_tokens=1))
    assert output.stop_reason == "completed"


async def test_one_request_can_be_aborted_and_the_others_go_on(server: TransformersServer) -> None:
    other = start(server, prompt(1), max_tokens=60)
    chosen = asyncio.create_task(server.generate("chosen", prompt(2), {**GREEDY, "max_tokens": RESPONSE}))
    await until_sampled(server, 2)
    assert await server.abort_request("chosen") == {"aborted": True, "request_id": "chosen"}
    assert await server.abort_request("unknown") == {"aborted": False, "request_id": "unknown"}
    ended, went_on = await results(chosen, other)
    assert ended.stop_reason == "aborted"
    assert (went_on.stop_reason, len(went_on.token_ids)) == ("completed", 60)


async def test_weights_loaded_in_the_middle_of_a_turn_count_from_the_next_token_on(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    changed = other_weights(model)
    given = prompt(0)
    task = start(server, given, max_tokens=150)
    await until_sampled(server, 5)
    await load(server, changed, step=4)
    [output] = await results(task)
    assert len(output.token_ids) == 150
    old, new = best_tokens(model, given, output.token_ids), best_tokens(changed, given, output.token_ids)
    switch = next(i for i, token in enumerate(output.token_ids) if token != old[0][i])
    assert switch >= 5
    # The token at which old and new first differ may lie after the load; from there on it is the new model alone.
    assert output.token_ids[switch:] == new[0][switch:]
    assert output.log_probs[:5] == pytest.approx(old[1][:5], abs=2e-5)
    assert output.log_probs[switch:] == pytest.approx(new[1][switch:], abs=2e-5)


async def test_nothing_is_decoded_between_the_first_and_the_last_part_of_new_weights(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    changed = other_weights(model)
    first, second = parts(changed)
    begun = start(server, prompt(0), max_tokens=150)
    await until_sampled(server, 5)
    await server.update_weights(*first, False, None)
    in_flight = [*server._batcher.waiting, *server._batcher.running]
    before = [len(request.tokens) for request in in_flight]
    late = start(server, prompt(1), max_tokens=20)
    await asyncio.sleep(0.2)
    assert [len(request.tokens) for request in in_flight] == before
    await server.update_weights(*second, True, 1)
    output, late_output = await results(begun, late)
    assert output.token_ids[before[0] :] == best_tokens(changed, prompt(0), output.token_ids)[0][before[0] :]
    assert late_output.token_ids == best_tokens(changed, prompt(1), late_output.token_ids)[0]


async def test_what_old_weights_computed_is_not_used_under_new_ones(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    changed = other_weights(model)
    given = prompt(0, 40)
    begun = start(server, given, max_tokens=100)
    await until_sampled(server, 20)
    await load(server, changed, step=1)
    [output] = await results(begun)
    # The next turn goes on from a sequence of which a part was sampled by the old weights.
    longer = given + output.token_ids + prompt(1, 5)
    [following] = await results(start(server, longer, max_tokens=20))
    assert following.extra_fields["num_cached_tokens"] > len(given)
    best, logprobs = best_tokens(changed, longer, following.token_ids)
    assert following.token_ids == best
    assert following.log_probs == pytest.approx(logprobs, abs=2e-5)


async def test_the_most_likely_tokens_come_with_those_requests_that_want_them(
    server: TransformersServer,
) -> None:
    wanting, other = await results(
        start(server, prompt(0), max_tokens=5, top_logprobs=3), start(server, prompt(1, 5), max_tokens=5)
    )
    assert other.extra_fields["top_logprobs"] == []
    likely = wanting.extra_fields["top_logprobs"]
    assert [len(each) for each in likely] == [3] * 5
    assert [each[0][0] for each in likely] == wanting.token_ids  # greedy
    assert [each[0][1] for each in likely] == wanting.log_probs


@pytest.mark.parametrize("length", [1, 20, 63])
@pytest.mark.parametrize("likeliest", [0, 1, 5])
async def test_a_prompt_is_scored_as_the_model_itself_does_in_float64(
    server: TransformersServer, model_dir: Path, length: int, likeliest: int
) -> None:
    tokens = prompt(length, length)
    params = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": likeliest, "detokenize": False}
    [output] = await results(asyncio.create_task(server.generate("r", tokens, params)))
    exact = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float64).eval()
    with torch.inference_mode():
        logprobs = exact(torch.tensor([tokens])).logits[0].log_softmax(-1)[:-1]
    best = logprobs.topk(likeliest or 1)
    expected_ids = best.indices.tolist() if likeliest else [[token] for token in tokens[1:]]
    found_ids, found = (output.extra_fields[f"prompt_{name}"] for name in ("ids", "logprobs"))
    assert found_ids[:-1] == expected_ids
    assert found_ids[-1] == [0] * (likeliest or 1) and found[-1] == [0.0] * (likeliest or 1)
    for at, (row, ids) in enumerate(zip(found, expected_ids, strict=False)):
        assert row == pytest.approx(logprobs[at, ids].tolist(), abs=1e-5)
    assert len(found) == length
    assert len(output.token_ids) == len(output.log_probs) == 1 and output.stop_reason == "completed"


async def test_prompts_are_scored_while_others_are_sampled_and_with_whole_weights_alone(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    others = [start(server, prompt(seed), max_tokens=60) for seed in range(3)]
    await until_sampled(server, 1)
    first, second = parts(model)
    await server.update_weights(*first, False, None)
    scored = asyncio.create_task(server.generate("r", prompt(9), {"max_tokens": 1, "prompt_logprobs": 0}))
    await asyncio.sleep(0.05)
    assert not scored.done()
    await server.update_weights(*second, True, 3)
    *sampled, output = await results(*others, scored)
    assert [len(each.token_ids) for each in sampled] == [60] * 3
    assert len(output.extra_fields["prompt_logprobs"]) == 20 and output.extra_fields["global_steps"] == 3


async def test_the_step_of_the_weights_is_reported(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    async def reported() -> list[int | None]:
        [output] = await results(start(server, prompt(0), max_tokens=1))
        return [output.extra_fields[f"{which}global_steps"] for which in ("", "min_", "max_")]

    assert await reported() == [None, None, None]
    await load(server, model, step=7)
    assert await reported() == [7, 7, 7]
    await load(server, model, step=None)
    assert await reported() == [7, 7, 7]
    begun = start(server, prompt(0), max_tokens=150)
    await until_sampled(server, 1)
    await load(server, model, step=8)
    [output] = await results(begun)
    assert len(output.token_ids) > 1
    assert [output.extra_fields[f"{which}global_steps"] for which in ("", "min_", "max_")] == [7, 7, 8]


async def test_weights_the_model_does_not_have_are_refused_and_nobody_waits_for_them(
    server: TransformersServer,
) -> None:
    task = start(server, prompt(0), max_tokens=150)
    await until_sampled(server, 1)
    await server.update_weights([], [], False, None)
    late = start(server, prompt(1), max_tokens=150)
    await until(lambda: bool(server._incoming))
    with pytest.raises(KeyError, match=r"no\.such\.weight"):
        await server.update_weights(["no.such.weight"], [np.zeros(1, np.float32)], True, 1)
    for error in await results(task, late):
        assert "new weights could not be loaded" in str(error)
    assert server._batcher.idle and not server._incoming and not server._futures
    with pytest.raises(ValueError, match=r"zip\(\)"):
        await server.update_weights(["a weight without an array"], [], True, 1)
    [output] = await results(start(server, prompt(0), max_tokens=1))
    assert output.stop_reason == "completed"


async def test_an_error_in_a_step_reaches_every_request_in_flight_and_the_next_ones_work(
    server: TransformersServer, model: Qwen3ForCausalLM
) -> None:
    tasks = [start(server, prompt(i), max_tokens=150) for i in range(5)]
    await until_sampled(server, 2)
    # A token id that the model has no embedding for is an error inside the forward pass of a step.
    tasks.append(start(server, [VOCABULARY + 1000], max_tokens=5))
    for error in await results(*tasks):
        assert isinstance(error, RuntimeError)
        assert "decoding failed: IndexError" in str(error)
    [output] = await results(start(server, prompt(0), max_tokens=30))
    assert output.token_ids == best_tokens(model, prompt(0), output.token_ids)[0]


async def test_a_request_whose_caller_gave_up_disturbs_no_other(server: TransformersServer) -> None:
    given_up, other = start(server, prompt(0), max_tokens=30), start(server, prompt(1), max_tokens=60)
    await until_sampled(server, 2)
    given_up.cancel()
    _, output = await results(given_up, other)
    assert len(output.token_ids) == 60
    await until(lambda: server._batcher.idle)


@pytest.mark.parametrize(
    ("given", "params", "images", "complaint"),
    [
        ([1, 2], {"temperature": -1}, None, "temperature must be at least 0"),
        ([1, 2], {"repetition_penalty": 1.5}, None, "does not support repetition_penalty"),
        ([1, 2], {"max_tokens": 2, "prompt_logprobs": 0}, None, "goes with max_tokens=1"),
        ([1, 2], {"max_tokens": 1, "prompt_logprobs": -1}, None, "prompt_logprobs must be at least 0"),
        ([], {"max_tokens": 1, "prompt_logprobs": 0}, None, "at least one token"),
        ([1, 2], {"guided_json": "{}"}, None, "does not know the sampling parameter"),
        ([1, 2], {}, {"image_data": ["an image"]}, "serves text only"),
        ([1, 2], {}, {"video_data": ["a video"]}, "serves text only"),
        ([], {}, None, "at least one token"),
        ([1] * (64 + RESPONSE), {}, None, "the prompt has 224 tokens"),
    ],
    ids=[
        *("temperature", "penalty", "scored and sampled", "scores", "nothing to score"),
        *("unknown", "image", "video", "empty", "long"),
    ],
)
async def test_what_cannot_be_served_is_refused_and_leaves_the_server_working(
    server: TransformersServer, given: list[int], params: dict[str, Any], images: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        await asyncio.wait_for(server.generate("r", given, params, **(images or {})), WITHIN)
    [output] = await results(start(server, prompt(0), max_tokens=1))
    assert output.stop_reason == "completed"


async def test_memory_of_finished_sequences_is_given_back_when_the_trainer_asks(
    server: TransformersServer,
) -> None:
    for free in (server.sleep, server.release_kv_cache):
        await results(start(server, prompt(0, 40), max_tokens=10))
        assert len(server._batcher.prefixes) > 0
        await free()
        assert server._batcher.prefixes.bytes == 0


async def test_a_stop_text_ends_the_generation_in_the_middle(server: TransformersServer) -> None:
    params = {**GREEDY, "max_tokens": 30}
    whole = await server.generate("a", prompt(5), dict(params))
    words = [f"w{token}" for token in whole.token_ids]
    stop = f"{words[6]} {words[7]}"
    end = next(count for count in range(1, 31) if stop in " ".join(words[:count]))
    stopping = {**params, "stop": [stop], "include_stop_str_in_output": True}
    cut = await server.generate("b", prompt(5), stopping)
    assert cut.token_ids == whole.token_ids[:end]
    assert cut.log_probs is not None and len(cut.log_probs) == end < 30
