"""`code_tests` in the tool environment that runs the agents' Python too: right code passes, and nothing else does."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aworld_train.env import EnvConnection, down, up
from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.errors import EnvironmentFailure
from aworld_train.reward.code_tests import check_code_tests
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import CompositeSettings, RewardSettings, ToolSettings
from tests.unit.reward.attacks.code_programs import ADD, ATTACKS, Attack

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

WORKERS = 2
KINDS = """
from solution import numbers as also
queue = Queue()
queue.push(4)
assert queue.pop() == 4 and queue.size == 0 and len(queue) == 0
assert list(numbers(3)) == [0, 1, 2] == list(also(3))
given = [3, 1, 2]
in_place(given)
assert given == [1, 2, 3]
try:
    queue.pop()
    assert False, "nothing was raised"
except IndexError as error:
    assert "empty" in str(error)
assert TABLE == {(1, 2): {"a"}, "b": [None, True, 2.5, b"x", 1j, 10**30]}
assert isinstance(TABLE, dict) and solution.sum([1, 2]) == "sum of 2"
"""
RIGHT_KINDS = """
class Queue:
    def __init__(self):
        self.held = []
    def push(self, one):
        self.held.append(one)
    def pop(self):
        if not self.held:
            raise IndexError("empty")
        return self.held.pop(0)
    @property
    def size(self):
        return len(self.held)
    def __len__(self):
        return len(self.held)

def numbers(n):
    yield from range(n)

def in_place(given):
    given.sort()

def sum(values):
    return f"sum of {len(values)}"

