"""``code_tests``: whether the answer, a piece of Python, passes the tests of its row.

Both run in the tool environment, never in this process: each answer in a session of its own, on workers that are
reserved for scoring and that no agent uses. The ground truth is JSON: ``{"tests": "assert add(1, 2) == 3", "timeout":
5}``. The tests may use all names that the answer defines, but names of Python's built-in functions only through
``solution`` (``solution.sum``). They get plain values; an object of a class in the answer can be used by its methods,
and is equal only to itself. Tests must import their own tools, such as ``isclose``: otherwise the answer could define
them.

The answer's code cannot fake the verdict by what it prints, by how it exits, or by what it returns (`sandbox`). It can
where it may change the environment's interpreter or libraries, or, on a kernel without Landlock, read the memory of
another process. Code that hangs or ends the tests scores 0; code that destroys its environment, where it is allowed to,
has no score.
"""

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from aworld_train.reward.sandbox import BEGUN, read_signed
from aworld_train.reward.scored import Score, ScoringContext
from aworld_train.reward.settings import ToolSettings

_SECONDS = 10.0
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CodeTests:
    """A row's tests.

    Attributes:
        tests: Python that raises where the answer is wrong.
        seconds: How long the answer's code and the tests may take together.
    """

    tests: str
    seconds: float


async def code_tests(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """1 if all tests pass, 0 if one does not; None where they cannot be run."""
    tests = read_tests(ground_truth)
    if isinstance(tests, str):
        return Score(None, steps=(tests,))
    tools = context.settings.tools
    url, token = _address(tools)
    if not url:
        cause = "there is no tool environment to run the tests in: MCP_SERVER_URL is not set"
        return Score(None, steps=(cause,))
    # The verdict must arrive within the score's own time limit, so that code which hangs is wrong and not undecided.
    seconds = min(tests.seconds, context.settings.timeout / 2)
    key = secrets.token_hex(32)
    source = Path(__file__).with_name("sandbox.py").read_text("utf-8")
    arguments = f"{tests.tests!r}, {without_fence(answer)!r}, {seconds!r}"
    program = f"SOURCE = {source!r}\nexec(SOURCE)\njudge({key!r}, {arguments}, SOURCE)\n"
    output, failure = await _run(program, tools, url, token, context.settings.timeout)
    return read_verdict(output, key, failure)


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
