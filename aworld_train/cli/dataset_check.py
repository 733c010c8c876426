"""``aworld-train dataset check``: whether training can use a file, and counts of its rows."""

from pathlib import Path
from typing import Annotated

import typer

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
    summary = check_file(file, model, max_prompt_tokens, console.note)
    if as_json:
        console.print_json(summary.to_json())
        return
    groups = {
        "data_source": summary.data_sources,
        "agent_name": summary.agents,
        "split": summary.splits,
        "scorer": summary.scorers,
        "answer_schema": summary.answer_schemas,
        "level": summary.levels,
    }
    rows = [(f"{title} {name}", count) for title, counts in groups.items() for name, count in counts.items()]
    if summary.several_answers:
        rows.append(("several right answers", summary.several_answers))
    rows.append(("all", summary.rows))
    console.out.print(str(summary.path), markup=False, soft_wrap=True)
    console.print_table(("", "rows"), [(name, str(count)) for name, count in rows])
    if summary.prompt_tokens is not None:
        lengths = summary.prompt_tokens
        console.out.print()
        console.print_table(
            ("prompt tokens", "length"), [(name, str(length)) for name, length in lengths.percentiles.items()]
        )
        if lengths.most is not None:
            console.out.print(f"{lengths.longer} prompts are longer than {lengths.most} tokens")
