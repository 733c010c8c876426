"""``aworld-train runs checkpoint``: what a run's checkpoints hold, and one of them as a model's folder."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsOption
from aworld_train.cli.console import note, print_facts, print_json

if TYPE_CHECKING:
    from aworld_train.adapter.base import StoredCheckpoint
    from aworld_train.training.recorded_run import RecordedRun


class Dtype(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def checkpoint(
    run: RunArgument,
    step: Annotated[
        str,
        typer.Option(
            metavar="N|last|best", help="Of which step; `best` has the best accuracy of its validation."
        ),
    ] = "last",
    target: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Export the model into this folder.")
    ] = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Round the weights; they are exported as they were trained otherwise."),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge/--adapter",
            help="Of a run with LoRA, the model with the adapter merged into it, or the adapter alone.",
        ),
    ] = True,
    prove: Annotated[
        bool, typer.Option("--proof/--no-proof", help="Load what was written, and compare its logits.")
    ] = True,
    hub: Annotated[
        str | None,
        typer.Option(
            metavar="REPOSITORY",
            help="Push the model to the hub, into a private repository if there is none yet.",
        ),
    ] = None,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Say where a run's checkpoint is and what it holds, or export its model.

    The folder loads in transformers 4 and 5 and in vLLM. It is there whole or not at all: first a process of its own
    loads it, and finds the logits of the trained weights. Its README.md is a model card. --hub takes its token from
    HF_TOKEN.

    Examples:
        aworld-train runs checkpoint quickstart
        aworld-train runs checkpoint quickstart --step best --to models/calculator --dtype bfloat16
        aworld-train runs checkpoint quickstart --hub someone/calculator
    """
    from aworld_train.evaluation.model_card import model_card
    from aworld_train.training.checkpoint_export import choose, export
    from aworld_train.training.recorded_run import open_run

    recorded = open_run(run, runs)
    chosen = choose(recorded, step)
    if target is None and hub is None:
        _show(_facts(recorded, chosen), as_json)
        return
    card = model_card(recorded, chosen, runs, adapter=not merge)
    exported = export(
        recorded, chosen, target, dtype=dtype, adapter=not merge, prove=prove, hub=hub, card=card
    )
    if as_json:
        print_json(asdict(exported))
        return
    if exported.folder:
        what = "The adapter" if exported.adapter else "The model"
        note(
            f"{what} after step {exported.step} is {exported.folder}: {exported.parameters:,} numbers in "
            f"{exported.dtype}, {exported.bytes / 1e6:.1f} MB."
        )
    if exported.proof:
        note(
            "It loads in transformers as {class} and {tokenizer}; of {tokens} tokens its logits differ by at most "
            "{max_difference:.2g} from those of the trained weights, which are up to {max_logit:.3g}.".format(
                **exported.proof
            )
        )
    if exported.hub:
        note(f"It was pushed: {exported.hub}")


def _facts(run: "RecordedRun", chosen: "StoredCheckpoint") -> dict[str, Any]:
    from aworld_train.adapter.base import find
    from aworld_train.model.weights import dtype_of, parameters_of

    framework = find(run.framework)
    model = framework.model_in(chosen.path)
    weights = model if model and any(model.glob("*.safetensors")) and not chosen.fault else None
    return {
        "run": run.name,
        "step": chosen.step,
        "path": str(chosen.path),
        "fault": chosen.fault or None,
        "model": str(model) if model else None,
        "dtype": dtype_of(weights) if weights else None,
        "parameters": parameters_of(weights) if weights else None,
        "bytes": sum(file.stat().st_size for file in chosen.path.rglob("*") if file.is_file()),
        "accuracy": dict(run.series("val_accuracy")).get(chosen.step),
        "steps": [each.step for each in framework.checkpoints(run.path / "checkpoints")],
    }


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    shown = {
        **facts,
        "parameters": facts["parameters"] and f"{facts['parameters']:,}",
        "bytes": f"{facts['bytes']:,}",
        "accuracy": None if facts["accuracy"] is None else f"{facts['accuracy']:.1%}",
        "steps": ", ".join(map(str, facts["steps"])),
    }
    print_facts({name: str(value) for name, value in shown.items() if value is not None})
