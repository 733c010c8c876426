"""Plugins of vLLM with which its worker refuses the second set of weights, as a full disk or a lost shard would."""

from typing import Any


def install() -> None:
    """The worker fails before it has connected. Called by vLLM in each of its processes."""
    from aworld_train.adapter.verl.cpu.vllm_worker import CpuWorkerExtension

    update = CpuWorkerExtension.update_weights_from_ipc
    calls = []

    def failing(self: Any, *arguments: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the planted failure of a transfer")
        update(self, *arguments, **options)

    CpuWorkerExtension.update_weights_from_ipc = failing


def install_load() -> None:
    """The worker fails with the tensors of the trainer's buffer in its hands."""
    from aworld_train.adapter.verl.cpu import vllm_worker

    receive = vllm_worker.receive
    calls = []

    def failing(zmq_handle: str, load: Any, *, use_shm: bool) -> None:
        calls.append(1)
        receive(zmq_handle, load if len(calls) == 1 else _refuse, use_shm=use_shm)

    vllm_worker.receive = failing


def _refuse(weights: Any) -> None:
    raise RuntimeError("the planted failure of a transfer")
