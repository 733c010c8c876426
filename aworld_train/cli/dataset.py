"""``aworld-train dataset``: check a file, look at its rows, count them; other modules build and synthesize them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption
from aworld_train.cli.dataset_build import build_command
from aworld_train.cli.dataset_rows import rows_command
from aworld_train.cli.dataset_synthesize import synthesize_command
from aworld_train.errors import DependencyMissing, UsageError

if TYPE_CHECKING:
    from aworld_train.dataset.statistics import DatasetStatistics

MESSAGE_CHARACTERS = 1200
ANSWER_CHARACTERS = 600
FACT_CHARACTERS = 160
MAX_VALUES = 20

# The facts at the head of a row's panel, in this order; fields of other programs follow them. The question or
# expression is in the prompt already, and further right answers follow the answer.
_FACTS = ("id", "split", "level", "scorer", "answer_schema", "attachments")
_NOT_FACTS = ("index", "file", "line", "question", "expression", "ground_truths", "images")

# Control characters in a text could move the terminal's cursor or change its colours, so their symbols are printed.
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {
    0x7F: 0x2421,
    0x9B: 0x241B,
}

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Parquet file of tasks.")]
app = typer.Typer(no_args_is_help=True, help="Build, check and look at datasets of tasks.")
app.command("build")(build_command)
app.command("synthesize")(synthesize_command)
app.command("rows")(rows_command)


@app.command("check")
def check_command(
    file: FileArgument,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Model whose tokenizer and chat template the prompts are measured with."
        ),
    ] = None,
    max_prompt_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Count the prompts that are longer; needs --model.")
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
    console.print_line(str(summary.path))
    console.print_table(("", "rows"), [(name, str(count)) for name, count in rows])
    if summary.prompt_tokens is not None:
        lengths = summary.prompt_tokens
        console.out.print()
        console.print_table(
            ("prompt tokens", "length"), [(name, str(length)) for name, length in lengths.percentiles.items()]
        )
        if lengths.most is not None:
            console.out.print(f"{lengths.longer} prompts are longer than {lengths.most} tokens")


@app.command("show")
def show_command(
    file: FileArgument,
    number: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many rows.")] = 5,
    index: Annotated[
        int | None, typer.Option(metavar="I", help="The one row of this extra_info.index.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Long texts to their end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the first rows of a parquet file, or one of them, as a person reads them.

    Examples:
      aworld-train dataset show data/gsm8k/val.parquet -n 3
      aworld-train dataset show data/gsm8k/val.parquet --index 17 --full
    """
    from aworld_train.dataset.check import find_row, first_rows

    rows = first_rows(file, number) if index is None else [find_row(file, index)]
    if as_json:
        console.print_json({"file": str(file), "rows": rows})
        return
    if not rows:
        console.note(f"{file} has no rows.")
    for row in rows:
        console.out.print(_panel(row, full))


@app.command("stats")
def stats_command(
    file: FileArgument,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Model directory; lengths are measured in its tokens too."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PNG",
            help=r"Where the picture is written. \[default: beside FILE, as its name with .stats.png]",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count rows by what they name, measure prompts and answers, and draw both as histograms.

    Examples:
      aworld-train dataset stats data/gsm8k/train.parquet
      aworld-train dataset stats data/gaia/val.parquet --model models/tiny --out gaia.png
    """
    from aworld_train.dataset.histogram import draw_statistics
    from aworld_train.dataset.output import PICTURE
    from aworld_train.dataset.statistics import statistics

    stats = statistics(file, model, console.note)
    if not as_json:
        _print_lengths(stats)
        console.out.print()
        _print_counts(stats)
    target = out or file.with_name(f"{file.stem}{PICTURE}")
    picture: Path | None = target
    try:
        draw_statistics(stats, target)
        console.note(f"The histograms are in {target}")
    except DependencyMissing as error:
        if out is not None:
            raise
        picture = None
        console.note(f"No histograms: {error.message}")
    if as_json:
        console.print_json({**stats.to_json(), "picture": picture})


def _panel(row: Mapping[str, Any], full: bool) -> Panel:
    # A file that fails the check can be shown too, so fields may be missing.
    info, reward = row.get("extra_info") or {}, row.get("reward_model") or {}
    facts = {name: info.get(name) for name in _FACTS}
    if info.get("file"):
        facts["from"] = f"{info['file']}:{info['line']}" if info.get("line") else info["file"]
    facts |= {name: value for name, value in info.items() if name not in (*_FACTS, *_NOT_FACTS)}
    head = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value not in (None, "", []):
            listed = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
            head.add_row(Text(name, style="dim"), _text(listed, None if full else FACT_CHARACTERS))
    parts: list[RenderableType] = [head]
    for message in row.get("prompt") or ():
        role, content = (message["role"], message["content"]) if message else (None, None)
        parts += _section(role or "no role", content, None if full else MESSAGE_CHARACTERS)
    parts += _section("answer", reward.get("ground_truth"), None if full else ANSWER_CHARACTERS, "green")
    for other in info.get("ground_truths") or ():
        if other != reward.get("ground_truth"):
            parts += _section("also right", str(other), None if full else ANSWER_CHARACTERS, "green")
    title = Text(f"task {info.get('index', 'without index')}", style="bold")
    title.append(f" · {row.get('data_source') or 'no data source'}", style="not bold")
    return Panel(Group(*parts), title=title, title_align="left", padding=(1, 2))


def _section(
    title: str, text: str | None, max_chars: int | None, colour: str = "cyan"
) -> list[RenderableType]:
    body = Text("there is none", style="red") if text is None else _text(text, max_chars)
    rule = Rule(Text(title, style=f"bold {colour}"), align="left", style="dim")
    return [Padding(rule, (1, 0, 0, 0)), Padding(body, (0, 0, 0, 2))]


def _text(text: str, max_chars: int | None) -> Text:
    cut = max_chars is not None and len(text) > max_chars
    shown = Text((text[:max_chars].rstrip() if cut else text).translate(_CONTROLS))
    if cut:
        shown.append(
            f" … {len(text) - len(text[:max_chars].rstrip()):,} more characters (--full)", style="dim italic"
        )
    return shown


def _print_lengths(stats: "DatasetStatistics") -> None:
    from aworld_train.dataset.lengths import percentiles

    console.print_line(f"{stats.path}: lengths")
    console.print_table(
        ("", "min", "p50", "p90", "p99", "max"),
        [
            (measure, *(f"{length:,}" for length in percentiles(counts).values()))
            for measure, counts in stats.lengths.items()
        ],
    )


def _print_counts(stats: "DatasetStatistics") -> None:
    rows: list[tuple[str, str, int]] = []
    for title, counts in (*stats.counts.items(), ("kind of answer", stats.answer_kinds)):
        # The most frequent ones come first; levels have an order of their own.
        shown = dict(list(counts.items())[:MAX_VALUES])
        if title == "level":
            shown = dict(sorted(shown.items()))
        if others := len(counts) - len(shown):
            shown[f"{others:,} others"] = sum(counts.values()) - sum(shown.values())
        rows += [(title, name, count) for name, count in shown.items()]
    rows += [
        ("repeats of a prompt", "", stats.duplicates),
        ("without an answer", "", stats.unanswered),
        ("several right answers", "", stats.several_answers),
        ("all", "", stats.rows),
    ]
    console.print_table(
        ("", "", "rows", "share"),
        [(title, name, f"{count:,}", f"{count / stats.rows:.1%}") for title, name, count in rows],
    )