TABLE = {(1, 2): {"a"}, "b": [None, True, 2.5, b"x", 1j, 10**30]}
"""


@pytest.fixture(scope="module")
def python(state: None) -> Iterator[EnvConnection]:
    yield up(
        "gaia-mcp-server",
        name="code",
        backend="process",
        workers=1,
        scoring_workers=WORKERS,
        servers=("python-server",),
    )
    down("code")


@pytest.fixture
def run(python: EnvConnection, monkeypatch: pytest.MonkeyPatch) -> RewardSettings:
    """A run that has this environment."""
    monkeypatch.setenv("MCP_SERVER_TOKEN", python.token)
    return RewardSettings(tools=ToolSettings(python.mcp_url, servers=("python-server",)), timeout=60.0)


async def ask(run: RewardSettings, answer: str, tests: str = ADD, **more: float) -> ScoreResult:
    truth = json.dumps({"tests": tests, **more})
    text = f"<answer>{answer}</answer>"
    return await score(text, ground_truth=truth, scorer="code_tests", settings=run)


async def test_functions_classes_generators_errors_and_values_can_be_tested(run: RewardSettings) -> None:
    scored = await ask(run, RIGHT_KINDS, KINDS)
    assert scored.score == 1.0, scored.steps
    scored = await ask(run, RIGHT_KINDS.replace("given.sort()", "pass"), KINDS)
    assert scored.score == 0.0 and "AssertionError" in scored.steps[-1]


async def test_only_a_right_program_passes_whatever_it_does(run: RewardSettings) -> None:
    workers = asyncio.Semaphore(WORKERS)

    async def scored(attack: Attack) -> ScoreResult:
        async with workers:
            return await ask(run, attack.code, attack.tests, timeout=attack.seconds)

    results = await asyncio.gather(*map(scored, ATTACKS.values()))
    for (name, attack), result in zip(ATTACKS.items(), results, strict=True):
        assert (result.score, result.cause) == (attack.score, None), name
        assert attack.why in result.steps[-1], name


async def test_a_kernel_that_confines_the_code_passes_the_check(python: EnvConnection) -> None:
    tools = ToolSettings(servers=("python-server",))
    check_code_tests(tools, 60.0, python.mcp_url, python.token)
    with pytest.raises(EnvironmentFailure, match="did not run the tests"):
        check_code_tests(replace(tools, tool="no_such_tool"), 60.0, python.mcp_url, python.token)
    with pytest.raises(EnvironmentFailure, match="the tool environment was lost"):
        check_code_tests(tools, 10.0, "http://127.0.0.1:9/mcp")


async def test_what_the_answer_defines_is_not_what_the_tests_check_with(run: RewardSettings) -> None:
    fakes = "def all(values): return True\nclass math:\n    isclose = staticmethod(lambda a, b: True)\n"
    tests = "import math\nassert all(math.isclose(half(n), n / 2) for n in range(3))"
    assert (await ask(run, fakes + "def half(n): return 7", tests)).score == 0.0
    assert (await ask(run, fakes + "def half(n): return 7", tests.partition("\n")[2])).score == 0.0
    assert (await ask(run, fakes + "def half(n): return n / 2", tests)).score == 1.0


async def test_tests_that_are_no_python_give_no_score(run: RewardSettings) -> None:
    scored = await ask(run, "def add(a, b): return 1", "assert add(")
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.abstained)
    assert scored.cause is not None and "the tests are not valid Python" in scored.cause


async def test_tests_that_the_sandbox_cannot_run_are_counted(run: RewardSettings) -> None:
    scored = await ask(run, "def add(a, b): return 1", "assert add(lambda: 1, 2)")
    assert (scored.score, scored.parts) == (0.0, {"tests_unusable": 1.0})
    assert "which cannot be passed on" in scored.steps[-1]


@pytest.mark.parametrize(
    "truth", ["", "assert add(1, 2) == 3", "[]", "{}", '{"tests": ""}', '{"tests": "1", "timeout": 0}']
)
async def test_a_ground_truth_without_tests_scores_nothing(run: RewardSettings, truth: str) -> None:
    scored = await score("<answer>1</answer>", ground_truth=truth, scorer="code_tests", settings=run)
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.abstained)
    assert scored.cause is not None and "ground truth" in scored.cause


async def test_where_there_is_no_environment_there_is_no_score(
    run: RewardSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    scored = await ask(RewardSettings(), "def add(a, b): return a + b")
    assert (scored.outcome, scored.cause) == (
        ScoreOutcome.abstained,
        "there is no tool environment to run the tests in: MCP_SERVER_URL is not set",
    )
    monkeypatch.setenv("MCP_SERVER_URL", run.tools.url or "")
    assert (await ask(RewardSettings(timeout=60), "def add(a, b): return a + b")).score == 1.0
    lost = RewardSettings(tools=ToolSettings("http://127.0.0.1:9/mcp"), timeout=10)
    scored = await ask(lost, "def add(a, b): return a + b")
    assert scored.outcome == ScoreOutcome.abstained
    assert scored.cause is not None and "the tool environment was lost" in scored.cause


async def test_a_tool_that_does_not_run_python_is_named(run: RewardSettings) -> None:
    other = RewardSettings(tools=ToolSettings(run.tools.url, tool="no_such_tool"), timeout=30)
    scored = await ask(other, "def add(a, b): return a + b")
    assert scored.outcome == ScoreOutcome.abstained
    assert scored.cause is not None and "the tool did not run the tests" in scored.cause


async def test_many_at_a_time_wait_for_a_place(run: RewardSettings) -> None:
    answers = [f"def add(a, b): return a + b + {number % 2}" for number in range(6)]
    scores = [scored.score for scored in await asyncio.gather(*(ask(run, answer) for answer in answers))]
    assert scores == [1.0, 0.0] * 3


async def test_a_composite_may_rest_on_tests(run: RewardSettings) -> None:
    composite = CompositeSettings(correct="code_tests", weights={"correct": 0.9, "format": 0.1})
    settings = RewardSettings(tools=run.tools, composite=composite, timeout=60.0)
    text = "<answer>def add(a, b): return a + b</answer>"
    truth = json.dumps({"tests": ADD})
    scored = await score(text, ground_truth=truth, scorer="composite", settings=settings)
    assert scored.score == pytest.approx(1.0)
