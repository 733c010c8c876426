"""The program of ``agent.command``: which environment variables a run sets for it, and whether it can start.

It can if it is there, and what it imports first can be found. Nothing of it is run: its own interpreter reads the
imports at the top level of a Python program and of modules beside it, and looks for each. Imports in functions,
conditions and ``try`` may be optional and are not looked at, and neither is a program that changes where Python looks.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import which

from aworld_train.recipe.env_text import EnvText, shown

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_VALUELESS_OPTIONS = re.compile(r"-[bBdEiIOPqsSuvx]+")
_SECONDS = 30.0
"""For the interpreter to start and to look, on a busy machine or a slow file system."""

# Run by the program's interpreter, which may be another Python than this one.
_LOOK = """
import ast, importlib.util, json, os, sys
kind, name = sys.argv[1:]
def spec_of(module):
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
found = {"file": name}
if kind == "module":
    sys.path[0] = os.getcwd()
    first, *rest = name.split(".")
    spec = spec_of(first)
    places = spec.submodule_search_locations if spec and rest else None
    paths = [os.path.join(place, *rest) + ".py" for place in places or []]
    found["file"] = spec and (next(filter(os.path.isfile, paths), None) if rest else spec.origin)
    if spec is None:
        found["missing"] = name
else:
    sys.path[0] = os.path.dirname(os.path.abspath(name))
waiting = [found["file"]] if found["file"] and found["file"].endswith(".py") else []
for file in waiting:
    try:
        with open(file, "rb") as opened:
            source = opened.read()
        tree = ast.parse(source, file)
    except (SyntaxError, ValueError, OSError) as error:
        found = {"file": file, "line": getattr(error, "lineno", 1)}
        found["error"] = str(getattr(error, "msg", error))
        break
    if any(word in source for word in (b"sys.path", b"sys.modules", b"meta_path", b"addsitedir", b"from sys import")):
        found = {"file": file}
        break
    imports = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imports.append((node.module, node.lineno))
    for module, line in imports:
        spec = spec_of(module.partition(".")[0])
        if spec is None:
            if "missing" not in found:
                found = {"file": file, "line": line, "missing": module}
            continue
        own = spec.origin and os.path.dirname(spec.origin) == sys.path[0] and spec.origin.endswith(".py")
        if own and spec.origin not in waiting:
            waiting.append(spec.origin)
print(json.dumps(found))
"""

Look = Callable[[Sequence[str]], str]

PROVIDED = {
    *("OPENAI_API_BASE", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
    *("LLM_API_KEY", "LLM_BASE_URL", "LLM_MODEL_NAME", "LLM_PROVIDER"),
    *("MCP_SERVERS", "MCP_SERVER_TOKEN", "MCP_SERVER_URL"),
    *("AGENT_FOLDER", "AWORLD_LOG_PATH", "NO_PROXY", "TMPDIR", "no_proxy"),
}
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRAINING = {
    *("AUTOSCALER_METRIC_PORT", "CUDA_VISIBLE_DEVICES", "DASHBOARD_METRIC_PORT", "HF_HUB_OFFLINE", "HOME"),
    *("LD_PRELOAD", "MASTER_ADDR", "MASTER_PORT", "PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "RANK", "TMPDIR"),
    *("TOKENIZERS_PARALLELISM", "WORLD_SIZE"),
}
_TRAINING_PREFIXES = ("AWORLD_TRAIN_", "MCP_SERVER_", "RAY_", "VERL_")


def executable(command: Sequence[str]) -> str:
    """The program that ``agent.command`` starts; ``python`` stands for the current interpreter."""
    return sys.executable if command[0] in ("python", "python3") else command[0]


def command_fault(
    command: Sequence[str], folder: Path | None = None, path: str | None = None, look: Look | None = None
) -> tuple[str, str] | None:
    """What keeps the program of ``agent.command`` from starting, and what to do; None where nothing is seen.

    It is named from ``folder`` and looked up in ``path``, a ``PATH``; ``look`` runs its interpreter.
    """
    folder, program = folder or Path.cwd(), executable(command)
    if which(program, path=path) is None:
        return (
            f"{shown(program)!r} is not a program that can be run.",
            "Install it, or correct agent.command.",
        )
    if program != sys.executable and not _PYTHON.fullmatch(Path(program).name):
        return None
    kind, name = _python_program(command[1:])
    if kind == "script" and not (folder / name).is_file():
        return (
            f"No such file: {shown(name)!r} in {folder}.",
            "Correct agent.command, or start from another folder.",
        )
    # A name from the environment may be a secret, and every user of the machine can read a command line.
    if not kind or isinstance(name, EnvText):
        return None
    try:
        answer = json.loads((look or look_in(folder))([program, "-c", _LOOK, kind, name]))
    except subprocess.CalledProcessError as error:
        return f"{program} ends with code {error.returncode} at its start.", "Name another interpreter."
    except subprocess.TimeoutExpired:
        return f"{program} did not start within {_SECONDS:.0f} s.", "Name another interpreter."
    except (OSError, ValueError) as error:
        return f"{program} cannot be used as Python: {error}.", "Name another interpreter."
    where = f"{answer['file']}, line {answer.get('line')}"
    if "error" in answer:
        return f"{where}: {answer['error']}.", "Correct the program."
    if "missing" not in answer:
        return None
    what = f"{where} imports {answer['missing']!r}, which {program} does not find."
    return (
        what if "line" in answer else f"{program} does not find the module {name!r}.",
        f"Install the package that has it ({program} -m pip install ...), or name an interpreter that has it.",
    )


def look_in(folder: Path, variables: Mapping[str, str] | None = None) -> Look:
    def look(command: Sequence[str]) -> str:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        ).stdout

    return look


def _python_program(arguments: Sequence[str]) -> tuple[str, str]:
    for position, argument in enumerate(arguments):
        if argument == "-m" and position + 1 < len(arguments):
            return "module", arguments[position + 1]
        if not argument.startswith("-"):
            return ("script", argument) if argument.endswith(".py") else ("", "")
        if not _VALUELESS_OPTIONS.fullmatch(argument):
            break
    return "", ""


def set_by_run(name: str) -> bool:
    """Whether a run sets this variable for its training processes, or depends on how it is set."""
    return name in _TRAINING or name.startswith(_TRAINING_PREFIXES)
