"""`aworld-train reward suspects`: episodes whose reward may come from reward hacking."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from aworld_train.cli import console
from aworld_train.errors import UsageError, suggestion

if TYPE_CHECKING:
    from aworld_train.episode.figures import EpisodeFigures


def suspects(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    sign: Annotated[
        str | None, typer.Option(help="Only episodes with this sign, as the table names it.")
    ] = None,
    number: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many episodes to show.")] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of them, one JSON object per line.")
    ] = False,
) -> None:
    """List episodes whose reward may come from something else than the task, newest first.

    A sign proves nothing and changes no score: it says where to look. Their shares per step are in metrics.jsonl.

    Examples:
      aworld-train reward suspects runs/quickstart
      aworld-train reward suspects runs/gaia --sign answer_in_other_file -n 20
    """
    from aworld_train.episode.figures import read_figures
    from aworld_train.json_lines import JsonLinesTail
    from aworld_train.reward.hacking import Suspicion

    file = run / "traces" / "episodes.jsonl"
    if not file.is_file():
        raise UsageError(f"{run} is not a run's folder: {file} does not exist.")
    signs = [suspicion.value for suspicion in Suspicion]
    if sign is not None and sign not in signs:
        raise UsageError(f"--sign {sign!r} is not one of {', '.join(signs)}.{suggestion(sign, signs)}")
    try:
        lines = [line for line in JsonLinesTail(file, read_figures).read() if not line.retried]
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    suspicious = [line for line in lines if line.suspicions and (sign is None or sign in line.suspicions)]
    if as_json:
        for line in suspicious:
            console.print_json(line.line())
        return
    counts = Counter(name for line in suspicious for name in line.suspicions or ())
    console.out.print(f"of {len(lines)} episodes")
    console.print_table(
        ("sign", "episodes", "what it means"),
        [(name, str(counts[name]), Suspicion(name).meaning) for name in signs],
    )
    for line in suspicious[: -number - 1 : -1]:
        console.out.print(_describe(line), soft_wrap=True)


def _describe(figures: "EpisodeFigures") -> Text:
    excerpt = figures.look or {}
    phase = "validation" if figures.validate else "training"
    return Text.assemble(
        (
            f"\nstep {figures.step} {phase}, task {figures.index}: {', '.join(figures.suspicions or ())}\n",
            "bold",
        ),
        ("asked   ", "dim"),
        f"{_short(excerpt.get('query') or '')}\n",
        ("said    ", "dim"),
        f"{_short(excerpt.get('said') or '')}\n",
        ("answer  ", "dim"),
        f"{excerpt.get('extracted')} (right: {excerpt.get('ground_truth')})",
    )


def _short(text: str, limit: int = 600) -> str:
    text = text.replace("\x1b", "␛")
    return text if len(text) <= limit else f"{text[: limit // 2]} [...] {text[-limit // 2 :]}"
