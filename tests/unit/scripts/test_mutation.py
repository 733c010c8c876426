"""Which faults ``scripts/mutation.py`` makes, and what it says of them, on a package of one small module."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import mutation
import pytest

SCRIPT = Path(mutation.__file__)
MODULE = "aworld_train/rollout/limits.py"
TEST_FILE = "tests/unit/rollout/test_limits.py"
CODE = """
MAX_TURNS = 7


def may_continue(turns: int) -> bool:
    return turns < MAX_TURNS


def name_of(turns: int) -> str:
    if turns == 1:
        return f"{turns:1} turn"
    return f"{turns} turns"
"""
TESTS = """
from aworld_train.rollout.limits import may_continue, name_of


def test_turns_end_at_the_limit():
    open("written", "w").close()
    assert name_of(1)
    assert may_continue(6) and not may_continue(7)
"""
ENDLESS = """
import os, signal, subprocess

def test_endless():
    end = os.open("{fifo}", os.O_WRONLY)
    subprocess.Popen(["sleep", "600"], pass_fds=[end], start_new_session=True)
    signal.pause()
"""


def changes(code: str) -> set[tuple[str, str]]:
    """The changed lines, before and after."""
    faults = mutation.Source("a/b.py", dedent(code)).faults()
    return {(fault.old, fault.new) for fault in faults}


@pytest.mark.parametrize(
    ("line", "faulty"),
    [
        ("if a and not b: c", {"if not (a and not b): c", "if a or not b: c"}),
        ("if not a: c", {"if a: c"}),
        ("if a == b: c", {"if a != b: c"}),
        ("while a  not  in b: c", {"while a  in b: c"}),
        ("x = [a for a in b if a]", {"x = [a for a in b if not (a)]"}),
        ("x = 0 < é <= y", {"x = 1 < é <= y", "x = 0 <= é <= y", "x = 0 < é < y"}),
        ("x = a // b + 12", {"x = a * b + 12", "x = a // b - 12", "x = a // b + 13"}),
        ("x = 'a' + b", set()),
        ("x = True", {"x = False"}),
        ("x = ('a', 'b')", {"x = ('b',)", "x = ('a',)"}),
        ("x = {'a', 'b', 'c'}", {"x = {'b', 'c'}", "x = {'a', 'c',}", "x = {'a', 'b',}"}),
        ("x.y += z", {"pass", "x.y -= z"}),
        ("x[y] = z", {"pass"}),
        ("await a(b)", {"pass"}),
        ("raise A(b)", {"pass"}),
        ("return a", {"return None"}),
        ("return None", set()),
        ("log.info(1)", set()),
        ("x: Literal[1] = y", set()),
        ("import a", set()),
    ],
)
def test_each_fault_is_one_small_change(line: str, faulty: set[str]) -> None:
    assert changes(f"async def f():\n    {line}\n") == {(line, new) for new in faulty}


def test_what_is_no_behaviour_and_numbers_with_names_are_left_alone() -> None:
    code = '''
    """1 and 2."""
    if TYPE_CHECKING:
        import_it(1)
    __all__ = ["a", "b"]
    LIMIT = 7
    @decorated(1)
    def f(x: Literal[1] = y, seconds: int = 5) -> Array[1]: ...
    '''
    assert changes(code) == set()


def test_a_statement_of_several_lines_is_replaced_without_moving_others() -> None:
    text = "def f():\n    call(\n        1,\n    )\n    return 2\n"
    removed = next(
        fault for fault in mutation.Source("a/b.py", text).faults() if fault.code.startswith("pass")
    )
    assert removed.applied_to(text) == "def f():\n    pass\n\n\n    return 2\n"
    assert (removed.old, removed.new, removed.first, removed.last) == ("call( 1, )", "pass", 2, 4)


def test_a_sample_depends_on_the_seed_alone_and_not_on_other_modules(tmp_path: Path) -> None:
    faults = {}
    for name in ("a", "b"):
        text = f"def {name}():\n" + "".join(f"    x = {number}\n" for number in range(2, 50))
        (tmp_path / name).write_text(text)
        faults[name] = list(mutation.Source(name, text).faults())
    both = mutation.draw(tmp_path, faults["a"] + faults["b"], 0, 40)
    assert both == mutation.draw(tmp_path, faults["b"] + faults["a"], 0, 40)
    assert both != mutation.draw(tmp_path, faults["a"] + faults["b"], 1, 40)
    of_a = [fault for fault in both if fault.file == "a"]
    assert of_a == mutation.draw(tmp_path, faults["a"], 0, len(of_a))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one module and its tests."""
    files = {
        "aworld_train/__init__.py": "",
        "aworld_train/rollout/__init__.py": "",
        MODULE: CODE,
        TEST_FILE: TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
    }
    for name, text in files.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path / "checkout"], check=True)
    return tmp_path / "checkout"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def _namespaces() -> None:
    program = (
        "import ctypes, os; assert not ctypes.CDLL(None).unshare(0x30000000 if os.geteuid() else 0x20000000)"
    )
    if subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may not make namespaces")


