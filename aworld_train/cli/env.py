"""``aworld-train env``: start a tool environment, show what is up, print its connection, test it, stop it."""

import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from aworld_train.cli import console
from aworld_train.cli.arguments import JsonOption
from aworld_train.errors import EnvironmentFailure, UsageError, suggestion

if TYPE_CHECKING:
    from aworld_train.env import EnvStatus
    from aworld_train.env.backend import ProgressReporter
    from aworld_train.env.record import Record

app = typer.Typer(no_args_is_help=True, help="Start and stop tool environments.")

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="Name it was started under; needed where several are up.", show_default=False
    ),
]
_DOCKER_DIR = typer.Option(
    "--docker-dir",
    metavar="NAME|PATH",
    help="Environment directory: a name that `env list` shows, or a path.",
    show_default=False,
)
PullOption = Annotated[bool, typer.Option("--pull", help="Look for a newer base image.")]
RebuildOption = Annotated[bool, typer.Option("--rebuild", help="Build the image from nothing.")]
_COLOURS = {"up": "green", "starting": "yellow", "elsewhere": "yellow"}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command("up")
def up_command(
    docker_dir: Annotated[str | None, _DOCKER_DIR] = None,
    mcp_servers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead: the JSON file with `mcpServers` of a desktop client; ${NAME} in it is a variable of yours.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help=r"Name to find it again by. \[default: the directory's]")
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="auto|docker|process",
            help="How it is run; auto is docker, or process where no engine answers and no server executes code.",
        ),
    ] = "auto",
    workers: Annotated[
        int | None, typer.Option(help=r"How many sessions at a time. \[default: as many as cores, 4 at most]")
    ] = None,
    egress: Annotated[
        str | None,
        typer.Option(
            metavar="none|listed|open",
            help=r"The most that tools may reach (docker). \[default: what each server's entry says]",
        ),
    ] = None,
    egress_hosts: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Hosts that tools with egress may also reach, even private: pypi.org, .example.org, 10.0.0.7:8000.",
        ),
    ] = "",
    scoring_workers: Annotated[
        int,
        typer.Option(
            help="How many more run the code of answers for the scorer code_tests, and serve no agent."
        ),
    ] = 0,
    servers: Annotated[
        str, typer.Option(metavar="A,B", help="Which tool servers; all that have their keys if not given.")
    ] = "",
    env_file: Annotated[
        Path | None, typer.Option(help="File with the API keys that tool servers need.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the files of a benchmark's tasks, which tools can read at /attachments (docker) or "
            "where the variable ATTACHMENTS says.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any that is free.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    cpus: Annotated[float, typer.Option(help="Cores that one worker may use (docker).")] = 2.0,
    memory: Annotated[str, typer.Option(help="Memory that one worker may use (docker).")] = "4g",
    ttl: Annotated[str, typer.Option(help="How long the token is valid: 30d, 12h, 90m.")] = "30d",
    runtime: Annotated[
        str, typer.Option(help=r"The engine's runtime for workers, such as runsc. \[default: its own]")
    ] = "",
    vnc: Annotated[bool, typer.Option("--vnc", help="Give each worker a desktop to look at.")] = False,
    pull: PullOption = False,
    rebuild: RebuildOption = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the start may take, without the build.")
    ] = 300.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print an error as JSON too; the connection always is.")
    ] = False,
) -> None:
    """Start an environment, prove that its tools work, and print its address and token as one JSON object.

    What is up already, and unchanged, is left as it is and printed; what has changed is tried beside it before it is
    stopped. It stays up until `env down`.

    Examples:
      aworld-train env up --docker-dir calculator-mcp-server
      aworld-train env up --docker-dir gaia-mcp-server --workers 8 --env-file .env --data data/gaia/files
      aworld-train env up --mcp-servers claude_desktop_config.json
      aworld-train env up --docker-dir ./my-tools --name tools-2 --host 0.0.0.0 --port 8080
    """
    from aworld_train.env import clean_leftovers, up
    from aworld_train.env.address import is_loopback
    from aworld_train.env.backend import EnvSettings, Size

    if (docker_dir is None) == (mcp_servers is None):
        raise UsageError("Give --docker-dir or --mcp-servers, and only one of them.")
    if cpus <= 0:
        raise UsageError(f"--cpus is {cpus:g}: it has to be more than 0.")
    settings = EnvSettings(
        name=name,
        backend=backend,
        host=host,
        port=port,
        workers=workers,
        servers=_names(servers),
        env_file=env_file,
        data=data,
        size=Size(cpus, _bytes(memory)),
        desktop=vnc,
        egress=egress,
        egress_hosts=_names(egress_hosts),
        scoring_workers=scoring_workers,
        runtime=runtime,
        ttl=_seconds(ttl),
        wait=wait,
        pull=pull,
        rebuild=rebuild,
    )
    clean_leftovers()
    with _progress() as report_progress:
        connection = up(docker_dir or str(mcp_servers), settings, report_progress=report_progress)
    if not is_loopback(host):
        console.note(
            f"Warning: {connection.mcp_url} is open to other machines, and plain HTTP shows the token to whoever is "
            "between: put TLS in front, or use a network that you trust."
        )
    console.note(f"{connection.name} is up at {connection.mcp_url}; its tools answer.")
    console.print_json(connection.to_json())


