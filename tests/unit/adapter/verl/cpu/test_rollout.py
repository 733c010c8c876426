"""The two classes of the ``transformers`` rollout: servers are started beside their ranks, and get whole weights."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch

from aworld_train.adapter.verl.cpu import rollout
from aworld_train.adapter.verl.cpu.rollout import TransformersReplica, TransformersRollout
from aworld_train.adapter.verl.cpu.server import TransformersServer


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """A trainer rank, and the calls of actors that it makes."""
    calls: list[Any] = []

    async def update(names: list[str], arrays: list[Any], last: bool, step: int | None) -> None:
        calls.append((names, [array.tolist() for array in arrays], last, step))

    def get_actor(name: str) -> Any:
        calls.append(name)
        return SimpleNamespace(update_weights=SimpleNamespace(remote=update))

    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(rollout.BaseRollout, "__init__", lambda self, *arguments: calls.append(arguments))
    return TransformersRollout("config", "model", "mesh", unused=1), calls


async def test_weights_are_sent_in_parts_and_the_last_one_with_their_step(
    sender: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "_PART_BYTES", 16)
    made, calls = sender
    rows = {"a": [1.0, 2.0, 3.0], "b": [4.0], "c": [5.0] * 4, "d": [6.0, 7.0]}
    weights = {name: torch.tensor(row, dtype=torch.bfloat16) for name, row in rows.items()}
    for step in (7, None):
        await made.update_weights(weights.items(), global_steps=step)
    sent = [(["a", "b"], [[1.0, 2.0, 3.0], [4.0]], False, None), (["c"], [[5.0] * 4], False, None)]
    first, second = ([*sent, (["d"], [[6.0, 7.0]], True, step)] for step in (7, None))
    assert calls == [("config", "model", "mesh"), "transformers_server_0", *first, *second]


async def test_a_rank_sends_to_the_server_of_its_number(
    sender: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    made, calls = sender
    await made.update_weights([])
    assert calls[1:] == ["transformers_server_3", ([], [], True, None)]


async def test_the_sender_of_a_replica_beside_the_trainer_sends_to_it(
    sender: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    await TransformersRollout("config", "model", None, replica_rank=2).update_weights([])
    assert sender[1][2:] == ["transformers_server_2", ([], [], True, None)]


async def test_weights_in_another_format_are_refused(sender: tuple[Any, list[Any]]) -> None:
    with pytest.raises(ValueError, match="takes whole named tensors, not 'delta'"):
        await sender[0].update_weights([], wire_format="delta")
    assert len(sender[1]) == 1


@pytest.mark.parametrize(("is_teacher", "name"), [(False, "server"), (True, "teacher")])
async def test_a_server_is_started_on_the_node_of_its_rank_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, is_teacher: bool, name: str
) -> None:
    calls: list[Any] = []

    async def ready() -> None:
        calls.append("ready")

    async def node(look: Any) -> str:
        return "ab" * 28

    def start(*arguments: Any) -> Any:
        calls.append(arguments)
        return server

    def options(**given: Any) -> Any:
        calls.append(given)
        return SimpleNamespace(remote=start)

    server = SimpleNamespace(ready=SimpleNamespace(remote=ready))
    remote = {TransformersServer: SimpleNamespace(options=options)}
    monkeypatch.setattr(ray, "remote", remote.__getitem__)
    monkeypatch.setattr(TransformersReplica, "max_concurrency", 9)
    made: Any = object.__new__(TransformersReplica)
    made.world_size, made.replica_rank, made.gpus_per_node = 1, 2, 4
    made.config, made.model_config, made.is_teacher_model = "config", "model", is_teacher
    made.workers = [SimpleNamespace(__ray_call__=SimpleNamespace(remote=node))]
    await made.launch_servers()
    given = calls[0]
    strategy = given.pop("scheduling_strategy")
    assert (strategy.node_id, strategy.soft) == ("ab" * 28, False)
    assert given == {"name": f"transformers_{name}_2", "num_cpus": 0, "max_concurrency": 9}
    assert calls[1:] == [("config", "model", 2, 4), "ready"]
    assert (made.servers, made._server_handle, made._server_address) == (
        [server],
        server,
        f"transformers_{name}_2",
    )


async def test_a_replica_of_several_processes_is_refused() -> None:
    made: Any = object.__new__(TransformersReplica)
    made.world_size = 2
    with pytest.raises(ValueError, match="keeps each replica in one process"):
        await made.launch_servers()
