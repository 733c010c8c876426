#!/usr/bin/env python3
"""Single faults in the modules that decide what is trained on and who may do what: which do the unit tests notice?

A sample of small faults is tried one by one, each with the tests under ``tests/unit/FOLDER`` that are in the module's
own file or run the faulty line: nearest first, then quickest first, up to the first failure. A fault that makes them
hang is noticed too. A number above 1 that a module or a parameter gives a name to is a choice, so one more of it is
not a fault.

A fault may kill processes or remove files. So everything runs on a copy and in Linux namespaces of its own, from which
no other process is seen and no other folder can be written to, and which end with their first process. That process
imports once what the tests need from outside the package, and forks for each fault.

    nice python scripts/mutation.py [--seed N] [--faults N] [--module PATH] [--json FILE]
"""

import argparse
import ast
import ctypes
import gc
import hashlib
import importlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

import pytest

MODULES = (
    *(f"aworld_train/{folder}/**/*.py" for folder in ("adapter", "rollout", "serving")),
    *("aworld_train/reward/scoring*.py", "aworld_train/store/loading.py", "aworld_train/store/reading.py"),
    *("aworld_train/training/run*.py", "aworld_train/training/episode_counts.py"),
)
EQUIVALENTS = "tests/data/equivalent_faults.jsonl"
"""Reviewed faults that change no behaviour and are not tried: ``file``, ``old``, ``new`` and ``reason``."""
MAX_SECONDS = 60
"""How long the tests of one fault may take by their times without it; those of the module's own file always run."""
MAX_EVENTS = 20_000
"""After as many lines of one function in one test no more are looked at: its other passes show nothing new."""
_MARKS = "not bench and not install and not slow and not frameworks and not vllm"
PYTEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", _MARKS)

_SWAPS = {
    getattr(ast, name): (old, new)
    for name, old, new in (
        *(("And", "and", "or"), ("Or", "or", "and"), ("In", "in", "not in"), ("NotIn", "not in", "in")),
        *(("Lt", "<", "<="), ("LtE", "<=", "<"), ("Gt", ">", ">="), ("GtE", ">=", ">")),
        *(("Eq", "==", "!="), ("NotEq", "!=", "=="), ("Is", "is", "is not"), ("IsNot", "is not", "is")),
        *(("Add", "+", "-"), ("Sub", "-", "+"), ("Mult", "*", "+"), ("Div", "/", "*")),
        *(("FloorDiv", "//", "*"), ("Mod", "%", "*")),
    )
}
_UNTOUCHED_FIELDS = frozenset({"annotation", "returns", "decorator_list"})
_UNTOUCHED_NAMES = frozenset({"TYPE_CHECKING", "__all__", "__name__"})
_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception"})

# From linux/sched.h, linux/mount.h and linux/prctl.h.
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Fault:
    """``code`` instead of the text from ``start`` to ``end``, counted in characters.

    ``old`` and ``new`` are the changed lines, ``first`` and ``last`` those of the statement, or of the file outside of
    functions: all that runs a module depends on these.
    """

    file: str
    line: int
    old: str
    new: str
    start: int
    end: int
    code: str
    first: int
    last: int

    def applied_to(self, text: str) -> str:
        return text[: self.start] + self.code + text[self.end :]


@dataclass(frozen=True)
class PassedTest:
    """A test that passes without a fault: its seconds, and the lines that it runs, by file."""

    name: str
    seconds: float
    lines: dict[str, list[int]]


@dataclass(frozen=True)
class Trial:
    """What became of a fault: the test that noticed it ("" for none), and those that passed until then."""

    fault: Fault
    noticed_by: str
    passed: list[str]


def main() -> int:
    """Print the table of a sample of faults; 2 if they cannot be tried on this machine."""
    parser = argparse.ArgumentParser(description="Which single faults do the unit tests notice?")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help="the checkout (this one)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the sample (%(default)s)")
    parser.add_argument("--faults", type=int, default=300, help="how many faults (%(default)s)")
    parser.add_argument("--module", default="", help="only faults of this file or folder of the checkout")
    parser.add_argument("--json", type=Path, help="a file for the report")
    options = parser.parse_args()
    root = options.root.resolve()
    faults = draw(root, find_faults(root, options.module), options.seed, options.faults)
    trials = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            tree = copy_tree(root, Path(folder))
            with closing(in_namespaces(Path(folder), lambda: try_faults(tree, faults))) as running:
                for trial in running:
                    trials.append(trial)
                    sys.stderr.write(f"\r{len(trials)} of {len(faults)} faults tried")
    except PermissionError as error:
        sys.stderr.write(f"error: faults are tried in namespaces, which cannot be made here: {error}\n")
        return 2
    finally:
        # Also of a run that is cut off.
        if trials:
            sys.stdout.write(table(trials))
            if options.json:
                options.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1) + "\n")
    return 0


