"""The commands of ``aworld-train runs`` that read the store of a run: its episodes, one of them, and their tokens."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli.arguments import RUNS, JsonOption, RunArgument, RunsOption
from aworld_train.cli.console import note, out, print_json, print_line, print_table, visible
from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.store.reading import EpisodeHead, Store, StoredEpisode
    from aworld_train.store.trace import TokenOrigin

_WITHOUT_QUESTION, _MIN_QUESTION = 80, 20
_SHOWN_CHARS = 2_000

WhereOption = Annotated[
    str, typer.Option("--where", help="A condition, as 'outcome=timeout and tool=search'; see the examples.")
]


def episodes(
    run: RunArgument,
    where: WhereOption = "",
    search: Annotated[str, typer.Option(help="A text that the episode contains.")] = "",
    sort: Annotated[str, typer.Option(help="began, step, reward, seconds, turns, advantage, ...")] = "began",
    descending: Annotated[bool, typer.Option("--desc", help="The largest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most that are listed.")] = 50,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also episodes that a resumed run has played again.")
    ] = False,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """List the episodes of a run that meet a condition.

    A condition compares figures (step, phase, outcome, treatment, reward, accuracy, turns, tool_calls, tool_errors,
    seconds, advantage, trained_step, index, source, scorer, parts.NAME, ...), tools (tool, failed_tool, server) and
    texts (text, question, answer, cause) by =, !=, <, <=, >, >= or ~ (contains), joined by and, or, not and
    parentheses.

    Examples:
        aworld-train runs episodes quickstart --where 'outcome=timeout and tool=search'
        aworld-train runs episodes quickstart --where 'phase=train and step=3 and reward<1' --sort advantage
        aworld-train runs episodes quickstart --search 'I cannot' --json
    """
    with _store(run, runs, where) as store:
        found = store.episodes(
            where, search=search, superseded=superseded, sort=sort, descending=descending, limit=limit
        )
        total = len(found)
        if total == limit:
            total = store.count(where, search=search, superseded=superseded)
    if as_json:
        print_json({"total": total, "episodes": [head.to_json() for head in found]})
        return
    if not found:
        note("No episodes match the condition.")
        return
    _print_heads(found)
    if total > len(found):
        note(f"{len(found)} of {total} episodes; --limit shows more.")


def episode(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="EPISODE", help="Its id, or the beginning of it.")],
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Show an episode: its conversations, tool calls, score, and how it was trained on.

    Example:
        aworld-train runs episode quickstart 07d7fb93
    """
    with _store(run, runs) as store:
        found = store.episode(name)
    if as_json:
        print_json(_plain(found))
        return
    _print_episode(found, None if full else _SHOWN_CHARS)


