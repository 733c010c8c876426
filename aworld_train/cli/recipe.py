"""``aworld-train recipe``: shows and checks recipes, lists the ready ones, and prints the schema for editors."""

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aworld_train.cli.arguments import JsonOption, OverridesArgument, RecipeArgument, complete_recipe
from aworld_train.cli.console import note, out, print_json, print_line
from aworld_train.errors import DependencyMissing, EnvironmentFailure, UsageError

if TYPE_CHECKING:
    from aworld_train.recipe.schema import Recipe

app = typer.Typer(no_args_is_help=True, help="Look at recipes and check them.")


@app.command("show")
def show(
    source: RecipeArgument,
    overrides: OverridesArgument = None,
    composed: Annotated[
        bool,
        typer.Option(
            "--composed", "--verl", help="Show the configuration composed for the framework instead."
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Show what differs from the recipe that it extends, and from the defaults."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the recipe as a run would use it: inherited, overridden, resolved but for environment variables.

    Examples:
        aworld-train recipe show quickstart
        aworld-train recipe show quickstart trainer.lr=1e-4 --diff
        aworld-train recipe show quickstart --composed --json
    """
    from aworld_train import recipe as recipes

    if diff and composed:
        raise UsageError("--diff compares recipes, and --composed shows what the framework gets. Give one.")
    if diff:
        _show_differences(source, overrides or [], as_json)
        return
    loaded = recipes.load(source, overrides or [])
    shown: dict[str, Any] = recipes.masked(_composed(loaded) if composed else recipes.to_source(loaded))
    if as_json:
        print_json(shown)
    else:
        _print_yaml(recipes.dump(shown))


@app.command("check")
def check(
    source: RecipeArgument,
    overrides: OverridesArgument = None,
    no_files: Annotated[
        bool,
        typer.Option(
            "--no-files", help="Do not look for the model and the datasets, for a recipe of another machine."
        ),
    ] = False,
    purpose: Annotated[
        Literal["train", "eval"],
        typer.Option(
            "--for", help="What the recipe is for; `eval` needs neither training tasks nor a model."
        ),
    ] = "train",
    online: Annotated[
        bool,
        typer.Option(
            "--online",
            help="Ask the hub for the config.json of a model that is not here, to estimate memory and disk.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a recipe as training would, scorers and the framework's keys included, without starting anything.

    The model, the tool environment and the datasets must exist, and the tasks fit the recipe; a model's name on the hub
    is looked up with --online alone.

    Of a model on this machine it says how tool calls are read and how the chat template continues turns. Of a run it
    says the memory of GPUs and, where that is a gigabyte or more, the disk that it takes, by estimate.

    Where `reward.scorer` runs code, a running environment (`env.url`) is asked to run a test. The names in
    `agent.tools` are compared with its tools, and the tokens of these are counted.
    """
    from aworld_train import recipe as recipes
    from aworld_train.model.tool_parser import check_tool_parser
    from aworld_train.recipe.device import on_cpu
    from aworld_train.recipe.env_notes import call_time_note, queue_note, server_limits
    from aworld_train.recipe.reward_checks import reward_remarks, runs_code
    from aworld_train.training.recipe_checks import check_data, recipe_checks
    from aworld_train.training.run_models import with_run_model

    training = purpose == "train"
    checks = recipe_checks(files=not no_files, training=training, note=note)
    loaded = recipes.load(source, overrides or [], also=checks)
    if not no_files:
        loaded = with_run_model(loaded)
        check_data(loaded, ("train", "val") if training else ("val",))
    if runs_code(loaded):
        _check_code(loaded)
    limits = server_limits(loaded) if loaded.agent.tool_timeout is not None else {}
    call_time = call_time_note(loaded, limits)
    # It takes a third of a second to import, and few episodes are played at a time without GPUs.
    queue = None if on_cpu(loaded) else queue_note(loaded)
    parser = check_tool_parser(loaded.model.location, loaded.agent.tool_parser)
    tools = None if no_files else tools_remark(loaded)
    remarks = [remark for remark in (*reward_remarks(loaded), call_time, queue, parser, tools) if remark]
    framework_checked = False
    try:
        if training:
            remarks += _framework_remarks(loaded, online)
            framework_checked = True
    except DependencyMissing:
        pass
    if as_json:
        print_json(
            {
                "name": loaded.name,
                "digest": recipes.digest(loaded),
                f"{loaded.trainer.framework}_checked": framework_checked,
                "remarks": remarks,
            }
        )
    else:
        for remark in remarks:
            note(remark)
        print_line(f"{source}: fine")


def tools_remark(recipe: "Recipe") -> str | None:
    """What the tools of an environment that is up cost; None where it or the model is not known."""
    from aworld_train.env.health import health_url, read_health
    from aworld_train.model.files import local_folder
    from aworld_train.training.environment import check_selection, find_environment

    if recipe.env.url is None or (health := read_health(health_url(recipe.env.url))) is None:
        return None
    environment = find_environment(recipe)
    check_selection(recipe, environment)
    model = local_folder(recipe.model.location)
    if model is None:
        return None
    from dataclasses import asdict

    from aworld_train.model.tool_tokens import tool_tokens
    from aworld_train.rollout.tool_selection import ToolSelection

    servers = recipe.env.servers or [name for name in health["servers"] if name not in health["broken"]]
    selection = ToolSelection.read(asdict(recipe.agent.tools))
    costs = tool_tokens(
        model, environment.url, environment.token, servers, recipe.env.ready_timeout, selection
    )
    by_server = ", ".join(f"{server} {cost['tokens']}" for server, cost in costs.items() if cost["tools"])
    return f"Tokens of the tools in every prompt, by server: {by_server}."


@app.command("list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the recipes that ship with aworld-train, by what they run on; benchmarks and bases come last.

    Examples:
        aworld-train recipe list
        aworld-train recipe list --json
    """
    from aworld_train import recipe as recipes

    rows = [
        {"name": name, "kind": _kind(name, file), "purpose": _purpose(file), "path": str(file)}
        for name, file in recipes.shipped().items()
    ]
    if as_json:
        print_json({"recipes": rows})
        return
    width = max((len(row["name"]) for row in rows), default=0)
    indent = " " * (width + 4)
    columns = max(out.width, 2 * width) if out.is_terminal else sys.maxsize
    blocks = []
    for kind, title in _KINDS.items():
        lines = [
            fill(f"  {row['name']:<{width}}  {row['purpose']}".rstrip(), columns, subsequent_indent=indent)
            for row in rows
            if row["kind"] == kind
        ]
        if lines:
            blocks.append("\n".join([f"{title}:", *lines]))
    print_line("\n\n".join(blocks))


@app.command("init")
def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The file to write; its name becomes the run's.")
    ] = Path("recipe.yaml"),
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="RECIPE",
            help="The recipe that the new one extends.",
            autocompletion=complete_recipe,
        ),
    ] = "quickstart",
    as_json: JsonOption = False,
) -> None:
    """Write a starting recipe: it extends a ready one, with comments on the keys that are changed first.

    A recipe that exists is never replaced. The JSON Schema that its first line names is written beside it, for editors
    with a YAML language server.

    Examples:
        aworld-train recipe init my-run.yaml
        aworld-train recipe init my-run.yaml --from gsm8k-qwen2.5-1.5b-1gpu
    """
    from aworld_train import recipe as recipes

    target = file if file.suffix in (".yaml", ".yml") else file.with_name(f"{file.name}.yaml")
    recipes.write_starting_recipe(start, target)
    if as_json:
        print_json({"path": str(target), "name": target.stem, "extends": start})
    else:
        print_line(f"{target}: check it with `aworld-train recipe check {target}`")


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of recipes, for editors that complete and check YAML."""
    from aworld_train import recipe as recipes

    print_json(recipes.json_schema())


_KINDS = {
    "cpu": "Without a GPU",
    "gpu": "One GPU",
    "gpus": "Several GPUs",
    "multinode": "Several machines",
    "benchmark": "Benchmarks, to evaluate with",
    "base": "Bases, to extend",
}


def _kind(name: str, file: Path) -> str:
    from aworld_train import recipe as recipes
    from aworld_train.recipe.device import on_cpu

    if recipes.is_base(name):
        return "base"
    if recipes.is_benchmark(name):
        return "benchmark"
    loaded = recipes.load(file)
    if loaded.cluster.nodes > 1:
        return "multinode"
    if on_cpu(loaded):
        return "cpu"
    return "gpus" if loaded.cluster.gpus_per_node > 1 else "gpu"


def _show_differences(source: str, overrides: list[str], as_json: bool) -> None:
    from aworld_train import recipe as recipes
    from aworld_train.recipe.locate import display

    loaded = recipes.read(source, overrides)
    shown = recipes.masked(loaded.unresolved)
    parent = recipes.parent_of(loaded.path) if loaded.path else None
    compared = {"the defaults": recipes.to_source(recipes.Recipe())}
    if parent is not None:
        compared = {display(parent): recipes.masked(recipes.read(parent).unresolved), **compared}
    differences = {name: recipes.changes(other, shown) for name, other in compared.items()}
    if as_json:
        print_json(
            {
                "name": loaded.recipe.name,
                "differences": [
                    {
                        "from": name,
                        "keys": {key: {"from": old, "to": new} for key, (old, new) in rows.items()},
                    }
                    for name, rows in differences.items()
                ],
            }
        )
        return
    for name, rows in differences.items():
        print_line(f"Other than {name}:")
        for key, values in rows.items():
            old, new = (json.dumps(value, ensure_ascii=False) for value in values)
            print_line(f"  {key}: {new}  (there {old})")


def _framework_remarks(loaded: "Recipe", online: bool) -> list[str]:
    from aworld_train.adapter.base import find
    from aworld_train.model.turns import try_turns
    from aworld_train.training.disk_need import disk_need, parameters_here

    framework = find(loaded.trainer.framework)
    options = framework.template_options(_composed(loaded))
    remarks = []
    plan = framework.memory_plan(loaded, 0)
    if plan is None and online:
        from aworld_train.doctor import Machine, Needs
        from aworld_train.doctor.gpu import plan_of

        plan = plan_of(Machine(), Needs(loaded, online=True))
    if plan:
        remarks.append(
            f"Each GPU holds {plan.total(plan.fullest) / 1e9:.0f} GB at most, by estimate ({plan.fullest}), and "
            f"{plan.total('sample') / 1e9:.0f} beside the engine's share of {loaded.rollout.gpu_memory:.0%} while it "
            "samples."
        )
    need = disk_need(loaded, plan.parameters if plan else parameters_here(loaded.model.location))
    turns = try_turns(loaded.model.location, options)
    return [*remarks, *filter(None, (need.sentence, turns))]


def _check_code(loaded: "Recipe") -> None:
    """Check that the code of answers is confined, as far as that can be known without starting anything."""
    from aworld_train.recipe.reward_settings import reward_settings
    from aworld_train.recipe.schema import EnvBackend
    from aworld_train.reward.code_tests import check_code_tests, check_code_tests_here
    from aworld_train.training.environment import find_environment

    try:
        if loaded.env.started_from is None:
            environment = find_environment(loaded)
            settings = reward_settings(loaded).tools
            check_code_tests(settings, loaded.env.ready_timeout, environment.url, environment.token)
        elif loaded.env.backend is EnvBackend.process:
            check_code_tests_here()
    except EnvironmentFailure as error:  # it may not run yet
        note(f"whether the code of answers is confined was not checked: {error.message}")


def _composed(loaded: Any) -> dict[str, Any]:
    from aworld_train.adapter.base import framework_of

    return framework_of(loaded).composed(loaded, Path("runs") / loaded.name)


def _purpose(file: Path) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _print_yaml(text: str) -> None:
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.syntax import Syntax

    out.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
