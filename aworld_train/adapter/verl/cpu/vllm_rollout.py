"""The trainer's side of vLLM on CPU: VeRL's, except that a transfer that fails ends the run.

VeRL's sender waits for the receiver without a limit. If the receiver fails, the trainer would hang without an error.
"""

from collections.abc import Iterable
from typing import Any

import ray
import torch
import zmq

from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
from aworld_train.adapter.verl.log import error_line

name_vllm_cpu()

from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender  # noqa: E402
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter  # noqa: E402

_POLL_MILLISECONDS = 500


class WatchedSocket:
    """A socket that ends with the receiver's error once the receiver has failed, before it connected or later."""

    def __init__(self, socket: Any, receiver: Any):
        self._socket = socket
        self._receiver = receiver

    def close(self) -> None:
        self._socket.close()

    def send_pyobj(self, message: Any) -> None:
        self._wait(zmq.POLLOUT)
        self._socket.send_pyobj(message)

    def recv(self) -> Any:
        self._wait(zmq.POLLIN)
        return self._socket.recv()

    def _wait(self, event: int) -> None:
        while not self._socket.poll(_POLL_MILLISECONDS, event):
            if ray.wait([self._receiver], timeout=0)[0]:
                try:
                    ray.get(self._receiver)
                except Exception as error:
                    raise _not_taken(error) from error
                if not self._socket.poll(_POLL_MILLISECONDS, event):
                    raise RuntimeError("vLLM stopped taking the new weights before their end")


def _not_taken(error: Exception) -> RuntimeError:
    """In one line, with the type, by which a lost process is told from a fault."""
    return RuntimeError(f"vLLM did not take the new weights: {error_line(error)}")


class WatchedSender(BucketedWeightSender):  # type: ignore[misc]
    """VeRL's sender, with an eye on the receiver, a call of the server under way."""

    def __init__(self, receiver: Any, **options: Any):
        super().__init__(**options)
        self._receiver = receiver

    def _init_socket(self) -> None:
        super()._init_socket()
        self.socket: Any = WatchedSocket(self.socket, self._receiver)


class CpuVllmRollout(ServerAdapter):  # type: ignore[misc]
    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **options: Any,
    ) -> None:
        if wire_format != "named_tensors":
            raise ValueError(f"vLLM on CPU takes whole named tensors, not {wire_format!r}")
        receiver = await self._execute_method(
            "update_weights_from_ipc", non_block=True, kwargs={**options, "use_shm": True}
        )
        size = self.config.checkpoint_engine.update_weights_bucket_megabytes
        kind = BucketedWeightSender if receiver is None else WatchedSender
        watched = {} if receiver is None else {"receiver": receiver}
        sender = kind(zmq_handle=self.zmq_handle, bucket_size_mb=size, use_shm=True, **watched)
        with torch.no_grad():
            await sender.async_send_weights(weights)
        if receiver is not None:
            try:
                await receiver
            except Exception as error:
                raise _not_taken(error) from error
            await self.server_handle.clear_kv_cache.remote()
            if global_steps is not None:
                await self.server_handle.set_global_steps.remote(global_steps)
