"""A plugin of vLLM with which its worker refuses the second set of weights, as a full disk or a lost shard would."""

from typing import Any


def install() -> None:
    """Called by vLLM in each of its processes."""
    from aworld_train.adapter.verl.cpu.vllm_worker import CpuWorkerExtension

    update = CpuWorkerExtension.update_weights_from_ipc
    calls = []

    def failing(self: Any, *arguments: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the planted failure of a transfer")
        update(self, *arguments, **options)

    CpuWorkerExtension.update_weights_from_ipc = failing
