"""Turns that new weights interrupt, and VeRL's trainers that sample ahead."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import trainer_separate_async
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from aworld_train.adapter.verl import async_trainers
from aworld_train.adapter.verl.async_trainers import ResumingClient
from aworld_train.rollout.outcome import EngineLost

TOKENS = list(range(100, 110))
LIMIT = {"max_tokens": len(TOKENS), "temperature": 1.0, "seed": 7}
seeds: list[int] = []


def served(monkeypatch: pytest.MonkeyPatch, *parts: tuple[int, int]) -> list[Any]:
    """The requests that a server gets, which answers with so many tokens each, of weights with that version."""
    requests: list[Any] = []
    seeds.clear()
    answers: Iterator[tuple[int, int]] = iter(parts)

    async def generate(self: Any, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> TokenOutput:
        requests.append((prompt_ids, sampling_params["max_tokens"]))
        seeds.append(sampling_params["seed"])
        count, version = next(answers)
        begin = len(prompt_ids) - 1
        interrupted = count < sampling_params["max_tokens"] and len(requests) < len(parts)
        return TokenOutput(
            token_ids=TOKENS[begin : begin + count],
            log_probs=[-float(version)] * count,
            stop_reason="aborted" if interrupted else "completed",
            extra_fields={"global_steps": version, "top_logprobs": [[(0, -1.0)]] * count},
        )

    monkeypatch.setattr(LLMServerClient, "generate", generate)
    return requests


async def turn(*, continues: bool = True) -> Any:
    client = ResumingClient({}, continues=continues)
    return await client.generate("a", prompt_ids=[1], sampling_params=LIMIT)


async def test_an_interrupted_turn_continues_with_its_tokens_and_says_which_weights_sampled_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = served(monkeypatch, (3, 4), (0, 4), (2, 5), (5, 7))
    output = await turn()
    assert output.token_ids == TOKENS
    assert output.log_probs == [-4.0] * 3 + [-5.0] * 2 + [-7.0] * 5
    assert output.extra_fields["parts"] == [(0, 4), (3, 5), (5, 7)]
    assert len(output.extra_fields["top_logprobs"]) == len(TOKENS)
    assert output.stop_reason == "completed"
    prompts = [[1], [1, *TOKENS[:3]], [1, *TOKENS[:3]], [1, *TOKENS[:5]]]
    assert requests == list(zip(prompts, [10, 7, 7, 5], strict=True))
    assert seeds == [7, 10, 10, 12], "no part has the random numbers of another"
    assert (LIMIT["max_tokens"], LIMIT["seed"]) == (len(TOKENS), 7)


async def test_a_turn_that_was_interrupted_at_its_last_token_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served(monkeypatch, (10, 4))
    assert (await turn()).extra_fields["parts"] == [(0, 4)]


async def test_without_partial_rollouts_a_turn_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = served(monkeypatch, (3, 4), (10, 5))
    output = await turn(continues=False)
    assert (output.token_ids, output.extra_fields["parts"]) == (TOKENS, [(0, 5)])
    assert requests == [([1], 10)] * 2


class Balancer:
    """VeRL's balancer, in this process: ``remote`` of its methods calls them."""

    def __init__(self, *servers: Any):
        self.made = GlobalRequestLoadBalancer({f"server {n}": server for n, server in enumerate(servers)})

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            return getattr(self.made, name)(*arguments, **options)

        if name == "release_server":  # VeRL waits for no answer
            return SimpleNamespace(remote=self.made.release_server)
        return SimpleNamespace(remote=call)


def server(answer: Any) -> Any:
    async def generate(**_: Any) -> TokenOutput:
        if isinstance(answer, Exception):
            raise answer
        return TokenOutput(
            token_ids=TOKENS, log_probs=[-1.0] * 10, stop_reason="completed", extra_fields=answer
        )

    return SimpleNamespace(generate=SimpleNamespace(remote=generate))


DEAD = ray.exceptions.ActorDiedError()
CONFIG = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "transformers"}}})


async def test_a_turn_whose_sampler_dies_is_lost_and_the_next_one_waits_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_trainers, "_LOOK_SECONDS", 0.001)
    balancer = Balancer(server(DEAD))
    client = ResumingClient(CONFIG, balancer, continues=True, max_wait=60.0)
    with pytest.raises(EngineLost, match=r"the sampler died: .*The actor died unexpectedly"):
        await client.generate("a", prompt_ids=[1], sampling_params=LIMIT)
    assert balancer.made.get_all_servers() == [], "no turn may be sent to it again"
    turn = asyncio.create_task(client.generate("a", prompt_ids=[1], sampling_params=LIMIT))
    await asyncio.sleep(0.02)
    assert not turn.done()
    balancer.made.add_servers({"server 1": server({"global_steps": 3})})
    assert (await turn).extra_fields["parts"] == [(0, 3)]
    assert not client._server_of


async def test_a_turn_whose_sampler_this_run_has_ended_continues_on_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_trainers, "_LOOK_SECONDS", 0.001)
    balancer = Balancer(server(killed := ray.exceptions.ActorDiedError()))
    killed.error_msg += "\nThe actor is dead because it was killed by `ray.kill`."
    client = ResumingClient(CONFIG, balancer, continues=True, max_wait=60.0)
    turn = asyncio.create_task(client.generate("a", prompt_ids=[1], sampling_params=LIMIT))
    await asyncio.sleep(0.02)
    assert balancer.made.get_all_servers() == []
    balancer.made.add_servers({"server 1": server({"global_steps": 3})})
    assert (await turn).extra_fields["parts"] == [(0, 3)]


async def test_a_turn_does_not_wait_for_ever_for_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_trainers, "_LOOK_SECONDS", 0.001)
    client = ResumingClient(CONFIG, Balancer(), continues=True, max_wait=0.01)
    with pytest.raises(RuntimeError, match="No available servers"):
        await client.generate("a", prompt_ids=[1], sampling_params=LIMIT)


async def test_where_engines_are_not_replaced_their_death_is_an_error_of_the_engine() -> None:
    client = ResumingClient(CONFIG, Balancer(server(DEAD)), continues=True)
    with pytest.raises(ray.exceptions.RayActorError):
        await client.generate("a", prompt_ids=[1], sampling_params=LIMIT)


def test_verl_s_line_that_its_logger_does_not_take_is_not_logged() -> None:
    with pytest.raises(TypeError, match="flush"):
        trainer_separate_async.logger.warning("VeRL 0.9.1 logs with it at the level INFO", flush=True)
    trainer_separate_async.logger.info("", flush=True)
