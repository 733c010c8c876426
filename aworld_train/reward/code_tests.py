"""``code_tests``: whether the answer, a piece of Python, passes the tests of its row.

Both run in the tool environment, never in this process: each answer in a session of its own, on workers that are
reserved for scoring and that no agent uses. The ground truth is JSON: ``{"tests": "assert add(1, 2) == 3", "timeout":
5}``. The tests may use all names that the answer defines, but names of Python's built-in functions only through
``solution`` (``solution.sum``). They get plain values; an object of a class in the answer can be used by its methods,
and is equal only to itself. Tests must import their own tools, such as ``isclose``: otherwise the answer could define
them.

The answer's code cannot fake the verdict by what it prints, by how it exits, or by what it returns (`sandbox`). It can
where it may change the environment's interpreter or libraries. Code that hangs or ends the tests scores 0; code that
destroys its environment, where it is allowed to, has no score.

A kernel without Landlock cannot keep the answer's code from reading the memory of another process. There no answer is
run, and a run that would need it is refused before it begins (`check_code_tests`).
"""

import asyncio
import json
import re
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aworld_train.errors import EnvironmentFailure, RewardError
from aworld_train.reward.sandbox import BEGUN, UNCONFINED, read_signed
from aworld_train.reward.scored import Score, ScoringContext
from aworld_train.reward.settings import ToolSettings

_SECONDS = 10.0
_HERE_SECONDS = 60.0
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_NO_ENVIRONMENT = "there is no tool environment to run the tests in: MCP_SERVER_URL is not set"
_ATTACKER = """
import os

def processes_that_can_be_read():
    found = []
    for folder in os.listdir("/proc"):
        if folder.isdigit() and int(folder) != os.getpid():
            try:
                open(f"/proc/{folder}/mem", "rb").close()
                found.append(folder)
            except OSError:
                pass
    return found
"""


@dataclass(frozen=True)
class CodeTests:
    """A row's tests.

    Attributes:
        tests: Python that raises where the answer is wrong.
        seconds: How long the answer's code and the tests may take together.
    """

    tests: str
    seconds: float


_ATTACK = CodeTests(
    f"assert processes_that_can_be_read() == [], {UNCONFINED + ': it can read other processes'!r}", _SECONDS
)


async def code_tests(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """1 if all tests pass, 0 if one does not; None where they cannot be run."""
    tests = read_tests(ground_truth)
    if isinstance(tests, str):
        return Score(None, steps=(tests,))
    tools = context.settings.tools
    url, token = _address(tools)
    if not url:
        return Score(None, steps=(_NO_ENVIRONMENT,))
    # The verdict must arrive within the score's own time limit, so that code which hangs is wrong and not undecided.
    seconds = min(tests.seconds, context.settings.timeout / 2)
    return await _verdict(
        CodeTests(tests.tests, seconds), without_fence(answer), tools, url, token, context.settings.timeout
    )


def check_code_tests(tools: ToolSettings, seconds: float, url: str = "", token: str = "") -> None:
    """Run a test in a worker for scoring, in which the answer tries to read the memory of other processes.

    May be called from any thread, whether or not an event loop runs in it.

    Args:
        tools: The tool that runs code.
        seconds: For all of it.
        url: The environment's endpoint; empty: the one that scores will use.
        token: Its token.

    Raises:
        EnvironmentFailure: No worker runs code.
        RewardError: The kernel does not confine it.
    """
    if not url:
        url, token = _address(tools)
    if not url:
        raise EnvironmentFailure(f"The scorer code_tests cannot be used: {_NO_ENVIRONMENT}.")
    with ThreadPoolExecutor(max_workers=1) as thread:
        score = thread.submit(asyncio.run, _verdict(_ATTACK, _ATTACKER, tools, url, token, seconds)).result()
    _require_passed(score, f"with the tools at {url}")


def check_code_tests_here() -> None:
    """The same test in a process of this machine, whose kernel the workers of the backend ``process`` will have.

    Raises:
        EnvironmentFailure: The test could not be run.
        RewardError: The kernel does not confine the answer's code.
    """
    key, source = program(_ATTACK, _ATTACKER)
    try:
        with tempfile.TemporaryDirectory(prefix="aworld-code-") as folder:
            file = Path(folder, "program.py")
            file.write_text(source, "utf-8")
            command = [sys.executable, "-B", str(file)]
            ran = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_HERE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            f"The scorer code_tests cannot be tested on this machine: {error}."
        ) from error
    _require_passed(read_verdict(ran.stdout, key, ""), "on this machine")


