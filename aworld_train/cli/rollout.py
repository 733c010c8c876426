"""`aworld-train rollout`: plays single episodes and shows every token of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aworld_train.cli import console
from aworld_train.cli.arguments import RUNS, EngineOption, OverridesArgument, RecipeArgument, with_engine
from aworld_train.errors import UsageError
from aworld_train.masking import mask, masked

if TYPE_CHECKING:
    from rich.text import Text

    from aworld_train.adapter.episodes.play_single import SingleEpisode
    from aworld_train.rollout.graph import Row

_SHOWN_LINES = 16
_SHOWN_CHARACTERS = 800  # of a line


def rollout(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    task: Annotated[
        int | None, typer.Option(help="The task's `extra_info.index` in the dataset; default: its first.")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Tasks; default: the first file of the recipe's dataset.val, else train."),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many episodes.")] = 1,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely tokens.")] = False,
    engine: EngineOption = None,
    model_url: Annotated[
        str | None,
        typer.Option(
            help="Sample from a vLLM server at this address, as http://host:8000/v1; start it with "
            "`--logprobs-mode processed_logprobs`."
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where the folder with the played episodes is.")] = RUNS,
    full: Annotated[
        bool, typer.Option("--full", help="Show prompts and tool results whole, however long they are.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, token ids included.")
    ] = False,
) -> None:
    """Play single episodes without training: turns, tool calls, tokens and which of them are trained on, reward, time.

    The agent, its limits, the engine and the reward are those of `train`; what is trained on is shown bold and whole.
    Exits with 1 if no episode came to a row that could be trained on.

    Examples:
        aworld-train rollout recipes/quickstart.yaml --task 3600
        aworld-train rollout recipes/quickstart.yaml --task 3600 -n 4 --json
        aworld-train rollout recipe.yaml --engine vllm
        aworld-train rollout recipe.yaml --model-url http://gpu-node:8000/v1
    """
    import asyncio
    import os

    from aworld_train import recipe as recipes
    from aworld_train import temporary
    from aworld_train.adapter.base import framework_of
    from aworld_train.dataset.check import find_row
    from aworld_train.model.check import check_model
    from aworld_train.model.tool_parser import check_tool_parser
    from aworld_train.training.environment import run_environment
    from aworld_train.training.run_models import with_run_model
    from aworld_train.training.run_store import keep_rollouts

    read = recipes.read(recipe, with_engine(overrides, engine))
    loaded = with_run_model(read.recipe)
    framework_of(loaded)  # which says what is not installed before an environment starts
    check_model(loaded.model.location)
    tool_parser = check_tool_parser(loaded.model.location, loaded.agent.tool_parser)
    tasks = [dataset] if dataset else loaded.dataset.val_files or loaded.dataset.train_files
    if not tasks:
        raise UsageError(
            f"The recipe {loaded.name} has no dataset: set dataset.val, or name one with --dataset."
        )
    row = find_row(tasks[0], task)
    with (
        temporary.folder_of("rollout") as folder,
        run_environment(
            loaded, lambda line: console.note(mask(line)), [row["extra_info"].get("scorer")], sessions=n
        ) as environment,
    ):
        os.environ |= environment.variables()
        from aworld_train.adapter.episodes.play_single import SingleEpisodes

        if tool_parser:
            console.note(tool_parser)
        console.note("loading the model")
        player = SingleEpisodes(loaded, folder, model_url=model_url, greedy=greedy)
        console.note(player.turns)

        async def play() -> "list[SingleEpisode]":
            try:
                return await asyncio.gather(
                    *(asyncio.create_task(player.play(row, number)) for number in range(n))
                )
            finally:
                await player.close()

        episodes = asyncio.run(play())
        kept = keep_rollouts(folder, runs, read)
    if as_json:
        console.print_json(
            {"task": row["extra_info"]["index"], "episodes": [_plain(episode) for episode in episodes]}
        )
    else:
        for number, episode in enumerate(episodes, 1):
            _show(episode, player.tokenizer, f"episode {number} of {n}", None if full else _SHOWN_LINES)
    if kept:
        console.note(f"Kept in {kept}; `aworld-train runs episodes {kept}` lists them.")
    if not any(episode.rows for episode in episodes):
        raise typer.Exit(1)


def _plain(episode: "SingleEpisode") -> dict[str, Any]:
    return {
        **masked(
            {key: value for key, value in episode.figures.line().items() if key not in ("step", "validate")}
        ),
        "answer": episode.result.answer,
        "scores": episode.score.figures() if episode.score else None,
        "reward": episode.score.value if episode.score else None,
        "rows": [
            {
                "agent": agent,
                "prompt_ids": row.prompt,
                "response_ids": row.response,
                "response_mask": row.mask,
                "response_logprobs": row.logprobs,
            }
            for agent, row in episode.rows
        ],
        "completions": [
            {
                "agent": record.name,
                "content": completion.content,
                "reasoning": completion.reasoning,
                "tool_calls": [
                    {"name": call.name, "arguments": call.arguments} for call in completion.tool_calls
                ],
                "finish_reason": completion.finish_reason,
                "prompt_tokens": completion.prompt_tokens,
                "tokens": completion.token_count,
                "seconds": round(completion.seconds, 4),
            }
            for record in episode.result.episode.agents.values()
            for completion in record.completions
        ],
    }


def _show(episode: "SingleEpisode", tokenizer: Any, title: str, max_lines: int | None) -> None:
    from rich.panel import Panel
    from rich.text import Text

    figures = episode.figures
    for agent, row in episode.rows:
        sampled = sum(row.mask)
        length = len(row.prompt) + len(row.response)
        console.out.print(
            Panel(
                _coloured(row, tokenizer, max_lines),
                title=f"{title} · {agent}",
                subtitle=f"{length} tokens, {sampled} of them trained on"
                + (" (bold)" if sampled and console.out.is_terminal else ""),
            )
        )
    for record in episode.result.episode.agents.values():
        for number, completion in enumerate(record.completions, 1):
            calls = ", ".join(f"{call.name}({call.arguments})" for call in completion.tool_calls)
            console.out.print(
                Text(
                    f"{record.name} turn {number}: {completion.token_count} tokens after {completion.prompt_tokens}"
                    f" in {completion.seconds:.2f} s"
                    + (f" → {calls}" if calls else "")
                    + (f" ({completion.finish_reason})" if completion.finish_reason == "length" else "")
                )
            )
    facts = [
        f"outcome {figures.outcome} ({figures.treatment})",
        f"reward {episode.score.value:g} by {figures.scorer}" if episode.score else "no reward",
        f"{_count(figures.tool_calls, 'tool call')}, {_count(figures.tool_errors, 'error')}, "
        f"{figures.tool_seconds or 0:.2f} s",
        f"model {figures.generate_seconds or 0:.2f} s",
        f"in all {figures.seconds or 0:.2f} s",
    ]
    for name, counts in (("branches", figures.branches), ("format misses", figures.format_misses)):
        if counts:
            facts.append(f"{name} " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    if figures.undelivered:
        facts.append(f"{_count(figures.undelivered, 'answer')} that did not reach the agent")
    console.out.print(Text(" · ".join(facts)), soft_wrap=True)
    for point in figures.branch_points or ():
        console.out.print(
            Text(
                f"branch of {point.agent}: {point.cause} at message {point.message} {point.role}, "
                f"character {point.position}: {mask(repr(point.recorded))}, now {mask(repr(point.sent))}"
            ),
            soft_wrap=True,
        )
    if figures.cause:
        console.out.print(Text(f"cause: {mask(figures.cause)}"), soft_wrap=True)


def _count(number: int | None, noun: str) -> str:
    number = number or 0
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _coloured(row: "Row", tokenizer: Any, max_lines: int | None) -> "Text":
    from itertools import groupby

    from rich.text import Text

    prompt_tokens = [(token, 0) for token in row.prompt]
    tokens = prompt_tokens + list(zip(row.response, row.mask, strict=True))
    text = Text()
    for trained, run in groupby(tokens, key=lambda pair: pair[1]):
        # An escape character from a tool or a model is made visible, so that the terminal does not interpret it.
        part = tokenizer.decode([token for token, _ in run]).replace("\x1b", "␛")
        if trained:
            text.append(part, style="bold green")
        else:
            text.append(_shortened(part, max_lines), style="dim")
    return text


def _shortened(text: str, max_lines: int | None) -> str:
    """A long text with a note in place of its middle; the end stays, because the model reads it last."""
    if max_lines is None:
        return text
    lines = []
    for line in text.split("\n"):
        cut = len(line) - _SHOWN_CHARACTERS
        half = _SHOWN_CHARACTERS // 2
        lines.append(f"{line[:half]} [… {cut} characters …] {line[-half:]}" if cut > 0 else line)
    omitted = len(lines) - max_lines
    if omitted > 1:
        head = max_lines // 2
        lines[head : head + omitted] = [f"[… {omitted} lines, --full shows them …]"]
    return "\n".join(lines)
