"""The training engine on CPU: VeRL's FSDP2 engine in float32 over gloo, without offloading.

With ``trainer.shared_prefix`` it divides rows into passes itself and computes each pass as a trie of tokens.
Log-probabilities and entropies are those of unique tokens, and the loss is that of the rows they are part of.
"""

from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.utils import fsdp_utils
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func

from aworld_train.adapter.verl import logprobs  # noqa: F401  takes the place of VeRL's own
from aworld_train.adapter.verl.attention import TRIE
from aworld_train.adapter.verl.cpu import (
    threads_per_process,
    trie_attention,  # noqa: F401  makes it known to transformers
)
from aworld_train.adapter.verl.cpu.token_trie import Pass, Row, TokenTrie, at_least, passes, token_trie


def copied_weights(module: torch.nn.Module) -> Any:
    """VeRL's copy of a model's shards, which on the CPU would be the weights themselves, and change with them."""
    shards, layout = _shards_of(module)
    return {name: (shard.clone(), spec) for name, (shard, spec) in shards.items()}, layout


_shards_of = fsdp_utils.fsdp2_sharded_save_to_cpu
fsdp_utils.fsdp2_sharded_save_to_cpu = copied_weights


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuFSDPEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
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

    @property
    def shares_prefixes(self) -> bool:
        return bool(self.model_config.hf_config._attn_implementation == TRIE)

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        if not self.shares_prefixes:
            return super().forward_backward_batch(data, loss_function, forward_only)
        trained_tokens = data["loss_mask"].sum()
        torch.distributed.all_reduce(trained_tokens, group=self.get_data_parallel_group())
        tu.assign_non_tensor(
            data, batch_num_tokens=trained_tokens.item(), dp_size=self.get_data_parallel_size()
        )
        divided = self._passes(data)
        outputs = []
        for part in divided:
            with (
                torch.set_grad_enabled(not forward_only),
                self._gradient_sync_context(is_last_micro_batch=part is divided[-1]),
            ):
                batch = tu.index_select_tensor_dict(data, part.rows)
                loss, output = self.forward_step(batch, loss_function, forward_only)
                if not forward_only:
                    loss.backward()
                    del output["model_output"]
                    output["metrics"] |= _tokens(batch, part)
            outputs.append(output)
        # So that VeRL puts outputs back into the order of the rows.
        tu.assign_non_tensor(data, use_dynamic_bsz=True)
        return postprocess_batch_func(outputs, [part.rows for part in divided], data)

    def _passes(self, data: Any) -> list[Pass]:
        rows = _rows(data)
        by_tokens = tu.get_non_tensor_data(data, "use_dynamic_bsz", True)
        key, limit = (
            ("max_token_len_per_gpu", "max_tokens") if by_tokens else ("micro_batch_size_per_gpu", "max_rows")
        )
        divided = passes(rows, **{limit: data[key]})
        most = torch.tensor(len(divided))
        torch.distributed.all_reduce(
            most, op=torch.distributed.ReduceOp.MAX, group=self.get_data_parallel_group()
        )
        return at_least(divided, int(most), rows)

    def prepare_model_inputs(self, micro_batch: Any) -> Any:
        if not self.shares_prefixes:
            return super().prepare_model_inputs(micro_batch)
        trie = token_trie(_rows(micro_batch))
        inputs = {"input_ids": trie.tokens[None], "position_ids": trie.positions[None], "trie": trie}
        return inputs, {"trie": trie}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> Any:
        if not self.shares_prefixes:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        trie: TokenTrie = output_args["trie"]
        temperature, ids = micro_batch["temperature"], micro_batch["input_ids"]
        assert not isinstance(temperature, torch.Tensor), "a token of several rows has one temperature"
        logits = output.logits[0] / temperature
        following = logits[trie.paths, ids.values().roll(-1)] - logits.logsumexp(-1)[trie.paths]
        values = {"log_probs": following}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", False):
            values["entropy"] = self.compute_entropy_from_logits(logits)[trie.paths]
        return {
            name: torch.nested.nested_tensor_from_jagged(of_rows, ids.offsets())
            for name, of_rows in values.items()
        }


def _rows(data: Any) -> list[Row]:
    return [row.numpy() for row in data["input_ids"].unbind()]


def _tokens(batch: Any, part: Pass) -> dict[str, Metric]:
    """How many tokens a pass has forwarded, and how many more it would have, row by row."""
    counts = {"forwarded_tokens": part.unique, "saved_tokens": len(batch["input_ids"].values()) - part.unique}
    return {name: Metric(AggregationType.SUM, count) for name, count in counts.items()}