def _require_passed(score: Score, place: str) -> None:
    if score.value == 1.0:
        return
    reason = score.steps[-1]
    if UNCONFINED not in reason:
        raise EnvironmentFailure(f"The scorer code_tests cannot be used {place}: {reason}.")
    raise RewardError(
        f"The scorer code_tests cannot be used {place}: {reason}. Code that can read other processes could read the "
        "key of its verdict and give itself any score, so nothing was played or scored. Start the environment where "
        "the kernel has Landlock: Linux 5.13 or later with landlock in /sys/kernel/security/lsm, and not gVisor "
        "(env.runtime). Or name another scorer (reward.scorer)."
    )


def read_tests(ground_truth: str) -> CodeTests | str:
    """The tests in a ground truth, or why there are none."""
    try:
        data = json.loads(ground_truth)
    except ValueError as error:
        return f"the ground truth is no JSON: {error}"
    if not isinstance(data, dict) or not isinstance(data.get("tests"), str) or not data["tests"].strip():
        return 'the ground truth is not of the form {"tests": "assert ..."}'
    seconds = data.get("timeout", _SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 86400:
        return f"the ground truth's timeout, {seconds!r}, is no number of seconds"
    return CodeTests(data["tests"], float(seconds))


def without_fence(answer: str) -> str:
    """The code in the last fenced block; the whole answer where there is none."""
    blocks = _FENCE.findall(answer)
    return str(blocks[-1][1]) if blocks else answer


def read_verdict(output: str, key: str, failure: str) -> Score:
    """The score from the environment's output, of which only lines signed with the key count."""
    texts = [text for line in output.splitlines() if (text := read_signed(key, line)) is not None]
    verdicts = [text for text in texts if text != BEGUN]
    if not verdicts and texts:
        return Score(0.0, steps=("the answer's code ended the tests before there was a verdict",))
    if not verdicts:
        return Score(None, steps=(failure or f"the tool did not run the tests; it said {output[:200]!r}",))
    kind, _, reason = (part.strip() for part in verdicts[-1].partition(":"))
    if kind == "unusable":
        return Score(None, steps=(reason,))
    if kind == "passed":
        return Score(1.0, steps=("all tests passed",))
    return Score(0.0, steps=(f"a test failed: {reason}",))


async def _verdict(
    tests: CodeTests, code: str, tools: ToolSettings, url: str, token: str, seconds: float
) -> Score:
    """The score of a program by its tests, in a worker for scoring."""
    key, source = program(tests, code)
    output, failure = await _run(source, tools, url, token, seconds)
    return read_verdict(output, key, failure)


def program(tests: CodeTests, code: str) -> tuple[str, str]:
    """The key of one score, and the Python that runs the tests and prints a verdict signed with it."""
    key = secrets.token_hex(32)
    source = Path(__file__).with_name("sandbox.py").read_text("utf-8")
    arguments = f"{tests.tests!r}, {code!r}, {tests.seconds!r}"
    return key, f"SOURCE = {source!r}\nexec(SOURCE)\njudge({key!r}, {arguments}, SOURCE)\n"


def _address(tools: ToolSettings) -> tuple[str, str]:
    """The environment's endpoint, empty where there is none, and its token."""
    from aworld_train.env.connection import connection_settings

    connection = connection_settings()
    return tools.url or connection.get("MCP_SERVER_URL", ""), connection.get("MCP_SERVER_TOKEN", "")


async def _run(program: str, tools: ToolSettings, url: str, token: str, seconds: float) -> tuple[str, str]:
    """The tool's output, and what went wrong with the environment, if anything."""
    from aworld_train.env.connection import SCORING, SERVER_KEY, mcp_servers_config
    from aworld_train.rollout.outcome import EnvironmentLost
    from aworld_train.rollout.tools import ToolServer, ToolSession

    headers = mcp_servers_config(url, token, tools.servers)["mcpServers"][SERVER_KEY]["headers"] | SCORING
    try:
        async with ToolSession(ToolServer(url, headers, seconds, seconds)) as session:
            return (await session.call(tools.tool, {tools.argument: program})).text, ""
    except EnvironmentLost as error:
        return "", f"the tool environment was lost: {error}"
