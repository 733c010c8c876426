"""One rank of VeRL's actor on gloo, with what a recipe for GPUs composes to, except for what only a GPU can do.

python -m tests.gloo_actor CASES.json RANK RANKS FOLDER    # writes FOLDER/CASE-RANK.json for each case

What is left out is bf16 and moving to the machine's memory; torch's own flash attention is computed by sdpa, sequence
by sequence.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from actor_update import rows_of
from omegaconf import OmegaConf

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.cpu import REGISTRATION_MODULE, platform  # noqa: F401  known to VeRL when imported
from tests.varlen_kernel import kernel

FP32 = {
    "use_torch_compile": False,
    "model_dtype": "fp32",
    "dtype": "float32",
    "param_offload": False,
    "optimizer_offload": False,
    "mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
}


def composed(overrides: list[str], folder: Path) -> Any:
    """VeRL's configuration of the actor, with what takes a GPU replaced."""
    config: Any = OmegaConf.create(compose(recipes.load("base/gpu-1", overrides), folder))
    worker = config.actor_rollout_ref
    worker.model.external_lib = [REGISTRATION_MODULE, *(worker.model.external_lib or [])]
    worker.actor.use_torch_compile = False
    worker.actor.fsdp_config = OmegaConf.merge(worker.actor.fsdp_config, FP32)
    return worker


def play(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Log-probabilities of this rank's rows, an update, and the log-probabilities after it."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.padding import no_padding_2_padding

    if "torch_varlen" in str(case["overrides"]):
        from aworld_train.adapter.verl import varlen_attention

        varlen_attention.varlen_attn = kernel  # type: ignore[assignment]
    worker = ActorRolloutRefWorker(composed(case["overrides"], folder), role="actor")
    worker.init_model()
    engine = worker.actor.engine
    part = slice(engine.get_data_parallel_rank(), None, engine.get_data_parallel_size())

    def rows(**more: Any) -> Any:
        vocabulary = worker.actor.model_config.hf_config.vocab_size
        mine = rows_of(case["rows"], case["tokens"], vocabulary, part, shared=case.get("shared", 0))
        tu.assign_non_tensor(mine, temperature=1.0, **more)
        return mine

    def known() -> Any:
        batch = rows(calculate_entropy=True, compute_loss=False)
        output = worker.compute_log_prob(batch)
        found = [None if output is None else no_padding_2_padding(output["log_probs"], batch).float()]
        if engine.ulysses_sequence_parallel_size > 1:
            # Of ranks that share rows one has them, and VeRL's controller sends them to all.
            torch.distributed.broadcast_object_list(found, src=0)
        return found[0]

    before = known()
    trained = rows(
        calculate_entropy=False,
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=case["rows"],
        mini_batch_size=case["rows"],
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
    )
    trained["old_log_probs"] = torch.nested.as_nested_tensor(list(before), layout=torch.jagged)
    done = worker.update_actor(trained)
    norm = tu.get(done, "metrics")["grad_norm"][0] if done is not None else None
    if "save" in case:
        worker.save_checkpoint(case["save"])
    return {
        "part": [part.start, part.step],
        "before": before.tolist(),
        "grad_norm": norm,
        "after": known().tolist(),
        "attention": engine.module.config._attn_implementation,
    }


def main() -> None:
    """Play all cases."""
    cases, rank, ranks, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "DIST_INIT_METHOD": f"file://{folder}/rendezvous",
    }
    torch.manual_seed(0)
    for case in json.loads(Path(cases).read_text()):
        (folder / f"{case['name']}-{rank}.json").write_text(json.dumps(play(case, folder)))


if __name__ == "__main__":
    main()