@app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.", show_default=False)],
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="FILE",
            help="JSON file with `mcpServers`, as desktop clients have it.",
            show_default=False,
        ),
    ],
) -> None:
    """Write an environment directory to keep and change from a desktop client's file of servers.

    Packages that npx and uvx would fetch are locked. Values of `env` and `headers` are not written: they are named.

    Example:
      aworld-train env init my-tools --from claude_desktop_config.json
    """
    from aworld_train.env.client_servers import read_client_servers
    from aworld_train.env.directory import find_directory
    from aworld_train.env.interpreter import lock_packages

    if folder.exists():
        raise UsageError(f"{folder} exists already. Give another folder, or remove it first.")
    servers = read_client_servers(source, folder.name)
    try:
        servers.write(folder)
        directory = find_directory(folder)
        with _progress() as report_progress:
            lock_packages(directory, report_progress)
    except BaseException:  # so that the command can be given again
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for remark in servers.remarks:
        console.note(remark)
    if keys := sorted(directory.manifest.key_names()):
        console.note(f"Give the values of {', '.join(keys)} with --env-file.")
    console.note(f"Start it with `aworld-train env up --docker-dir {folder}`.")


@app.command("build")
def build_command(
    docker_dir: Annotated[str, _DOCKER_DIR],
    servers: Annotated[
        str, typer.Option(metavar="A,B", help="Which tool servers it has to have; all if not given.")
    ] = "",
    pull: PullOption = False,
    rebuild: RebuildOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build an environment's image and start nothing.

    Example:
      aworld-train env build --docker-dir gaia-mcp-server
    """
    from aworld_train.env.containers import build_image
    from aworld_train.env.directory import find_directory
    from aworld_train.env.interpreter import lock_packages
    from aworld_train.env.keys import check_names

    directory, only = find_directory(docker_dir), _names(servers)
    check_names(directory.manifest, only)
    with _progress() as report_progress:
        lock_packages(directory, report_progress, renew=rebuild)
        image = build_image(directory, report_progress, only=only, pull=pull, rebuild=rebuild)
    if as_json:
        console.print_json({"image": image})
    else:
        console.print_line(image)


@app.command("down")
def down_command(
    name: NameArgument = None,
    stop_all: Annotated[bool, typer.Option("--all", help="Stop all of them.")] = False,
    only_orphans: Annotated[
        bool,
        typer.Option("--orphans", help="Remove what a start that was cut off, or a run that is gone, left."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop an environment and everything it started; one that is not up is not an error.

    Examples:
      aworld-train env down calculator-mcp-server
      aworld-train env down --all
      aworld-train env down --orphans
    """
    from aworld_train.env import down, down_orphans, status

    if (name is not None) + stop_all + only_orphans > 1:
        raise UsageError("Give a name, --all or --orphans, and only one of them.")
    stopped: dict[str, bool] = {}
    if stop_all or only_orphans:
        stopped = dict.fromkeys(down_orphans(), True)
    if not only_orphans:
        local_names = [one.name for one in status() if one.state != "elsewhere"]
        stopped |= {one: down(one) for one in (local_names if stop_all else [name or _only_name()])}
    for one, was_running in stopped.items():
        console.note(f"{one} is stopped." if was_running else f"{one} was not running.")
    if not stopped:
        console.note(("No orphans." if only_orphans else "Nothing is up.") + _not_asked())
    if as_json:
        console.print_json({"environments": [{"name": one, "stopped": was} for one, was in stopped.items()]})


@app.command("status")
def status_command(name: NameArgument = None, as_json: JsonOption = False) -> None:
    """Show the environments that were started and not taken down; with a NAME, exit 1 unless that one is up.

    Examples:
      aworld-train env status
      aworld-train env status calculator-mcp-server --json
    """
    from aworld_train.env import status

    environments = status(name)
    if name is not None and not environments:
        raise _unknown(name)
    if as_json:
        console.print_json({"environments": [asdict(one) for one in environments]})
    elif environments:
        _print_status(environments)
    else:
        console.note("Nothing is up. Start one with `aworld-train env up --docker-dir NAME`.")
    if not_asked := _not_asked():
        console.note(not_asked.strip())
    if name is not None and environments[0].state != "up":
        raise typer.Exit(1)


@app.command("test")
def test_command(
    name: NameArgument = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long it may take.")] = 120.0,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Count the tokens of each server's tools; needs --model.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Model whose tokenizer and chat template --tokens counts with."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Open a session, list the tools, make one harmless call of each server, and time all of it.

    Exits with 1 if any of it fails.

    Examples:
      aworld-train env test calculator-mcp-server
      aworld-train env test gaia-mcp-server --tokens --model models/Qwen3-4B
    """
    if tokens != (model is not None):
        raise UsageError(
            "--tokens and --model go together: --tokens counts with the tokenizer of --model DIR."
        )
    from aworld_train.env.directory import find_directory
    from aworld_train.env.health import examine, read_health

    record = _with_gateway(name)
    health = read_health(record.health)
    if health is None:
        raise EnvironmentFailure(f"{record.name!r} does not answer at {record.health}.")
    entries = find_directory(record.directory).manifest.servers
    calls = {server: entries[server].test if server in entries else None for server in health["servers"]}
    check = examine(record.connection.mcp_url, record.connection.token, calls, wait)
    failed = {**health["broken"], **{one.server: one.problem for one in check.servers if one.problem}}
    costs: dict[str, dict[str, int]] = {}
    if model is not None:
        from aworld_train.model.tool_tokens import tool_tokens

        connection, working = record.connection, [name for name in health["servers"] if name not in failed]
        costs = tool_tokens(model, connection.mcp_url, connection.token, working, wait, note=console.note)
    if as_json:
        console.print_json(
            {
                "name": record.name,
                "session_seconds": round(check.opening, 4),
                "list_seconds": round(check.listing, 4),
                "tools": check.tools,
                "servers": [vars(one) for one in check.servers],
                "failed": failed,
                **({"tokens": costs} if tokens else {}),
            }
        )
    else:
        rows = [
            ("open a session", f"{check.opening:.3f}", "fine"),
            ("list the tools", f"{check.listing:.3f}", f"{len(check.tools)} tools"),
        ]
        for one in check.servers:
            called = f"{one.server}: {one.tool}" if one.tool else one.server
            result = one.problem or ("fine" if one.tool else "no test call in its manifest")
            rows.append((called, f"{one.seconds:.3f}" if one.tool else "", result))
        rows += [(server, "", reason) for server, reason in health["broken"].items()]
        console.print_table(("what", "seconds", "result"), rows)
        if costs:
            console.out.print()
            figures = [(server, *map(str, cost.values())) for server, cost in costs.items()]
            totals = [
                str(sum(cost[name] for cost in costs.values())) for name in ("tools", "tokens", "short")
            ]
            console.print_table(
                ("server", "tools", "tokens", "tokens with agent.tools.short_descriptions"),
                [*figures, ("all", *totals)],
            )
    if failed:
        raise typer.Exit(1)


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Show the environment directories that come with aworld-train.

    Example:
      aworld-train env list
    """
    from aworld_train.env.directory import known_directories

    directories = known_directories()
    if as_json:
        rows = [
            {
                "name": one.name,
                "description": one.manifest.description,
                "servers": list(one.manifest.servers),
                "path": str(one.path),
            }
            for one in directories
        ]
        console.print_json({"directories": rows})
        return
    console.print_table(
        ("name", "path", "servers", "description"),
        [
            (one.name, str(one.path), ", ".join(one.manifest.servers), one.manifest.description)
            for one in directories
        ],
        optional=("description", "servers"),
    )


@app.command("logs")
def logs_command(
    name: NameArgument = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines from the end.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with what is written, until Ctrl-C.")
    ] = False,
) -> None:
    """Print the last lines that the environment wrote, also after it died.

    Examples:
      aworld-train env logs calculator-mcp-server --lines 20
      aworld-train env logs -f
    """
    from aworld_train.env.status import log_lines

    for line in log_lines(_record(name), lines, follow):
        sys.stdout.write(console.visible(line) + "\n")
        sys.stdout.flush()


@app.command("config")
def config_command(
    name: NameArgument = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="mcp|dotenv|shell", help="For an MCP client, a .env file, or a shell."
        ),
    ] = "mcp",
) -> None:
    """Print how to reach the environment, token included, in the form its user takes.

    Examples:
      aworld-train env config calculator-mcp-server
      aworld-train env config calculator-mcp-server --format dotenv >> .env
      eval "$(aworld-train env config --format shell)"
    """
    from aworld_train.env.connection import write_config

    sys.stdout.write(write_config(_with_gateway(name).connection, form) + "\n")


