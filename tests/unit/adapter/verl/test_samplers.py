"""Samplers beside the trainer: what the living get when others have died, and what takes the place of those."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from aworld_train import waits
from aworld_train.adapter.verl import liveness, samplers
from aworld_train.adapter.verl.samplers import LOST_SAMPLERS, Samplers

DEAD = ray.exceptions.ActorDiedError()


class Replica:
    """VeRL's replica in this process: its worker keeps the parts that it takes, unless ``error`` comes in between."""

    def __init__(self, replica_rank: int, error: Exception | None = None, **_: Any):
        self.replica_rank, self.error = replica_rank, error
        self.server_address = f"server_{replica_rank}"
        self.server_handle = f"handle {replica_rank}"
        self.resource_pool = SimpleNamespace(pgs=[f"place {replica_rank}"])
        self.calls: list[Any] = []
        self.servers = [f"server {replica_rank}"]
        worker = {"update_weights": self._load, "execute_checkpoint_engine": self._take}
        self.workers = [SimpleNamespace(**{name: SimpleNamespace(remote=c) for name, c in worker.items()})]

    async def init_standalone(self) -> None:
        if self.error is not None:
            raise self.error

    async def abort_all_requests(self) -> None:
        self.calls.append("abort")

    async def release_kv_cache(self) -> None:
        self.calls.append("release")

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    def _load(self, global_steps: int) -> Any:
        self.calls.append(global_steps)
        loaded = asyncio.get_running_loop().create_future()
        loaded.set_result(None)
        return loaded

    async def _take(self, method: str, part: Any) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append((method, part))


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Processes that are killed, and places that are given back."""
    gone: list[Any] = []

    def get(value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(liveness, "_death", None)
    monkeypatch.setattr(liveness, "_is_over", False)
    monkeypatch.setattr(samplers, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "kill", gone.append)
    monkeypatch.setattr(ray.util, "remove_placement_group", gone.append)
    yield gone
    waits.report_loss("")


def made(*replicas: Replica, new: Any = Replica, request: Path = Path("no request")) -> tuple[Samplers, Any]:
    """The samplers, and the servers of VeRL's balancer."""
    balanced = {replica.server_address: replica.server_handle for replica in replicas}

    def remove(names: list[str]) -> None:
        for name in names:
            del balanced[name]

    trainer = SimpleNamespace(
        world_size=2,
        update_weights=lambda global_steps, mode: [f"{mode} {global_steps}"],
        execute_checkpoint_engine=lambda methods: (
            [["part 1", "part 2"], []] if methods == ["sent"] * 2 else None
        ),
    )
    servers = SimpleNamespace(
        get_replicas=lambda: list(replicas),
        start_rank=0,
        rollout_replica_class=new,
        rollout_config=SimpleNamespace(n_gpus_per_node=len(replicas)),
        model_config={},
        global_load_balancer=SimpleNamespace(
            remove_servers=SimpleNamespace(remote=remove), add_servers=SimpleNamespace(remote=balanced.update)
        ),
    )
    config = SimpleNamespace(backend="naive", custom_backend_module=None)
    return Samplers(config, trainer, servers, 60.0, request), balanced


DELIVERY = ["abort", "release", 7, ("take", "part 1"), ("take", "part 2"), "resume"]


def test_new_weights_go_to_the_living_and_a_sampler_that_has_died_is_ended(ended: list[Any]) -> None:
    alive, dead = Replica(0), Replica(1, DEAD)
    made_samplers, _ = made(alive, dead)
    assert made_samplers.update_weights(7) == {LOST_SAMPLERS: 0}
    assert alive.calls == DELIVERY
    assert "resume" not in dead.calls
    assert ended == [*dead.servers, *dead.workers], "its server might go on with old weights"


def test_an_error_that_is_no_death_ends_the_run(ended: list[Any]) -> None:
    made_samplers, _ = made(Replica(0, ValueError("new weights could not be loaded")))
    with pytest.raises(ValueError, match="could not be loaded"):
        made_samplers.update_weights(7)


def test_a_replacement_has_a_name_of_its_own_and_the_weights_that_were_sent_last(ended: list[Any]) -> None:
    first, second = Replica(0), Replica(1)
    made_samplers, balanced = made(first, second)
    made_samplers.update_weights(7)
    made_samplers._remove(second, DEAD)
    assert (made_samplers.replicas, [*balanced]) == ([first], ["server_0"])
    assert ended == [*second.servers, *second.workers, "place 1"]
    made_samplers._start()
    new = made_samplers.replicas[-1]
    assert (new.replica_rank, new.calls) == (2, DELIVERY)
    assert balanced == {"server_0": "handle 0", "server_2": "handle 2"}
    assert first.calls == DELIVERY, "the others are not interrupted"
    assert [made_samplers.update_weights(step)[LOST_SAMPLERS] for step in (8, 9)] == [1, 0]


def test_as_many_are_left_as_were_asked_for_and_turns_end_before_their_sampler(
    ended: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "_LOOK_SECONDS", 0.0)
    first, second, dead = Replica(0), Replica(1), Replica(2, DEAD)
    (request := tmp_path / "request").write_text("3")
    made_samplers, balanced = made(first, second, dead, request=request)
    assert not request.exists(), "a run begins with the recipe's number"
    request.write_text("1")
    made_samplers._read_request()
    made_samplers._end_surplus()
    assert (made_samplers.replicas, [*balanced]) == ([first], ["server_0"])
    assert (first.calls, second.calls) == ([], ["abort"])
    assert ended == [*second.servers, *second.workers, "place 1", *dead.servers, *dead.workers, "place 2"]
    made_samplers._remove(second, DEAD)
    assert made_samplers.update_weights(7) == {LOST_SAMPLERS: 0}, "nobody killed it"
    request.write_text("2")
    made_samplers._read_request()
    made_samplers._start_missing()
    made_samplers._starters[0].join()
    assert [*balanced] == ["server_0", "server_3"]


def test_what_does_not_start_gives_its_place_back(ended: list[Any]) -> None:
    made_samplers, balanced = made(Replica(0), new=lambda **given: Replica(error=DEAD, **given))
    made_samplers._start()
    assert [*balanced] == ["server_0"]
    assert ended[-1] == "place 1"
    assert made_samplers._last_error.startswith("the sampler 1 could not be started: ")


def test_a_run_whose_samplers_are_gone_waits_and_then_ends_with_the_reason(ended: list[Any]) -> None:
    lost = Replica(0)
    made_samplers, _ = made(lost)
    made_samplers._limit_wait()
    made_samplers._remove(lost, DEAD)
    made_samplers._limit_wait()
    liveness.check()
    made_samplers._last_served -= 61.0
    made_samplers._limit_wait()
    reason = (
        "the sampler 0 died: .* before finishing this task. The run has waited 60 seconds .*recovery_timeout"
    )
    with pytest.raises(RuntimeError, match=reason):
        liveness.check()


def test_what_ends_with_the_run_is_not_replaced(ended: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_is_over", True)
    replica = Replica(0)
    made_samplers, balanced = made(replica)
    made_samplers._remove(replica, DEAD)
    made_samplers._watch()
    assert made_samplers.replicas == [replica] and balanced and not ended