def find_faults(root: Path, module: str = "") -> list[Fault]:
    reviewed = root / EQUIVALENTS
    rows = [json.loads(line) for line in reviewed.read_text().splitlines()] if reviewed.exists() else []
    equivalents = {(row["file"], row["old"], row["new"]) for row in rows}
    paths = sorted({path for pattern in MODULES for path in root.glob(pattern)})
    files = [path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root / module)]
    faults = itertools.chain.from_iterable(Source(file, (root / file).read_text()).faults() for file in files)
    return [fault for fault in faults if (fault.file, fault.old, fault.new) not in equivalents]


def draw(root: Path, faults: list[Fault], seed: int, count: int) -> list[Fault]:
    """A sample in the order of the files, which stays the same where the code does."""

    def rank(fault: Fault) -> str:
        return hashlib.sha256(f"{seed} {fault.file} {fault.old} {fault.new}".encode()).hexdigest()

    def is_python(fault: Fault) -> bool:
        with suppress(SyntaxError):
            return bool(ast.parse(fault.applied_to((root / fault.file).read_text())))
        return False

    sample = itertools.islice(filter(is_python, sorted(faults, key=rank)), count)
    return sorted(sample, key=lambda fault: (fault.file, fault.start))


class Source:
    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text
        self._lines = [f"{line}\n" for line in text.split("\n")]  # not at other characters that end lines
        self._starts = list(itertools.accumulate(map(len, self._lines), initial=0))

    def faults(self) -> Iterator[Fault]:
        for node, statement, is_in_function in _nodes(ast.parse(self._text)):
            for start, end, code in self._edits(node, is_in_function):
                yield self._fault(start, end, code, statement if is_in_function else None)

    def _fault(self, start: int, end: int, code: str, statement: Any) -> Fault:
        # The other lines keep their numbers.
        code += "\n" * (self._text.count("\n", start, end) - code.count("\n"))
        first, last = self._text.count("\n", 0, start), self._text.count("\n", 0, end)
        text = self._text[:start] + code + self._text[end:]
        old, new = (
            " ".join(map(str.strip, version.split("\n")[first : last + 1])).strip()
            for version in (self._text, text)
        )
        lines = (1, len(self._lines))
        if statement:
            body = getattr(statement, "body", None)
            lines = (statement.lineno, body[0].lineno - 1 if body else statement.end_lineno)
        return Fault(self._file, first + 1, old, new, start, end, code, *lines)

    def _edits(self, node: Any, is_in_function: bool) -> Iterator[tuple[int, int, str]]:
        """Changes of one node: two offsets and the code between them."""
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._negations([test])
            case ast.comprehension(ifs=tests):
                yield from self._negations(tests)
            case ast.BoolOp(values=values):
                yield from (self._swap(left, right, node.op) for left, right in itertools.pairwise(values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                yield from map(self._swap, [left, *others], others, ops)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPS:
                if not any(
                    isinstance(getattr(side, "value", side), str | ast.JoinedStr) for side in (left, right)
                ):
                    yield self._swap(left, right, op)
            case ast.Constant(value=bool() as value):
                yield *self._span(node), str(not value)
            case ast.Constant(value=int() as value) if is_in_function or value in (0, 1):
                yield *self._span(node), str({0: 1, 1: 0}.get(value, value + 1))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                if len(items) > 1 and all(isinstance(item, ast.Constant) for item in items):
                    yield from self._shortened([self._span(item) for item in items])
            case ast.Return(value=ast.expr() as value):
                if ast.unparse(value) != "None":
                    yield *self._span(node), "return None"
            case ast.Raise() | ast.Continue() | ast.Break() | ast.Expr(value=ast.Call() | ast.Await()):
                yield *self._span(node), "pass"
            case (
                ast.Assign(targets=[target, *_]) | ast.AugAssign(target=target) | ast.AnnAssign(target=target)
            ):
                if isinstance(target, ast.Attribute | ast.Subscript):
                    yield *self._span(node), "pass"
                if type(getattr(node, "op", None)) in _SWAPS:
                    yield self._swap(target, node.value, node.op)

    def _negations(self, tests: list[ast.expr]) -> Iterator[tuple[int, int, str]]:
        for test in tests:
            start, end = self._span(test)
            match test:
                case ast.Constant():
                    continue
                case ast.Compare(
                    ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() | ast.Is() | ast.IsNot()]
                ):
                    continue  # its operator is swapped, which is the same
                case ast.UnaryOp(op=ast.Not(), operand=operand):
                    yield start, self._span(operand)[0], ""
                case _:
                    yield start, end, f"not ({self._text[start:end]})"

    def _swap(self, left: ast.AST, right: ast.AST, op: ast.AST) -> tuple[int, int, str]:
        start, end = self._span(left)[1], self._span(right)[0]
        old, new = _SWAPS[type(op)]
        return (
            start,
            end,
            re.sub(r"\s+".join(map(re.escape, old.split())), new, self._text[start:end], count=1),
        )

    def _shortened(self, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """A display without one of its elements; a tuple of one needs a comma."""
        comma = "" if self._text[spans[-1][1] :].lstrip().startswith(",") else ","
        yield from ((one[0], other[0], "") for one, other in itertools.pairwise(spans[:-1]))
        yield spans[-2][0], spans[-1][1], self._text[slice(*spans[-1])] + comma
        yield spans[-2][1], spans[-1][1], comma

    def _span(self, node: Any) -> tuple[int, int]:
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Columns are counted in bytes of UTF-8."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _nodes(
    node: ast.AST, statement: Any = None, is_in_function: bool = False
) -> Iterator[tuple[ast.AST, Any, bool]]:
    """What may be changed below a node, with its statement and whether that is in a function's body."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in _UNTOUCHED_FIELDS and not _is_untouched(child):
                own = child if isinstance(child, ast.stmt) else statement
                is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                inside = is_in_function or (is_function and field == "body")
                yield child, own, inside
                yield from _nodes(child, own, inside)


def _is_untouched(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.If(test=header) | ast.Assign(targets=[header]):
            return not _UNTOUCHED_NAMES.isdisjoint(n.id for n in ast.walk(header) if isinstance(n, ast.Name))
        case ast.Subscript(value=ast.Name(id="Literal" | "Annotated")):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
            return "log" in name.lower() and method in _LOG_METHODS
    return False


def copy_tree(root: Path, folder: Path) -> Path:
    """Copy what git knows or would add, beside folders for what the tests write."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tree = folder / "tree"
    for name in subprocess.check_output(listing, text=True).split("\0"):
        if name and (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return tree


def in_namespaces(folder: Path, work: Callable[[], Iterator[Trial]]) -> Generator[Trial, None, None]:
    """What ``work`` yields in the first process of new namespaces, where only ``folder`` can be written to.

    Raises:
        PermissionError: This user may not make namespaces.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    _check(libc.unshare(_CLONE_NEWPID | (_CLONE_NEWUSER if user else 0)))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_first_process(libc, folder, writer, work)
    os.close(writer)
    try:
        with os.fdopen(reader) as rows:
            for row in map(json.loads, rows):
                yield Trial(Fault(**row.pop("fault")), **row)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        # The kernel ends all others of the namespace before this returns.
        _, status = os.waitpid(pid, 0)
    if status:
        raise ChildProcessError("The process that tries faults failed.")


def _be_first_process(libc: Any, folder: Path, writer: int, work: Callable[[], Iterator[Trial]]) -> NoReturn:
    code = os.EX_SOFTWARE
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()  # Ctrl-C is for the process outside
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _confine(libc, folder)
        with os.fdopen(writer, "w", buffering=1) as rows:
            rows.writelines(json.dumps(asdict(trial)) + "\n" for trial in work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _confine(libc: Any, folder: Path) -> None:
    """Make all file systems read-only but ``folder`` and a shared memory of its own."""

    def mount(source: Path | str, target: Path | str, kind: str, flags: int) -> int:
        return int(libc.mount(str(source).encode(), str(target).encode(), kind.encode(), flags, None))

    _check(libc.unshare(_CLONE_NEWNS))
    _check(mount("none", "/", "none", _MS_REC | _MS_PRIVATE))
    _check(mount("proc", "/proc", "proc", 0))
    _check(mount("tmpfs", "/dev/shm", "tmpfs", 0))
    _check(mount(folder, folder, "none", _MS_BIND))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if point != str(folder) and not point.startswith(("/proc", "/sys", "/dev")):
            mount("none", point, "none", _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def _check(result: int) -> None:
    if result:
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def try_faults(tree: Path, faults: list[Fault]) -> Iterator[Trial]:
    """Try each fault, in the first process of the namespaces."""
    sys.path[0] = str(tree)  # instead of the folder of this script
    os.environ |= {
        "PYTHONPATH": str(tree),
        "HOME": str(tree.parent / "home"),
        "TMPDIR": str(tree.parent / "tmp"),
    }
    tempfile.tempdir = None
    os.chdir(tree)
    folders = {name: list(group) for name, group in itertools.groupby(faults, lambda f: f.file.split("/")[1])}
    import_outside_modules(tree, [f"tests/unit/{name}" for name in folders])
    for name, group in folders.items():
        tests = record(tree, f"tests/unit/{name}")
        yield from (try_fault(tree, fault, select(fault, tests)) for fault in group)


def import_outside_modules(tree: Path, folders: list[str]) -> None:
    """Import what the tests import but for the package and themselves, so that no fork has to."""
    names = tree.parent / "names"

    def collect() -> None:
        pytest.main([*PYTEST_OPTIONS, "--collect-only", *folders])
        files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
        names.write_text("\n".join(name for name in files if not files[name].startswith(str(tree.parent))))

    _in_fork(collect)
    for name in names.read_text().split():
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def record(tree: Path, folder: str) -> list[PassedTest]:
    """Run the tests of a folder without a fault; those that fail or are skipped are left out."""
    reporter = Reporter(tree.parent / "record")

    def run() -> None:
        reporter.trace(f"{tree}/aworld_train/")
        pytest.main([*PYTEST_OPTIONS, folder], plugins=[reporter])

    _in_fork(run)
    if failed := [row["test"] for row in reporter.rows("failed")]:
        sys.stderr.write(f"\nThese fail without a fault and are left out: {' '.join(failed)}\n")
    passed = [PassedTest(row["test"], row["seconds"], row["lines"]) for row in reporter.rows("passed")]
    if not passed:
        raise ValueError(f"No test in {folder} passes without a fault.")
    return passed


def select(fault: Fault, tests: list[PassedTest]) -> list[PassedTest]:
    """The module's own tests and those that run the fault, nearest first; where there are none, the nearest of all."""
    lines = range(fault.first, fault.last + 1)
    # What a module defines is used without running a line of it, and its code may run in other processes.
    chosen = [
        test
        for test in tests
        if _distance(fault, test) == 0 or any(line in lines for line in test.lines.get(fault.file, []))
    ]
    nearest = min(_distance(fault, test) for test in tests)
    chosen = chosen or [test for test in tests if _distance(fault, test) == nearest <= 1]
    fitting: list[PassedTest] = []
    seconds = 0.0
    for test in sorted(chosen, key=lambda test: (_distance(fault, test), test.seconds)):
        if _distance(fault, test) == 0 or not fitting or seconds + test.seconds <= MAX_SECONDS:
            fitting.append(test)
            seconds += test.seconds
    return fitting


def _distance(fault: Fault, test: PassedTest) -> int:
    """How many steps of the mirrored path, from its end, are not in the path of this test's file."""
    *folders, name = fault.file.split("/")[1:]
    mirrored = [*folders, f"test_{name}"]
    own = test.name.split("::")[0].split("/")[2:]
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(mirrored, own, strict=False))
    return len(mirrored) - len(list(shared))


def try_fault(tree: Path, fault: Fault, tests: list[PassedTest]) -> Trial:
    """Make the fault in the tree, run these tests with a process for each distance, and unmake it."""
    path = tree / fault.file
    text, status = path.read_text(), path.stat()
    path.write_text(fault.applied_to(text))
    noticed_by, passed = "", []
    for _, group in itertools.groupby(tests, key=lambda test: _distance(fault, test)):
        if not noticed_by:
            noticed_by, more_passed = run_tests(tree, list(group))
            passed += more_passed
    path.write_text(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return Trial(fault, noticed_by, passed)


def run_tests(tree: Path, tests: list[PassedTest]) -> tuple[str, list[str]]:
    """Run tests up to the first failure: returns what failed, "" for nothing, and the tests that passed."""
    reporter = Reporter(tree.parent / "results", [test.name for test in tests])
    seconds = [test.seconds for test in tests]
    files = sorted({test.name.split("::")[0] for test in tests})

    def run() -> int:
        # Compiled modules are of one time and size of the source; that of the faulty one is never written.
        os.environ["PYTHONDONTWRITEBYTECODE"], sys.dont_write_bytecode = "1", True
        timeout = f"--timeout={30 + 5 * max(seconds)}"
        return pytest.main([*PYTEST_OPTIONS, "-x", timeout, *files], plugins=[reporter])

    code = _in_fork(run, 60 + 3 * sum(seconds))
    failed, passed = ([row["test"] for row in reporter.rows(outcome)] for outcome in ("failed", "passed"))
    sign = "(it does not end)" if code is None else "(no test starts)"
    return "" if code == pytest.ExitCode.OK else [*failed, sign][0], passed


class Reporter:
    """A plugin of pytest that runs these tests in this order, or all, and writes a row for each."""

    def __init__(self, file: Path, names: Sequence[str] = ()) -> None:
        self._file, self._ranks = file, {name: rank for rank, name in enumerate(names)}
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._events: Counter[CodeType] = Counter()
        self._enter: Callable[[FrameType, str, Any], Any] | None = None
        file.write_text("")

    def trace(self, prefix: str) -> None:
        """Note from now on which lines of the files below a folder run in this process."""
        root = str(Path(prefix).parent) + "/"

        def enter(frame: FrameType, event: str, argument: Any) -> Any:
            code = frame.f_code
            return note if code.co_filename.startswith(prefix) and self._events[code] < MAX_EVENTS else None

        def note(frame: FrameType, event: str, argument: Any) -> Any:
            code = frame.f_code
            self._lines[code.co_filename.removeprefix(root)].add(frame.f_lineno)
            self._events[code] += 1
            return note if self._events[code] < MAX_EVENTS else None

        self._enter = enter
        threading.settrace(enter)

    def rows(self, outcome: str) -> list[dict[str, Any]]:
        rows = map(json.loads, self._file.read_text().splitlines())
        return [row for row in rows if row["outcome"] == outcome]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._ranks:
            chosen = [item for item in items if item.nodeid in self._ranks]
            items[:] = sorted(chosen, key=lambda item: self._ranks[item.nodeid])

    def pytest_runtest_logstart(self) -> None:
        self._reports: list[pytest.TestReport] = []
        self._lines.clear()
        self._events.clear()
        if self._enter:
            sys.settrace(self._enter)  # again, for hypothesis and errors in the function itself end it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcomes = {report.outcome for report in self._reports}
        row = {
            "test": nodeid,
            "outcome": next(one for one in ("failed", "skipped", "passed") if one in outcomes),
            "seconds": sum(report.duration for report in self._reports),
            "lines": {file: sorted(lines.copy()) for file, lines in self._lines.copy().items()},
        }
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _in_fork(run: Callable[[], int | None], seconds: float = float("inf")) -> int | None:
    """What ``run`` returns in a fork, None if it takes longer than that; then all that it started ends."""
    pid = os.fork()
    if pid == 0:
        code = os.EX_SOFTWARE
        try:
            # If memory runs out, the kernel ends this process rather than any other.
            Path("/proc/self/oom_score_adj").write_text("500")
            for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
                os.dup2(os.open(os.devnull, flags), number)
            code = run() or 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(-1, os.WNOHANG)  # orphans of the tests end too
            if ended == pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0 if ended else 0.01)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # in this namespace, and not this process
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass


def table(trials: list[Trial]) -> str:
    lines = [f"{'folder':<40}{'faults':>8}{'noticed':>9}{'share':>8}"]
    folders = sorted({str(Path(trial.fault.file).parent) for trial in trials})
    for folder in (*folders, "all"):
        group = [t for t in trials if folder in ("all", str(Path(t.fault.file).parent))]
        noticed = sum(bool(trial.noticed_by) for trial in group)
        share = f"{noticed / len(group):.0%}" if group else "-"
        lines.append(f"{folder:<40}{len(group):>8}{noticed:>9}{share:>8}")
    for fault, passed in [(trial.fault, trial.passed) for trial in trials if not trial.noticed_by]:
        tests = f"{len(passed)} tests pass" if passed else "no test runs it"
        lines += ["", f"{fault.file}:{fault.line}: {tests}", f"  - {fault.old}", f"  + {fault.new}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
