"""``code_tests``: whether the answer, a piece of Python, passes the tests of its row.

Both run in the tool environment, each answer in a session of its own, on workers that are reserved for scoring. The
ground truth is JSON: ``{"tests": "assert add(1, 2) == 3", "timeout": 5}``. The tests may use all names that the answer
defines, but names of Python's built-in functions only through ``solution`` (``solution.sum``). They get plain values;
an object of a class in the answer can be used by its methods, and is equal only to itself. Tests must import their own
tools, such as ``isclose``: otherwise the answer could define them. At least one of their assertions must run, and each
that every run reaches, a loop's body included.

The answer's code cannot fake the verdict (`sandbox`). Once it has begun, anything but a verdict is 0. Where the
environment gives nothing signed, another program is run there. If that fails too, there is no score; if it does not,
the answer is run once more, and scores 0 if that has no verdict either.

No boundary can decide whether the tests are good: ``assert f(x) != 3``, ``3 in f(x)`` where an object of the answer
says what is in it, a ``zip`` that ends with the answer's list, or a test that swallows its own AssertionError can be
satisfied by a wrong answer.

A kernel without Landlock cannot keep the answer's code from reading the memory of another process. There no answer is
run, and a run that would need it is refused before it begins (`check_code_tests`).
"""

import asyncio
import json
import os
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
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.settings import ToolSettings

_SECONDS = 10.0
_HERE_SECONDS = 60.0
# Beside the tests' own time: two interpreters begin, and what the answer started is ended.
_MIN_OTHER_SECONDS, _MIN_OTHER_SHARE, _MAX_OTHER_SECONDS = 5.0, 1 / 8, 15.0
_MAX_RESERVED, _RESERVED_SHARE = 2.0, 0.1  # of a score's time limit, for ending a session that hangs
_CLOSE_SECONDS = 1.0
_closing: set[asyncio.Task[None]] = set()
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
    tests: str
    seconds: float


_ATTACK = CodeTests(
    f"assert processes_that_can_be_read() == [], {UNCONFINED + ': it can read other processes'!r}", _SECONDS
)


_CONTROL = CodeTests("assert one() == 1", 1.0)
_CONTROL_ANSWER = "def one(): return 1"


