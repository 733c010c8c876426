"""``aworld-train dataset check``: whether training can use a file, and counts of its rows."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from aworld_train.cli import console
from aworld_train.cli.dataset_views import FileArgument, JsonOption
from aworld_train.errors import UsageError


def check_command(
    file: FileArgument,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Model whose tokenizer and chat template the prompts are measured with."
        ),
    ] = None,
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Count the prompts that are longer; needs --model."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """See that training can use a parquet file; exits with 1 and says why where it cannot.

    Examples:

      aworld-train dataset check data/gsm8k/train.parquet

      aworld-train dataset check data/gaia/train.parquet --model models/Qwen3-4B --max-prompt-tokens 1024
    """
    from aworld_train.dataset import check_file

    if max_prompt_tokens is not None and model is None:
        raise UsageError("--max-prompt-tokens needs the tokenizer to count with: give --model DIR.")
    summary = check_file(file, model, max_prompt_tokens)
    if as_json:
        console.print_json(summary.to_json())
        return
    table = Table("", "rows", title=escape(str(summary.path)))
    for title, counts in (
        ("data_source", summary.data_sources),
        ("agent_name", summary.agents),
        ("split", summary.splits),
        ("scorer", summary.scorers),
        ("answer_schema", summary.answer_schemas),
        ("level", summary.levels),
    ):
        for name, count in counts.items():
            table.add_row(escape(f"{title} {name}"), str(count))
    if summary.several_answers:
        table.add_row("several right answers", str(summary.several_answers))
    table.add_row("all", str(summary.rows), style="bold")
    console.out.print(table)
    if summary.prompt_tokens is not None:
        lengths = Table("prompt tokens", "length")
        for name, length in summary.prompt_tokens.percentiles.items():
            lengths.add_row(name, str(length))
        if summary.prompt_tokens.most is not None:
            lengths.add_row(
                f"longer than {summary.prompt_tokens.most}", f"{summary.prompt_tokens.longer} rows"
            )
        console.out.print(lengths)