def trace_token(
    run: RunArgument,
    step: Annotated[int, typer.Option(min=1, help="The training step.")],
    row: Annotated[int, typer.Option(min=0, help="The row's place in the step's batch, from 0.")],
    token: Annotated[int, typer.Option(min=0, help="The token's place in the row, prompt included, from 0.")],
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Say where a token that was trained on comes from: its model call, its episode and its task.

    Example:
        aworld-train runs trace-token quickstart --step 3 --row 17 --token 120
    """
    from aworld_train.store.trace import trace_token as trace

    with _store(run, runs) as store:
        origin = trace(store, step, row, token)
    if as_json:
        print_json(origin.to_json())
        return
    for name, text in _origin_facts(origin).items():
        print_line(f"{name:<12}{visible(text)}")


def prune(
    run: RunArgument,
    where: WhereOption = "",
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Only episodes that a resumed run has played again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: RunsOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Remove texts and tokens of episodes from a run's store; their figures stay.

    Examples:
        aworld-train runs prune quickstart --where 'reward=1 and step<5'
        aworld-train runs prune quickstart --superseded --yes
    """
    from aworld_train.store.pruning import prune as prune_store
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.run_files import is_in_use
    from aworld_train.training.run_store import run_database

    if not where and not superseded:
        raise UsageError(
            "Say which episodes: --where CONDITION, or --superseded. `--where 'step>=0'` means all."
        )
    recorded = open_run(run, runs)
    if is_in_use(recorded.path):
        raise UsageError(
            f"The run {recorded.name} is running; prune it when it has ended, or set store.max_gb."
        )
    condition = f"({where}) and has_content" if where else "has_content"
    with _store(run, runs, where) as store:
        count = store.count(condition, superseded=superseded)
    if not yes and not as_json:
        typer.confirm(f"Remove texts and tokens of about {count} episodes?", abort=True)
    database = run_database(recorded)
    assert database is not None  # as it was opened above
    with closing(database):
        pruned = prune_store(database, where, superseded=superseded)
    if as_json:
        print_json({"episodes": pruned.episodes, "blobs": pruned.blobs, "bytes": pruned.bytes})
        return
    note(f"Removed texts and tokens of {pruned.episodes} episodes: {pruned.bytes / 1e6:.1f} MB.")


def _store(run: str, runs: Path, where: str = "") -> "Store":
    from aworld_train.training.recorded_run import open_run
    from aworld_train.training.run_store import open_run_store

    return open_run_store(open_run(run, runs), where)


def _print_heads(heads: "list[EpisodeHead]") -> None:
    # Beside the other columns the question has what is left of a wide terminal.
    room = out.width - _WITHOUT_QUESTION
    rows = []
    for head in heads:
        figures = head.figures
        outcome, treatment = figures.outcome or head.status, figures.treatment
        errors = f" ({figures.tool_errors}!)" if figures.tool_errors else ""
        rows.append(
            (
                head.id,
                f"{head.phase} {head.step}",
                f"{head.index}.{head.attempt}",
                outcome if treatment in ("trained", None) else f"{outcome} ({treatment})",
                _number(figures.reward),
                _number(figures.turns),
                _number(figures.tool_calls) + errors,
                _number(figures.seconds),
                _line(head.question, room) if room >= _MIN_QUESTION else "",
            )
        )
    columns = ("episode", "step", "task", "outcome", "reward", "turns", "tools", "seconds", "question")
    print_table(columns, rows)


def _print_episode(episode: "StoredEpisode", max_chars: int | None) -> None:
    from rich.text import Text

    head, figures = episode.head, episode.head.figures
    _fact(
        "episode",
        f"{head.id}: task {head.index} of {head.source}, {head.phase} step {head.step}, attempt {head.attempt}",
    )
    _fact("outcome", f"{figures.outcome or head.status} ({figures.treatment or '–'})")
    if figures.cause:
        _fact("cause", figures.cause)
    _fact("answer", f"right is {_line(head.correct_answer, 200)!r}")
    if episode.content is None:
        note("Its texts and tokens are not kept (store.keep, store.max_gb or `runs prune`).")
        return
    for agent in episode.content.agents:
        calls = {call.node: (number, call) for number, call in enumerate(agent.calls, 1)}
        for number, node in enumerate(agent.nodes):
            follows = node.parent in (-1, number - 1)
            for message in node.messages:
                title = f"{agent.name} · {message.role}"
                if number in calls:
                    call_number, call = calls[number]
                    title += f" · call {call_number}, {node.token_count} tokens after {call.prompt_tokens}"
                    title += f" in {call.seconds:.2f} s"
                if not follows:
                    title += f" · branch from node {node.parent}"
                out.print(Text(f"── {title}", style="bold"))
                for text, style in (
                    (message.reasoning, "dim italic"),
                    (message.content, "green" if node.sampled else ""),
                    *((f"→ {call.name}({call.arguments})", "cyan") for call in message.tool_calls),
                ):
                    if text:
                        out.print(Text(visible(_cut(text, max_chars)), style=style), soft_wrap=True)
    score = episode.content.score
    if score is not None:
        _fact("score", f"{_number(score.score)} by {score.scorer}, extracted {score.extracted!r}")
        for step in score.steps:
            _fact("", step)
    for number, use in enumerate(episode.rows):
        trained = (
            "not trained on"
            if use.trained_step is None
            else f"step {use.trained_step}, row {use.position}, advantage {_number(use.advantage)}, "
            f"{use.masked_in} tokens under the mask"
        )
        _fact(f"row {number}", trained)


def _origin_facts(origin: "TokenOrigin") -> dict[str, str]:
    head, call = origin.episode, origin.call
    sampled = call is not None
    facts = {
        "token": f"{origin.token_id} at {origin.token} of row {origin.position} of step {origin.step}",
        "trained on": "yes"
        if origin.under_mask
        else "no, it is context"
        if not sampled
        else "no, it is not under the mask",
    }
    if call is not None:
        facts |= {
            "logprob": f"{origin.logprob}",
            "advantage": _number(origin.advantage),
            "call": f"{origin.call_number} of {origin.agent}, token {origin.place} of it, "
            f"temperature {call.temperature:g}",
            "weights": "–"
            if origin.weights is None
            else f"version {origin.weights[0]} to {origin.weights[1]}",
        }
    facts |= {
        "text": " | ".join(_line(f"{message.role}: {message.content}", 200) for message in origin.messages),
        "episode": f"{head.id}, row {origin.row}, outcome {head.figures.outcome}, "
        f"reward {_number(head.figures.reward)}",
        "task": f"{head.index} of {head.source}: {_line(head.question, 200)}",
    }
    return facts


def _plain(episode: "StoredEpisode") -> dict[str, Any]:
    from msgspec import to_builtins

    content: dict[str, Any] | None = None
    if episode.content is not None:
        content = to_builtins(episode.content)
        assert content is not None
        for plain, agent in zip(content["agents"], episode.content.agents, strict=True):
            plain["nodes"] = [
                {
                    "parent": node.parent,
                    "messages": to_builtins(node.messages),
                    "token_ids": node.token_ids,
                    "logprobs": node.token_logprobs if node.sampled else None,
                    "sampled": node.sampled,
                    "received": node.received,
                    "weights": node.versions,
                    "weight_parts": node.parts,
                    "redacted": node.redacted,
                }
                for node in agent.nodes
            ]
    return {
        **episode.head.to_json(),
        "task_row": episode.task_row,
        "content": content,
        "rows": [
            {"trained_step": use.trained_step, "position": use.position, "advantage": use.advantage}
            for use in episode.rows
        ],
        "tools": episode.tools,
    }


def _fact(name: str, text: str) -> None:
    print_line(f"{name:<10}{visible(text)}")


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters, --full shows them …]\n{text[-half:]}"
