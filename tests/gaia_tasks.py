"""Seven tasks in GAIA's form, and an agent that solves them by a script: its answers are in tools' results alone.

The agent asks its model one thing, so that there are tokens to record, and takes no notice of the answer.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aworld_train.agent import AgentTask, EpisodeContext
from tests.outside_agents import Chat, Toolbox


@dataclass(frozen=True)
class GaiaTask:
    """A task, and how it is solved.

    Attributes:
        question: As the snapshot has it.
        answer: As the snapshot has it.
        calls: Tools and their arguments, in which ``{file}`` is the attachment's path.
        found: The answer in the last result: the pattern's groups, in order.
        file: The attachment's name.
        reward: What the answer is worth.
    """

    question: str
    answer: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    found: str
    file: str = ""
    level: int = 1
    reward: float = 1.0


_SHEET = (
    "import pandas as pd\n"
    "rows = pd.read_excel('{file}')\n"
    "print('sum', rows.groupby(['city', 'year'])['sold'].sum()[('Oslo', 2023)])"
)
_PRICES = (
    "import pandas as pd\n"
    "from pathlib import Path\n"
    "rows = pd.read_csv(next(Path().rglob('list.csv')))\n"
    "print('sum', f\"{{(rows.price * rows['count']).sum():,.2f}}\")"
)
_ROOTS = "import sympy as s\nx = s.symbols('x')\nprint('root', max(s.solve(x**3 - 6*x**2 + 11*x - 6)))"

TASKS = (
    GaiaTask(
        "How many tons of fish were sold in Oslo in 2023?",
        "42",
        (("run_python_code", {"code": _SHEET}),),
        r"sum (\S+)",
        "a1-sheet.xlsx",
    ),
    GaiaTask(
        "On which day does the ferry depart? Answer with day and month.",
        "4 May",
        (("extract_pptx_content", {"file_path": "{file}"}),),
        r"departs on (\d+ \w+)",
        "b2-slides.pptx",
        level=2,
    ),
    GaiaTask(
        "What is everything on the price list in the archive worth, in dollars?",
        "1234.50",
        (
            ("extract_archive", {"file_path": "{file}"}),
            ("run_python_code", {"code": _PRICES}),
        ),
        r"sum (\S+)",
        "c3-archive.zip",
        level=3,
    ),
    GaiaTask(
        "Which trees are on the list, in the list's order, separated by commas?",
        "birch, alder, cedar",
        (("extract_docx_content", {"file_path": "{file}"}),),
        r"(?s)(Birch).*(Alder).*(Cedar)",
        "d4-letter.docx",
    ),
    GaiaTask(
        "What is the final numeric output of the attached program?",
        "16",
        (("execute_command", {"command": "python3 '{file}'"}),),
        r"```\n(\d+)\n```",
        "e5-program.py",
    ),
    GaiaTask(
        "What is the largest root of x^3 - 6x^2 + 11x - 6?",
        "3",
        (("run_python_code", {"code": _ROOTS}),),
        r"root (\d+)",
    ),
    GaiaTask(
        "Which colour has the gate?",
        "green",
        (("extract_text_content", {"file_path": "{file}"}),),
        r"is (\w+)\.",
        "g7-note.txt",
        reward=0.0,
    ),
)


def task_of(prompt: str) -> GaiaTask:
    """The task whose question a prompt has."""
    (found,) = (task for task in TASKS if task.question in prompt)
    return found


def filled(task: GaiaTask, prompt: str) -> list[tuple[str, dict[str, Any]]]:
    """The task's calls, with the path that the prompt names for the attachment."""
    path = re.search(rf"^(/\S*{re.escape(task.file)})$", prompt, re.MULTILINE) if task.file else None
    assert path or not task.file, f"the prompt names no {task.file}: {prompt}"
    return [
        (tool, {name: text.format(file=path[1] if path else "") for name, text in arguments.items()})
        for tool, arguments in task.calls
    ]


def answer(task: GaiaTask, result: str) -> str:
    """The final answer, as the prompt wants it; what the result is if the answer is not in it."""
    found = re.search(task.found, result)
    return f"<answer>{', '.join(found.groups())}</answer>" if found else f"nothing in: {result}"


def agent(context: EpisodeContext) -> Callable[[AgentTask], Awaitable[str]]:
    """The agent of an episode."""

    async def solve(task: AgentTask) -> str:
        chat = Chat(context)
        chat.messages = [{"role": "user", "content": "1+1"}]
        await chat.ask([], max_tokens=4)
        found, result = task_of(task.text), ""
        async with Toolbox(context) as tools:
            for tool, arguments in filled(found, task.text):
                result = await tools.call(tool, json.dumps(arguments))
        return answer(found, result)

    return solve
