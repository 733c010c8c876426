"""``aworld-train doctor``: prints what this machine has, beside what training and a recipe need."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from aworld_train.cli.arguments import RUNS, JsonOption, OverridesArgument, complete_recipe
from aworld_train.cli.console import note, out, print_json, print_line, print_table
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.doctor import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_STATUS_WIDTH = 8  # with the gaps beside it


def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="A recipe file, or the name of a ready recipe.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    overrides: OverridesArgument = None,
    runs: Annotated[Path, typer.Option(help="Where run folders will be.")] = RUNS,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Also ask the hub, and servers outside this machine and private networks."
        ),
    ] = False,
    engine: Annotated[
        bool,
        typer.Option(
            "--engine",
            help="Also load the recipe's model, sample with its engine, and compare with the trainer's probabilities.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look at this machine: what is there, what a recipe will miss, and what to do about it.

    With a recipe only what it uses can fail. Nothing is changed, no key is shown, and it takes at most ten seconds;
    with --engine it takes the memory of the model and, for vLLM, a minute. Exits with 1 if a run would fail.

    Examples:
        aworld-train doctor
        aworld-train doctor recipes/quickstart.yaml trainer.loggers=[wandb]
        aworld-train doctor recipe.yaml rollout.engine=vllm --engine
    """
    from aworld_train import recipe as recipes
    from aworld_train.doctor import FindingStatus, Machine, Needs, examine
    from aworld_train.launch.slurm_variables import cluster_defaults
    from aworld_train.training.run_models import with_run_model

    loaded = None
    if recipe is not None:
        loaded = with_run_model(recipes.read(recipe, overrides or [], cluster_defaults()).recipe, runs)
    if engine and loaded is None:
        raise UsageError("--engine samples from a recipe's model: name the recipe.")
    findings = examine(Machine(), Needs(loaded, runs, online))
    if engine and loaded is not None:
        from aworld_train.doctor.exactness import check_exactness

        note(f"loading the model for {loaded.rollout.engine.value} and for the trainer")
        findings.append(check_exactness(loaded))
    counts = Counter(finding.status for finding in findings)
    if as_json:
        print_json(
            {
                "recipe": loaded.name if loaded is not None else None,
                "status": max(counts, key=lambda status: status.rank).value,
                "counts": {status.value: counts[status] for status in FindingStatus},
                "findings": [{**asdict(finding), "status": finding.status.value} for finding in findings],
            }
        )
    else:
        _print(findings)
        numbers = (
            f"{counts[FindingStatus.ok]} fine, {counts[FindingStatus.warn]} to look at, "
            f"{counts[FindingStatus.fail]} to mend"
        )
        print_line(f"{recipe or 'This machine'}: {numbers}")
    raise typer.Exit(1 if counts[FindingStatus.fail] else 0)


def _print(findings: "Sequence[Finding]") -> None:
    from rich.text import Text

    room = out.width - max(len(finding.area) for finding in findings) - _STATUS_WIDTH
    rows: list[tuple[str, Text | str, str]] = []
    by_area = [list(group) for _, group in groupby(findings, key=lambda finding: finding.area)]
    # What has to be mended comes last, above the prompt.
    for group in sorted(by_area, key=lambda group: max(finding.status.rank for finding in group)):
        for position, finding in enumerate(group):
            status = Text(finding.status.value, _COLOURS[finding.status.value])
            first, *others = _lines(finding, room)
            rows.append((finding.area if not position or not out.is_terminal else "", status, first))
            rows += [("", "", line) for line in others]
    print_table(("", "", ""), rows)


def _lines(finding: "Finding", width: int) -> list[str]:
    """A finding and its remedy: one line, or on a terminal lines of whole words, of which a path can be copied."""
    texts = [finding.what, *([f"-> {finding.remedy}"] if finding.remedy else [])]
    if not out.is_terminal:
        return [" ".join(" ".join(texts).split())]
    return [
        line
        for text in texts
        for line in wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    ]