async def code_tests(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """1 if all tests pass, 0 if one does not; None where they cannot be run whatever the answer is.

    A score of 0 because the tests do not fit into the sandbox has the part ``tests_unusable``.
    """
    tests = read_tests(ground_truth)
    if isinstance(tests, str):
        return Score(None, steps=(tests,))
    tools = context.settings.tools
    url, token = _address(tools)
    if not url:
        return Score(None, steps=(_NO_ENVIRONMENT,))
    # The verdict must arrive within the score's own time limit, so that code which hangs is wrong and not undecided.
    seconds = min(tests.seconds, context.settings.timeout / 2)
    place = _Place(tools, url, token, context.settings.timeout)
    return await place.score(CodeTests(tests.tests, seconds), without_fence(answer))


def check_code_tests(tools: ToolSettings, seconds: float, url: str = "", token: str = "") -> None:
    """Run a test in a worker for scoring, in which the answer tries to read the memory of other processes.

    May be called from any thread, whether or not an event loop runs in it; by default at the URL that scores use.
    """
    if not url:
        url, token = _address(tools)
    if not url:
        raise EnvironmentFailure(f"The scorer code_tests cannot be used: {_NO_ENVIRONMENT}.")
    with ThreadPoolExecutor(max_workers=1) as thread:
        score = thread.submit(asyncio.run, _attack(tools, url, token, seconds)).result()
    _require_passed(score, f"with the tools at {url}")


def check_code_tests_here() -> None:
    """The same test in a process of this machine, whose kernel the workers of the backend ``process`` will have."""
    key, source = program(_ATTACK, _ATTACKER)
    try:
        with tempfile.TemporaryDirectory(prefix="aworld-code-") as folder:
            file = Path(folder, "program.py")
            file.write_text(source, "utf-8")
            command = [sys.executable, "-B", str(file)]
            ran = subprocess.run(
                command,
                env={**os.environ, "TMPDIR": folder},
                capture_output=True,
                encoding="utf-8",
                timeout=_HERE_SECONDS,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            f"The scorer code_tests cannot be tested on this machine: {error}."
        ) from error
    _require_passed(read_verdict(ran.stdout, key), "on this machine")


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
    try:
        data = json.loads(ground_truth)
    except ValueError as error:
        return f"the ground truth is not valid JSON: {error}"
    if not isinstance(data, dict) or not isinstance(data.get("tests"), str) or not data["tests"].strip():
        return 'the ground truth is not of the form {"tests": "assert ..."}'
    seconds = data.get("timeout", _SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 86400:
        return f"the ground truth's timeout, {seconds!r}, is not a number of seconds"
    return CodeTests(data["tests"], float(seconds))


def without_fence(answer: str) -> str:
    blocks = _FENCE.findall(answer)
    return str(blocks[-1][1]) if blocks else answer


def read_verdict(output: str, key: str, failure: str = "") -> Score:
    """The score from the environment's output, of which only lines signed with the key count."""
    texts = [text for line in output.splitlines() if (text := read_signed(key, line)) is not None]
    verdicts = [text for text in texts if text != BEGUN]
    if not verdicts and texts:
        return Score(0.0, steps=("the answer's code ended the tests before there was a verdict",))
    if not verdicts:
        return Score(None, steps=(failure or f"the tool did not run the tests; it said {output[:200]!r}",))
    kind, _, reason = (part.strip() for part in verdicts[-1].partition(":"))
    if kind == "unusable":
        return (
            Score(0.0, {"tests_unusable": 1.0}, (reason,)) if BEGUN in texts else Score(None, steps=(reason,))
        )
    if kind == "passed":
        return Score(1.0, steps=("all tests passed",))
    return Score(0.0, steps=(f"a test failed: {reason}",))


class _Place:
    """Where tests run, and until when: ``seconds`` from now."""

    def __init__(self, tools: ToolSettings, url: str, token: str, seconds: float):
        self._tools, self._url, self._token, self._seconds = tools, url, token, seconds
        self._now = asyncio.get_running_loop().time
        self._deadline = self._now() + seconds - min(_MAX_RESERVED, seconds * _RESERVED_SHARE)

    async def score(self, tests: CodeTests, code: str) -> Score:
        """The score of an answer; none only where another program, which has nothing to do with it, has none either."""
        first = await self.run(tests, code)
        if first.is_signed or not first.was_sent:
            return first.score
        control = await self.run(_CONTROL, _CONTROL_ANSWER)
        undecided = first.is_late and not control.was_sent
        if control.score.value != 1.0 and not undecided:
            return first.score
        second = await self.run(tests, code)
        if second.is_signed:
            return second.score
        return Score(
            0.0, steps=(*first.score.steps, "the answer's code left no verdict, and another program did")
        )

    async def run(self, tests: CodeTests, code: str) -> "_Execution":
        """Run an answer once, in a session of its own, if there is time for all that its tests may take."""
        from aworld_train.env.connection import SCORING, SERVER_KEY, mcp_servers_config
        from aworld_train.rollout.outcome import EnvironmentLost
        from aworld_train.rollout.tools import ToolServer, ToolSession

        config = mcp_servers_config(self._url, self._token, self._tools.servers)["mcpServers"][SERVER_KEY]
        needed = tests.seconds + min(_MIN_OTHER_SECONDS, _MIN_OTHER_SHARE * self._seconds)
        wait = self._deadline - self._now() - needed
        if wait <= 0:
            return _Execution(Score(None, steps=("there was no time left to run the tests",)))
        limit = tests.seconds + _MAX_OTHER_SECONDS
        key, source = program(tests, code)
        output, failure, was_sent, is_late = "", "", False, False
        session = ToolSession(ToolServer(self._url, config["headers"] | SCORING, self._seconds, wait))
        try:
            await session.open()
            was_sent, limit = True, min(limit, self._deadline - self._now())
            async with asyncio.timeout(limit):
                output = (await session.call(self._tools.tool, {self._tools.argument: source})).text
        except TimeoutError:
            is_late, failure = True, f"the tool gave no result within {limit:.3g} seconds"
        except EnvironmentLost as error:
            failure = f"the tool environment was lost: {error}"
        finally:
            closing = asyncio.create_task(session.__aexit__(None, None, None))
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        is_signed = any(read_signed(key, line) is not None for line in output.splitlines())
        return _Execution(read_verdict(output, key, failure), is_signed, was_sent, is_late)


@dataclass(frozen=True)
class _Execution:
    """What became of a program: whether its tests said anything, a worker got it, and it was given up late."""

    score: Score
    is_signed: bool = False
    was_sent: bool = False
    is_late: bool = False


async def _attack(tools: ToolSettings, url: str, token: str, seconds: float) -> Score:
    attack = CodeTests(_ATTACK.tests, min(_ATTACK.seconds, seconds / 2))
    return (await _Place(tools, url, token, seconds).run(attack, _ATTACKER)).score


def program(tests: CodeTests, code: str) -> tuple[str, str]:
    """The key of one score, and the Python that runs the tests and prints a verdict signed with it."""
    key = secrets.token_hex(32)
    source = Path(__file__).with_name("sandbox.py").read_text("utf-8")
    arguments = f"{tests.tests!r}, {code!r}, {tests.seconds!r}"
    return key, f"SOURCE = {source!r}\nexec(SOURCE)\njudge({key!r}, {arguments}, SOURCE)\n"


def _address(tools: ToolSettings) -> tuple[str, str]:
    from aworld_train.env.connection import connection_settings

    connection = connection_settings()
    return tools.url or connection.get("MCP_SERVER_URL", ""), connection.get("MCP_SERVER_TOKEN", "")
