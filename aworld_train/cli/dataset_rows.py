"""``aworld-train dataset rows``: episodes and conversations become token rows, which supervised training imitates."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import RUNS, JsonOption, RunsOption
from aworld_train.errors import UsageError


def rows_command(
    model: Annotated[str, typer.Option(help="The model that is to be trained, whose tokens the rows have.")],
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="A run or an evaluation whose episodes are taken; repeatable."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Conversations, one JSON object a line, as OpenAI or ShareGPT has them; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for train.parquet and val.parquet.")
    ] = Path("data/rows"),
    where: Annotated[
        str, typer.Option(help="Condition on episodes, as `runs episodes` takes it.")
    ] = "reward>=1",
    per_task: Annotated[
        int | None,
        typer.Option(min=1, help="Most of one task: those with the highest reward, then the shortest."),
    ] = None,
    balance: Annotated[
        bool, typer.Option("--balance", help="Take as many of each level as there are of the rarest.")
    ] = False,
    max_tokens: Annotated[int | None, typer.Option(min=2, help="Leave out what has a longer row.")] = None,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the tasks that go to val.parquet.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of order and split.")] = 42,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Make token rows for `trainer.method: sft` of episodes that were played, or of conversations.

    The rows of an episode are the ids and masks that RL trains on. Conversations are rendered as the model gateway
    renders them. Rows that repeat others are left out.

    Examples:
        aworld-train dataset rows --run quickstart --model models/tiny --out data/rows
        aworld-train dataset rows --run teacher --where 'turns<6' --per-task 1 --balance --model models/tiny
        aworld-train dataset rows --file conversations.jsonl --model models/tiny --max-tokens 4096
    """
    from aworld_train.dataset.row_selection import Choice
    from aworld_train.model.check import check_model
    from aworld_train.model.files import local_folder
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.row_building import RowSources, build_rows

    if not run and not file:
        raise UsageError(
            "Rows come from episodes (--run NAME) or from conversations (--file FILE): name some."
        )
    check_model(model)
    folder = local_folder(model)
    if folder is None:
        raise UsageError(
            f"--model {model} is not on this machine, and its tokenizer is needed. Download it first."
        )
    recorded = [open_run(name, runs) for name in run or ()]
    sources = RowSources(folder, recorded, where, file or ())
    report = build_rows(sources, Choice(per_task, balance, max_tokens, held_out, seed), out)
    if as_json:
        console.print_json(asdict(report))
        return
    console.print_line(f"{report.out}: of {report.read} episodes and conversations", "bold")
    console.print_table(
        ("split", "rows", "tokens", "trained", "longest"),
        [
            (split, *(f"{value:,}" for value in (facts.rows, facts.tokens, facts.trained, facts.longest)))
            for split, facts in report.splits.items()
        ],
    )
    for reason, count in sorted(report.dropped.items(), key=lambda item: -item[1]):
        console.note(f"{count:,} left out: {reason}")