def start(checkout: Path, *arguments: str | Path) -> "subprocess.Popen[str]":
    folder = checkout.parent / "temporary"
    folder.mkdir()
    command = [sys.executable, SCRIPT, "--root", checkout, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)}
    )


@pytest.mark.usefixtures("_namespaces")
def test_a_fault_is_noticed_exactly_where_a_test_fails(checkout: Path) -> None:
    report = checkout.parent / "report.json"
    before = content(checkout)
    output, _ = start(checkout, "--json", report).communicate(timeout=100)
    rows = json.loads(report.read_text())
    test = f"{TEST_FILE}::test_turns_end_at_the_limit"
    assert {(row["fault"]["old"], row["fault"]["new"]): row["noticed_by"] for row in rows} == {
        ("return turns < MAX_TURNS", "return turns <= MAX_TURNS"): test,
        ("return turns < MAX_TURNS", "return None"): test,
        ("if turns == 1:", "if turns != 1:"): "",
        ("if turns == 1:", "if turns == 0:"): "",
        ('return f"{turns:1} turn"', "return None"): test,
        ('return f"{turns} turns"', "return None"): "",
    }
    assert output.splitlines()[1].split() == ["aworld_train/rollout", "6", "3", "50%"]
    assert f"{MODULE}:10: 1 tests pass\n  - if turns == 1:\n  + if turns != 1:\n" in output
    assert content(checkout) == before
    assert not list((checkout.parent / "temporary").iterdir())


def test_a_reviewed_equivalent_is_not_tried(checkout: Path) -> None:
    row = {"file": MODULE, "old": "if turns == 1:", "new": "if turns == 0:", "reason": "as an example"}
    (checkout / mutation.EQUIVALENTS).parent.mkdir()
    (checkout / mutation.EQUIVALENTS).write_text(json.dumps(row) + "\n")
    assert {fault.new for fault in mutation.find_faults(checkout) if fault.old == row["old"]} == {
        "if turns != 1:"
    }


def test_the_reviewed_equivalents_of_this_checkout_are_faults_that_can_be_made() -> None:
    root = SCRIPT.parents[1]
    for line in (root / mutation.EQUIVALENTS).read_text().splitlines():
        row = json.loads(line)
        faults = mutation.Source(row["file"], (root / row["file"]).read_text()).faults()
        assert (row["old"], row["new"]) in {(fault.old, fault.new) for fault in faults}, row
        assert row["reason"]


@pytest.mark.usefixtures("_namespaces")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_an_interrupted_run(checkout: Path, number: signal.Signals) -> None:
    fifo = checkout.parent / "fifo"
    os.mkfifo(fifo)
    (checkout / TEST_FILE).write_text(ENDLESS.format(fifo=fifo))
    process = start(checkout)
    reader = os.open(fifo, os.O_RDONLY)  # waits for a process of the test, and has an end when there is none
    process.send_signal(number)
    process.communicate(timeout=100)
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert process.returncode == 128 + number
    assert not list((checkout.parent / "temporary").iterdir())
