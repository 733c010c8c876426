"""A transfer of weights to vLLM ends with its receiver's error. VeRL's classes need vLLM; others stand in for them."""

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import ray
import zmq

PACKAGE = "verl.workers.rollout.vllm_rollout"
READY, WAITING = True, False
SENT = ("poll", 500, zmq.POLLOUT)


class Sender:
    """In place of VeRL's: keeps what it was made with and what it sent."""

    sent: list[Any]

    def __init__(self, **options: Any):
        self.options = options

    def _init_socket(self) -> None:
        self.socket: Any = "socket"

    async def async_send_weights(self, weights: Any) -> None:
        self.sent.append((type(self).__name__, self.options, list(weights)))


@pytest.fixture
def vllm_rollout(monkeypatch: pytest.MonkeyPatch) -> Any:
    modules = {
        PACKAGE: {},
        f"{PACKAGE}.bucketed_weight_transfer": {"BucketedWeightSender": Sender},
        f"{PACKAGE}.vllm_rollout": {"ServerAdapter": object},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    name = "aworld_train.adapter.verl.cpu.vllm_rollout"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        importlib.metadata, "version", importlib.metadata.version
    )  # which the import replaces
    monkeypatch.setattr(Sender, "sent", [], raising=False)
    yield importlib.import_module(name)
    sys.modules.pop(name)


@pytest.fixture
def socket(vllm_rollout: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a watched socket that is ready or not, one look after another, and keeps the calls of the real one."""

    def socket(looks: Sequence[bool], ends: Sequence[Exception | str | None] = ()) -> tuple[Any, list[Any]]:
        answers, states, calls = list(looks), list(ends), list[Any]()

        def poll(milliseconds: int, event: int) -> bool:
            calls.append(("poll", milliseconds, event))
            return answers.pop(0)

        def wait(pending: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
            return (pending, []) if states[0] else ([], [states.pop(0)])

        def get(receiver: str) -> None:
            end = states.pop(0)
            if isinstance(end, Exception):
                raise end

        monkeypatch.setattr(ray, "wait", wait)
        monkeypatch.setattr(ray, "get", get)
        real = SimpleNamespace(
            poll=poll,
            send_pyobj=calls.append,
            recv=lambda: "answer",
            close=lambda: calls.append("closed"),
        )
        return vllm_rollout.WatchedSocket(real, "receiver"), calls

    return socket


@pytest.mark.parametrize(
    ("looks", "ends", "tries"),
    [
        ([READY], [], 1),
        ([WAITING, WAITING, READY], [None, None], 3),
        ([WAITING, READY, READY], ["ended"], 3),
    ],
    ids=["ready", "a receiver at work", "a receiver that has just ended"],
)
def test_a_socket_is_waited_for_while_its_receiver_works(
    looks: list[bool], ends: list[Any], tries: int, socket: Any
) -> None:
    watched, calls = socket(looks * 2, ends * 2)
    watched.send_pyobj("message")
    assert watched.recv() == "answer"
    watched.close()
    assert calls == [*[SENT] * tries, "message", *[("poll", 500, zmq.POLLIN)] * tries, "closed"]


@pytest.mark.parametrize(
    ("looks", "end", "message"),
    [
        ([WAITING], ValueError("too long"), "vLLM did not take the new weights: ValueError: too long"),
        ([WAITING, WAITING], "ended", "vLLM stopped taking the new weights before their end"),
    ],
)
def test_a_receiver_that_ends_early_is_an_error_of_the_sender(
    looks: list[bool], end: Any, message: str, socket: Any
) -> None:
    for name, arguments in (("send_pyobj", ["message"]), ("recv", [])):
        watched, calls = socket(looks, [end])
        with pytest.raises(RuntimeError) as error:
            getattr(watched, name)(*arguments)
        assert str(error.value) == message
        assert len(calls) == len(looks)


def test_a_sender_watches_its_receiver(vllm_rollout: Any) -> None:
    sender = vllm_rollout.WatchedSender("receiver", size=1)
    sender._init_socket()
    assert (sender.options, type(sender.socket)) == ({"size": 1}, vllm_rollout.WatchedSocket)
    assert (sender.socket._socket, sender.socket._receiver) == ("socket", "receiver")


async def done(end: Exception | None = None) -> None:
    if end is not None:
        raise end


def adapter(vllm_rollout: Any, receiver: Any) -> tuple[Any, list[Any]]:
    """A rank's side of vLLM, and what it asks of the server."""
    calls: list[Any] = []

    async def execute(*arguments: Any, **options: Any) -> Any:
        calls.append((*arguments, options))
        return receiver

    async def ask(*arguments: Any) -> None:
        calls.append(arguments)

    remote = SimpleNamespace(remote=ask)
    made = vllm_rollout.CpuVllmRollout()
    made._execute_method, made.zmq_handle = execute, "ipc:///socket"
    made.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=3))
    made.server_handle = SimpleNamespace(clear_kv_cache=remote, set_global_steps=remote)
    return made, calls


ASKED = ("update_weights_from_ipc", {"non_block": True, "kwargs": {"peft_config": None, "use_shm": True}})
MADE = {"zmq_handle": "ipc:///socket", "bucket_size_mb": 3, "use_shm": True}


@pytest.mark.parametrize(
    ("is_first", "step", "then"),
    [(True, 7, [(), (7,)]), (True, 0, [(), (0,)]), (True, None, [()]), (False, 7, [])],
)
async def test_the_first_rank_watches_the_server_and_tells_it_what_its_weights_are(
    is_first: bool, step: int | None, then: list[Any], vllm_rollout: Any
) -> None:
    made, calls = adapter(vllm_rollout, done() if is_first else None)
    await made.update_weights([("a", 1)], global_steps=step, peft_config=None)
    assert calls == [ASKED, *then]
    name = "WatchedSender" if is_first else "Sender"
    assert Sender.sent == [(name, MADE, [("a", 1)])]


async def test_a_server_that_fails_and_another_format_are_errors(vllm_rollout: Any) -> None:
    made, calls = adapter(vllm_rollout, done(ValueError("too long")))
    with pytest.raises(RuntimeError, match="vLLM did not take the new weights: ValueError: too long"):
        await made.update_weights([], peft_config=None)
    assert calls == [ASKED]
    with pytest.raises(ValueError, match="takes whole named tensors, not 'delta'"):
        await made.update_weights([], wire_format="delta")
    assert calls == [ASKED]