@app.command("token")
def token_command(
    name: NameArgument = None,
    ttl: Annotated[str, typer.Option(help="How long it is valid: 30d, 12h, 90m.")] = "1d",
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Most sessions that it may have, open or waiting, at a time.")
    ] = None,
    revoke: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN_OR_ID",
            help="Make none: end the sessions of this token now, and refuse it from now on; - reads it from stdin.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make another token for an environment that is up, with a time and a number of sessions of its own; or revoke one.

    Examples:
      aworld-train env token gaia-mcp-server --ttl 12h --sessions 4 --json
      aworld-train env token gaia-mcp-server --revoke 8f14e45fceea167a
    """
    if revoke is not None:
        _revoke(_with_gateway(name), sys.stdin.readline().strip() if revoke == "-" else revoke, as_json)
        return
    expires = int(time.time() + _seconds(ttl))
    token_id = secrets.token_hex(8)
    token = _with_gateway(name).token(expires, sessions, token_id)
    if as_json:
        console.print_json({"token": token, "id": token_id, "expires": expires, "sessions": sessions})
    else:
        sys.stdout.write(token + "\n")


def _revoke(record: "Record", token: str, as_json: bool) -> None:
    from aworld_train.env.revocation import revoke

    token_id, sessions, is_stored = revoke(record, token)
    if not is_stored:
        console.note(
            "Warning: the gateway could not write it down; revoke it again if the gateway is restarted."
        )
    console.note(f"Token {token_id} of {record.name} is revoked; {sessions} of its sessions were ended.")
    if as_json:
        console.print_json({"revoked": token_id, "sessions": sessions, "kept": is_stored})


@contextmanager
def _progress() -> "Iterator[ProgressReporter]":
    if not console.err.is_terminal:
        yield console.note
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from aworld_train.env.backend import Remark

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console.err, transient=True) as progress:
        task = progress.add_task("Looking at what is there.", total=None)

        def report_progress(line: str) -> None:
            if isinstance(line, Remark):
                console.note(line)
            else:
                progress.update(task, description=line)

        yield report_progress


def _record(name: str | None) -> "Record":
    from aworld_train.env import find

    chosen_name = name or _only_name()
    record = find(chosen_name)
    if record is None:
        raise _unknown(chosen_name)
    return record


def _with_gateway(name: str | None) -> "Record":
    record = _record(name)
    if not record.credentials.secret:
        raise EnvironmentFailure(
            f"The gateway of {record.name!r} was removed, and its token with it. `aworld-train env up` with its "
            f"settings starts it anew; `aworld-train env down {record.name}` removes the rest."
        )
    return record


def _only_name() -> str:
    from aworld_train.env.status import names

    names_up = names()
    if len(names_up) == 1:
        return names_up[0]
    if not names_up:
        raise EnvironmentFailure(
            "No environment is up. Start one with `aworld-train env up --docker-dir NAME`; `aworld-train env "
            f"list` shows the names.{_not_asked()}"
        )
    raise UsageError(f"Several environments are up; say which one: {', '.join(names_up)}.")


def _unknown(name: str) -> EnvironmentFailure:
    from aworld_train.env.status import names

    names_up = names()
    listed = f"Up: {', '.join(names_up)}." if names_up else "Nothing is up."
    return EnvironmentFailure(
        f"No environment {name!r} is up.{suggestion(name, names_up)} {listed}{_not_asked()}"
    )


def _not_asked() -> str:
    """A sentence, after a space, that environments in containers are not known; empty where an engine answers."""
    from aworld_train.env.containers import engine_answers, engine_host

    if engine_answers():
        return ""
    return (
        f" No Docker engine answers at {engine_host()}: whether something is up in containers is not known."
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)b?", text.strip().lower())
    if not match or float(match[1]) == 0:
        raise UsageError(f"{text!r} is not an amount of memory: write 512m or 4g.")
    return int(float(match[1]) * _UNITS[match[2]])


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", text.strip().lower())
    if not match or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a span of time: write 30d, 12h, 90m or 600s.")
    return int(match[1]) * _SPANS[match[2]]


def _print_status(environments: "list[EnvStatus]") -> None:
    rows = []
    for one in environments:
        state = Text(one.state, _COLOURS.get(one.state, "red"))
        if one.state == "elsewhere":
            state.append(f" ({one.machine})", "default")
        if one.missing:
            state.append(f" ({', '.join(one.missing)} missing)", "default")
        queued = f" (+{one.queued})" if one.queued else ""
        rows.append(
            (
                one.name,
                state,
                one.mcp_url,
                one.backend,
                ", ".join(f"{count} {state}" for state, count in one.workers.items() if count),
                "" if one.sessions is None else f"{one.sessions}{queued}",
                one.started_at[:16].replace("T", " "),
                str(one.refused or ""),
                one.data or "",
            )
        )
    console.print_table(
        ["name", "state", "url", "backend", "workers", "sessions", "since (UTC)", "requests refused", "data"],
        rows,
        optional=("since (UTC)", "backend", "workers", "sessions"),
    )
