#!/usr/bin/env python3
"""Does on this machine what a recipe's update does, with VeRL's own actor and rows of one length, and measures it.

The actor is built from what the recipe composes to, as one rank; the weights are random. It computes the rows'
log-probabilities, then a forward and a backward pass and the optimizer's step, with what is moved to the machine's
memory in between. JSON on the standard output: seconds and peak memory of each phase, and the rows' log-probabilities
added up.

    scripts/actor_update.py RECIPE MODEL-FOLDER ROWS TOKENS [KEY=VALUE ...]
"""

import json
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import torch  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from aworld_train import recipe as recipes  # noqa: E402
from aworld_train.adapter.verl.compose import compose  # noqa: E402
from aworld_train.adapter.verl.cpu import PLATFORM_MODULE  # noqa: E402
from aworld_train.recipe.device import on_cpu  # noqa: E402

PROMPT_SHARE = 2 / 3
"""Of a row's tokens."""


class Phases:
    """Seconds and peak memory of what was done one after the other."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, float]] = {}
        self._began = 0.0

    def begin(self) -> None:
        """From here on it is the next phase."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self._began = time.monotonic()

    def end(self, name: str) -> None:
        """What was done since is called so; memory is in bytes, and 0 without a GPU."""
        taken: dict[str, float] = dict.fromkeys(("allocated", "reserved", "left", "device"), 0)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            taken = {
                "allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
                "left": torch.cuda.memory_allocated(),
                "device": total - free,
            }
        self.taken[name] = {"seconds": round(time.monotonic() - self._began, 3), **taken}
        self.begin()


def build(recipe: recipes.Recipe, folder: Path) -> Any:
    """VeRL's worker for the actor, alone in its group, with its files in a folder."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "DIST_INIT_METHOD": f"file://{folder}/rendezvous",
    }
    if on_cpu(recipe):
        os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": PLATFORM_MODULE}
    composed: Any = OmegaConf.create(compose(recipe, folder))
    from verl.utils.import_utils import import_external_libs
    from verl.workers.engine_workers import ActorRolloutRefWorker

    import_external_libs(list(composed.actor_rollout_ref.model.get("external_lib") or ()))
    worker = ActorRolloutRefWorker(composed.actor_rollout_ref, role="actor")
    worker.init_model()
    return worker


def rows_of(count: int, tokens: int, vocabulary: int, part: slice = slice(None), *, shared: int = 0) -> Any:
    """Rows of random tokens as the trainer sends them, or some of them: the same for the same sizes.

    Every second row begins with the same ``shared`` tokens.
    """
    from verl.utils import tensordict_utils as tu

    generator = torch.Generator().manual_seed(0)
    prompt = max(1, int(PROMPT_SHARE * tokens))
    ids = torch.randint(3, vocabulary, (count, tokens), generator=generator)
    ids[::2, :shared] = ids[0, :shared].clone()

    def nested(rows: torch.Tensor) -> torch.Tensor:
        return torch.nested.as_nested_tensor(list(rows[part]), layout=torch.jagged)

    answer = ids[:, prompt:]
    return tu.get_tensordict(
        {
            "input_ids": nested(ids),
            "position_ids": nested(torch.arange(tokens).expand(count, -1)),
            "prompts": nested(ids[:, :prompt]),
            "responses": nested(answer),
            "response_mask": nested(torch.ones_like(answer)),
            "loss_mask": nested((torch.arange(tokens) >= prompt).long().expand(count, -1)),
            "attention_mask": nested(torch.ones_like(ids)),
            "advantages": nested(
                torch.linspace(-1, 1, count).unsqueeze(-1).expand(-1, answer.shape[1]).clone()
            ),
        },
        {"temperature": 1.0},
    )


def update(recipe: recipes.Recipe, count: int, tokens: int, folder: Path) -> dict[str, Any]:
    """All phases of one step of the actor, twice: the optimizer's moments are there from the second on."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    phases = Phases()
    phases.begin()
    worker = build(recipe, folder)
    phases.end("load")
    engine = worker.actor.engine
    vocabulary = worker.actor.model_config.hf_config.vocab_size
    step_of_optimizer = engine.optimizer_step

    def measured_step() -> Any:
        phases.end(f"forward and backward {turn}")
        norm = step_of_optimizer()
        phases.end(f"optimizer step {turn}")
        return norm

    engine.optimizer_step = measured_step
    total = 0.0
    for turn in (1, 2):
        rows = rows_of(count, tokens, vocabulary)
        tu.assign_non_tensor(rows, calculate_entropy=True, compute_loss=False)
        phases.begin()
        known = worker.compute_log_prob(rows)
        phases.end(f"log-probability {turn}")
        rows = rows_of(count, tokens, vocabulary)
        of_answers = no_padding_2_padding(known["log_probs"], rows)
        rows["old_log_probs"] = torch.nested.as_nested_tensor(list(of_answers), layout=torch.jagged)
        total = float(of_answers.float().sum())
        tu.assign_non_tensor(
            rows,
            calculate_entropy=bool(recipe.algorithm.entropy_coef),
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=count,
            mini_batch_size=count,
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
        )
        phases.begin()
        done = worker.update_actor(rows)
        phases.end(f"end of update {turn}")
    return {
        "rows": count,
        "tokens": tokens,
        "parameters": sum(each.numel() for each in engine.module.parameters()),
        "log_probability": total,
        "metrics": {key: str(value) for key, value in tu.get(done, "metrics").items()},
        "phases": phases.taken,
    }


def main() -> None:
    """Print what the phases took."""
    source, model, count, tokens, *overrides = sys.argv[1:]
    recipe = recipes.load(source, [f"model.path={model}", *overrides])
    # VeRL prints too.
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        taken = update(recipe, int(count), int(tokens), Path(folder))
    sys.stdout.write(json.dumps(taken, indent=2) + "\n")


if __name__ == "__main__":
    main()
