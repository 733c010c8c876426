"""The training engine on CPU: VeRL's FSDP2 engine in float32 over gloo, without offloading."""

from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.utils import fsdp_utils
from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
from verl.workers.engine.base import EngineRegistry

from aworld_train.adapter.verl.cpu import threads_per_process
from aworld_train.adapter.verl.shared_prefix import SharedPrefixEngine


def copied_weights(module: torch.nn.Module) -> Any:
    """VeRL's copy of a model's shards, which on the CPU would be the weights themselves, and change with them."""
    shards, layout = _shards_of(module)
    return {name: (shard.clone(), spec) for name, (shard, spec) in shards.items()}, layout


_shards_of = fsdp_utils.fsdp2_sharded_save_to_cpu
fsdp_utils.fsdp2_sharded_save_to_cpu = copied_weights


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuFSDPEngine(SharedPrefixEngine):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        torch.set_num_threads(threads_per_process(torch.distributed.get_world_size()))

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Shard the module. Unlike in VeRL, the reference model is not offloaded: it is in CPU memory already."""
        self._autocast_dtype = torch.float32
        self.scaler = None
        kwargs = {
            "mesh": self.device_mesh,
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=torch.float32, reduce_dtype=torch.float32, cast_forward_inputs=True
            ),
            "reshard_after_forward": self.engine_config.reshard_after_forward,
        }
        full_state = module.state_dict()
        apply_fsdp2(module, kwargs, self.engine_config)
        fsdp2_load_full_state_dict(module, full_state, self.device_mesh, None)
        return module
