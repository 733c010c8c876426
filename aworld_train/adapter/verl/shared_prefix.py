"""VeRL's FSDP engine, which can compute once what the rows of a pass begin with (``trainer.shared_prefix``).

It divides rows into passes itself and computes each pass as a trie of tokens. Log-probabilities and entropies are those
of unique tokens, and the loss is that of the rows they are part of. On GPUs VeRL takes this engine where a recipe's
``external_lib`` imports the module.
"""

from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.utils import postprocess_batch_func

from aworld_train.adapter.verl import (
    logprobs,  # takes the place of VeRL's own
    trie_attention,  # noqa: F401  makes it known to transformers
)
from aworld_train.adapter.verl.attention import TRIE
from aworld_train.adapter.verl.token_trie import Pass, Row, TokenTrie, at_least, passes, token_trie


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp", "fsdp2"], device="cuda", vendor="nvidia"
)
class SharedPrefixEngine(transformer_impl.FSDPEngineWithLMHead):  # type: ignore[misc]
    @property
    def shares_prefixes(self) -> bool:
        return bool(self.model_config.hf_config._attn_implementation == TRIE)

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        if not self.shares_prefixes:
            return super().forward_backward_batch(data, loss_function, forward_only)
        trained_tokens = data["loss_mask"].sum().to(transformer_impl.get_device_id())
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
                    scaler = getattr(self, "scaler", None)
                    (loss if scaler is None else scaler.scale(loss)).backward()
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
        most = torch.tensor(len(divided), device=transformer_impl.get_device_id())
        torch.distributed.all_reduce(
            most, op=torch.distributed.ReduceOp.MAX, group=self.get_data_parallel_group()
        )
        return at_least(divided, int(most), rows)

    def prepare_model_inputs(self, micro_batch: Any) -> Any:
        if not self.shares_prefixes:
            return super().prepare_model_inputs(micro_batch)
        trie = token_trie(_rows(micro_batch)).to(micro_batch["input_ids"].device)
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
        logits = output.logits[0].div_(temperature)
        following = logits[trie.paths, ids.values().roll(-1)].float() - logprobs.logsumexp(logits)[trie.paths]
        values = {"log_probs": following}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", False):
            values["entropy"] = self.compute_entropy_from_logits(logits)[trie.paths]
        return {
            name: torch.nested.nested_tensor_from_jagged(of_rows, ids.offsets())
            for name, of_rows in values.items()
        }


def _rows(data: Any) -> list[Row]:
    return [row.cpu().numpy() for row in data["input_ids"].unbind()]


def _tokens(batch: Any, part: Pass) -> dict[str, Metric]:
    """How many tokens a pass has forwarded, and how many more it would have, row by row."""
    counts = {"forwarded_tokens": part.unique, "saved_tokens": len(batch["input_ids"].values()) - part.unique}
    return {name: Metric(AggregationType.SUM, count) for name, count in counts.items()}
