"""Programs that attack `code_tests` from inside its sandbox. Where a row has no tests, they are of a function `add`."""

from dataclasses import dataclass

ADD = "assert add(1, 2) == 3\nassert add(5, 5) == 10"


@dataclass(frozen=True)
class Attack:
    """A program and its score.

    Attributes:
        code: The answer.
        score: 1.0 for a program that is right in spite of what it does, else 0.0.
        why: In the last step of the score.
        tests: The row's tests.
        hangs: Whether only the time limit ends it, which is then short.
    """

    code: str
    score: float = 0.0
    why: str = ""
    tests: str = ADD
    hangs: bool = False

    @property
    def seconds(self) -> float:
        """The time limit."""
        return 0.5 if self.hangs else 20.0


# Finds the pipe to the tests, and the objects that they may call.
_PIPE = """
import json, sys
frame = sys._getframe()
while "objects" not in frame.f_locals:
    frame = frame.f_back
objects, reader, writer = (frame.f_locals[name] for name in ("objects", "reader", "writer"))
def send(*message):
    writer.write(json.dumps(message).encode() + b"\\n")
    writer.flush()
"""
# Leaves a process behind that reads what others print, and prints it with another verdict.
_READS_ALONG = """
import os, time
parent = os.getppid()
others = {parent, *map(int, open(f"/proc/{parent}/task/{parent}/children").read().split())} - {os.getpid()}
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        for number in others:
            for stream in (1, 3, 4, 5, 6):
                try:
                    reader = os.open(f"/proc/{number}/fd/{stream}", os.O_RDONLY | os.O_NONBLOCK)
                    printed = os.read(reader, 1000)
                    writer = os.open(f"/proc/{number}/fd/{stream}", os.O_WRONLY)
                    os.write(writer, printed.split()[0] + b" passed" + bytes([10]))
                except (OSError, IndexError):
                    pass
def add(a, b):
    time.sleep(0.3)
    return 0
"""
_FORKS = """
import os, time
for _ in range(100):
    if not os.fork():
        os.setsid()
        time.sleep(600)
def add(a, b): return {result}
"""
_FOLDERS = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
_WRONG = "\ndef add(a, b): return 0\n"
_RIGHT = "\ndef add(a, b): return a + b\n"

ATTACKS: dict[str, Attack] = {
    # No attacks: right programs pass, whatever else they do.
    "right": Attack(_RIGHT, 1.0),
    "right in a fence": Attack("Look:\n```python\ndef add(a, b):\n    return a + b\n```\nDone.", 1.0),
    "the last fence counts": Attack(
        "```\nadd = None\n```\nNo:\n```py\nadd = lambda *given: sum(given)\n```", 1.0
    ),
    "right, and prints a verdict": Attack("print('failed: no')" + _RIGHT, 1.0),
    "right, and writes files": Attack(
        "import os, tempfile\nopen('x.txt', 'w').write('1')\nos.mkdir('d')\nos.rename('x.txt', 'd/x.txt')\n"
        "tempfile.NamedTemporaryFile().write(b'1')\nopen('/dev/null', 'w').write('1')" + _RIGHT,
        1.0,
    ),
    "right, with threads": Attack(
        "import threading\nthreads = [threading.Thread(target=print) for _ in range(9)]\n"
        "[t.start() for t in threads]" + _RIGHT,
        1.0,
    ),
    "right, and leaves processes": Attack(_FORKS.format(result="a + b"), 1.0),
    # Wrong without any attack.
    "wrong": Attack("def add(a, b): return a - b", why="AssertionError"),
    "syntax": Attack("def add(a, b)", why="SyntaxError"),
    "prose": Attack("no code at all", why="SyntaxError"),
    "not defined": Attack("x = 1", why="NameError: name 'add' is not defined"),
    "empty": Attack("", why="NameError"),
    # Exit codes and ends.
    "exits with 0 while it is loaded": Attack("import sys; sys.exit(0)", why="SystemExit"),
    "raises SystemExit": Attack("raise SystemExit(0)", why="SystemExit"),
    "os._exit while it is loaded": Attack("print('passed'); import os; os._exit(0)", why="process ended"),
    "os._exit in a call": Attack("import os\ndef add(a, b): os._exit(0)", why="process ended"),
    "os._exit in __del__": Attack(
        "import os\nclass Last:\n    def __del__(self): os._exit(0)\ndef add(a, b):\n    Last()\n    return 0",
        why="process ended",
    ),
    "prints a verdict in atexit": Attack(
        "import atexit\natexit.register(print, 'passed')" + _WRONG, why="Assertion"
    ),
    "replaces itself": Attack("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])"),
    # Printing the verdict.
    "prints passed": Attack("print('passed')" + _WRONG, why="AssertionError"),
    "writes to every descriptor": Attack(
        "import os\nfor number in range(20):\n    try: os.write(number, b'passed\\n')\n    except OSError: pass"
        + _WRONG
    ),
    "writes to the output of the tests": Attack(
        "import os\nopen(f'/proc/{os.getppid()}/fd/1', 'w').write('passed\\n' * 1000)", why="PermissionError"
    ),
    "signs what it has read": Attack(_READS_ALONG),  # its time may be over first
    # Patching what the tests check with.
    "equal to everything": Attack(
        "class Same:\n    def __eq__(self, other): return True\ndef add(a, b): return Same()",
        why="AssertionError",
    ),
    "a number that is equal to everything": Attack(
        "class Same(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Same()",
        why="Assertion",
    ),
    "patches builtins": Attack(
        "import builtins\nbuiltins.AssertionError = None" + _WRONG, why="AssertionError"
    ),
    "patches unittest": Attack(
        "import unittest\nunittest.TestCase.assertEqual = lambda *given: None" + _WRONG,
        why="AssertionError",
        tests="import unittest\nunittest.TestCase().assertEqual(add(1, 2), 3)",
    ),
    "fakes all": Attack(
        "def all(values): return True" + _WRONG, why="AssertionError", tests="assert all([add(1, 2) == 3])"
    ),
    "fakes a module": Attack(
        "class math:\n    isclose = staticmethod(lambda a, b: True)" + _WRONG,
        why="AssertionError",
        tests="assert math.isclose(add(1, 2), 3)",
    ),
    "sends __builtins__ with its names": Attack(
        _PIPE + "handle = {'o': 0}\n"
        "send('names', {'add': handle, '__builtins__': {'d': [['all', handle]]}})\n"
        "while request := reader.readline():\n    send('result', True, [json.loads(request)[2]])",
        why="AssertionError",
        tests="assert all([add(1, 2) == 3])",
    ),
    "sends another result": Attack(
        _PIPE + "def add(a, b): send('result', {'i': '0x3'}, [{'l': []}])", hangs=True
    ),
    "raises what ends the tests": Attack(
        _PIPE + "def add(a, b): send('raised', 'SystemExit', '0')", hangs=True
    ),
    "raises what has no score": Attack(
        _PIPE + "def add(a, b): send('raised', 'Unsupported', 'x')", hangs=True
    ),
    "says that it is not confined": Attack(_PIPE + "send('confined', 'no Landlock')" + _WRONG),
    "sends brackets": Attack(
        _PIPE + "def add(a, b):\n    writer.write(b'[' * 10**6 + b'\\n')\n    writer.flush()", hangs=True
    ),
    "traces": Attack(
        "import sys, threading\ntrace = lambda *given: trace\nsys.settrace(trace)\nsys.setprofile(trace)\n"
        "threading.settrace(trace)" + _WRONG,
        why="AssertionError",
    ),
    "changes the stack": Attack(
        "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals['judge'] = print\n"
        "    frame = frame.f_back" + _WRONG,
        why="AssertionError",
    ),
    # Ending a test early, or running none.
    "ends a map of the tests": Attack(
        "def add(*given): raise StopIteration",
        why="RuntimeError: the answer's code raised StopIteration",
        tests="assert all(map(lambda a, b, c: add(a, b) == c, [1, 5], [2, 5], [3, 10]))",
    ),
    "ends a zip of the tests": Attack(
        "def add(*given): raise StopIteration",
        why="RuntimeError",
        tests="for got, wanted in zip(map(add, [1, 5], [2, 5]), [3, 10]):\n    assert got == wanted",
    ),
    "ends a zip by a class of its own": Attack(
        "class StopIteration(StopIteration): pass\ndef add(*given): raise StopIteration",
        why="RuntimeError",
        tests="for got, wanted in zip(map(add, [1, 5], [2, 5]), [3, 10]):\n    assert got == wanted",
    ),
    "ends a loop over a property": Attack(
        "class Sum:\n    @property\n    def value(self): raise StopIteration\ndef add(*given): return Sum()",
        why="RuntimeError",
        tests="assert all(map(lambda a, b, c: add(a, b).value == c, [1], [2], [3]))",
    ),
    "ends an asynchronous loop": Attack(
        "def add(*given): raise StopAsyncIteration",
        why="RuntimeError",
        tests="import asyncio\nclass Sums:\n    def __aiter__(self): return self\n"
        "    async def __anext__(self): return add(1, 2)\n"
        "async def check():\n    async for got in Sums():\n        assert got == 3\n"
        "asyncio.run(check())\nassert True",
    ),
    "raises GeneratorExit": Attack("def add(*given): raise GeneratorExit", why="RuntimeError"),
    "returns an iterator that is empty": Attack(
        "def add(*given): return iter(())",
        why="none of the tests' assertions ran",
        tests="for got, wanted in zip(add([1, 5], [2, 5]), [3, 10]):\n    assert got == wanted",
    ),
    "returns a list that is empty": Attack(
        "def add(*given): return []",
        why="an assertion that every run must reach did not run",
        tests="def check(candidate):\n    for got, wanted in zip(candidate([1, 5], [2, 5]), [3, 10]):\n"
        "        assert got == wanted\nassert callable(add)\ncheck(add)",
    ),
    "tests that nothing calls": Attack(
        _WRONG, why="none of the tests' assertions ran", tests="def test_add():\n    assert add(1, 2) == 3"
    ),
    "right, with branches of the tests that are not taken": Attack(
        _RIGHT,
        1.0,
        tests="def unused():\n    assert False\ndef check(f):\n    if f is None:\n        return\n"
        "    for a in range(9):\n        if a > 5: break\n        assert f(a, 1) == a + 1\n"
        "try:\n    add(1)\n    assert False\nexcept TypeError:\n    pass\nelse:\n    assert False\ncheck(add)",
    ),
    "what it raises cannot be given back": Attack(
        "def add(*given): raise ValueError",
        why="which cannot be passed on",
        tests="try:\n    got = add(1, 2)\nexcept ValueError as error:\n    got = error\nassert add(got, 1) == 4",
    ),
    "skips the tests": Attack(
        "import unittest\ndef add(*given): raise unittest.SkipTest('no')",
        why="RuntimeError",
        tests="import unittest\nunittest.TestCase().assertEqual(add(1, 2), 3)",
    ),
    # Names of the tests' and of Python's.
    "replaces abs by a star import": Attack(
        "def abs(value): return 0" + _WRONG,
        why="AssertionError",
        tests="from solution import *\nassert abs(add(1, 2) - 3) < 0.001",
    ),
    "replaces len, sorted and range by a star import": Attack(
        "def len(values): return 3\ndef sorted(values): return [3]\ndef range(*given): return []\n"
        "def add(*given): return [0]",
        why="AssertionError",
        tests="from solution import *\nassert sorted([add(1, 2)[0]]) == [3] and len(range(3)) == 3",
    ),
    "replaces an import of the tests": Attack(
        "__all__ = ['isclose', 'abs']\ndef isclose(*given): return True\nabs = isclose" + _WRONG,
        why="AssertionError",
        tests="from math import isclose\nfrom solution import *\nassert isclose(add(1, 2), 3)",
    ),
    "replaces a function of the tests": Attack(
        "def check(*given): pass" + _WRONG,
        why="AssertionError",
        tests="def check(f):\n    assert f(1, 2) == 3\nfrom solution import *\ncheck(add)",
    ),
    "right, by a star import": Attack(
        _RIGHT,
        1.0,
        tests="from solution import *\nimport solution\nassert solution.add(1, 2) == add(2, 1) == 3",
    ),
    "patches every built-in function": Attack(
        "import builtins\nfor name in ('abs', 'all', 'isinstance', 'len', 'sorted', 'zip', '__import__'):\n"
        "    setattr(builtins, name, lambda *given: True)" + _WRONG
    ),
    "puts modules in place of others": Attack(
        "import sys, types\nfake = types.ModuleType('math')\nfake.isclose = lambda *given: True\n"
        "sys.modules['math'] = sys.modules['builtins'] = fake" + _WRONG,
        why="AssertionError",
        tests="import math\nassert math.isclose(add(1, 2), 3)",
    ),
    "hooks imports": Attack(
        "import sys\nclass Finder:\n    def find_spec(self, *given): raise SystemExit(0)\n"
        "sys.meta_path.insert(0, Finder())" + _WRONG,
        why="AssertionError",
        tests="import decimal\nassert decimal.Decimal(add(1, 2)) == 3",
    ),
    "sends its own record of assertions": Attack(
        _PIPE + "send('names', {'add': {'o': 0}, '__record__': {'o': 0}})", tests="assert add(1, 2) == 3"
    ),
    "patches what packs its results": Attack(
        "import sys\nsys.modules['__main__'].pack = lambda *given: {'o': 0}" + _WRONG
    ),
    "looks for what is expected": Attack(
        "import gc, re, sys\ndef add(a, b):\n    held, frame = gc.get_objects(), sys._getframe()\n"
        "    while frame:\n        held += [frame.f_locals, frame.f_globals]\n        frame = frame.f_back\n"
        "    for one in gc.get_referents(*held):\n"
        "        if isinstance(one, str) and (found := re.search(rf'add.{a}, {b}. == (.)', one)):\n"
        "            return int(found[1])\n    return 0",
        why="AssertionError",
    ),
    # Objects in place of values.
    "converts to every number": Attack(
        "class Same:\n    __float__ = lambda self: 3.0\n    __int__ = __index__ = lambda self: 3\n"
        "def add(*given): return Same()",
        why="TypeError",
        tests="import math\nassert math.isclose(add(1, 2), 3)",
    ),
    "is true": Attack(
        "class Same:\n    def __bool__(self): return True\ndef add(*given): return Same()",
        why="TypeError",
        tests="assert add(1, 2)",
    ),
    "is in everything": Attack(
        "class Same:\n    def __eq__(self, other): return True\n    __hash__ = lambda self: hash(3)\n"
        "def add(*given): return Same()",
        why="AssertionError",
        tests="assert add(1, 2) in (3, 4)",
    ),
    "a list and a text that are equal to everything": Attack(
        "class List(list):\n    def __eq__(self, other): return True\n"
        "class Text(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
        "def add(a, b): return [List(), Text('x')][a]",
        why="AssertionError",
        tests="assert add(0, 0) == [3] or add(1, 0) == '3'",
    ),
    "almost equal": Attack(
        "class Same:\n    def __eq__(self, other): return True\n    __sub__ = __rsub__ = lambda *given: 0\n"
        "def add(*given): return Same()",
        why="TypeError",
        tests="import unittest\nunittest.TestCase().assertAlmostEqual(add(1, 2), 3)",
    ),
    # Ends, threads, signals, files.
    "os._exit in a thread": Attack(
        "import os, threading, time\nthreading.Timer(0.05, os._exit, [0]).start()\n"
        "def add(a, b):\n    time.sleep(5)\n    return 3",
        why="process ended",
    ),
    "os._exit in atexit": Attack(
        "import atexit, os, sys\natexit.register(os._exit, 0)\ndef add(a, b): sys.exit(0)", why="SystemExit"
    ),
    "forks itself": Attack("import os\nos.fork()" + _WRONG),
    "every signal to the tests": Attack(
        "import os\nfor number in range(1, 65):\n    try: os.kill(os.getppid(), number)\n"
        "    except OSError: pass" + _WRONG
    ),
    "limits the tests' processor time": Attack(
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))" + _WRONG
    ),
    "uses up its memory": Attack(
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
        "def add(a, b): return bytearray(2**30)",
        why="MemoryError",
    ),
    "a message that is too long": Attack(
        "def add(a, b): return 'x' * (20 << 20)", why="said something it should not"
    ),
    "a value that is too deep": Attack(
        "def add(a, b):\n    value = []\n    for _ in range(10**5): value = [value]\n    return value",
        why="RecursionError",
    ),
    "a name that is no text": Attack("open(b'\\xff', 'w')" + _WRONG, why="AssertionError"),
    "right, with a name that is no text": Attack("open(b'\\xff', 'w')" + _RIGHT, 1.0),
    "folders in folders": Attack(_FOLDERS + _WRONG, why="AssertionError"),
    "right, with folders in folders": Attack(_FOLDERS + _RIGHT, 1.0),
    "writes beside its folder": Attack("open('../beside', 'w')" + _WRONG, why="PermissionError"),
    "writes through a link": Attack(
        "import os\nos.symlink('..', 'up')\nopen('up/beside', 'w')" + _WRONG, why="PermissionError"
    ),
    # Reading the tests and the key.
    "reads the memory of the tests": Attack(
        "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)", why="PermissionError"
    ),
    "reads the program of the tests": Attack(
        "import os, re\nfor one in open(f'/proc/{os.getppid()}/cmdline').read().split(chr(0)):\n"
        "    if one.endswith('.py'): raise ValueError(re.search('judge.*', open(one).read())[0])",
        why="FileNotFoundError",
    ),
    "reads any memory": Attack(
        "import glob\nfor one in glob.glob('/proc/[0-9]*/mem'):\n    try:\n        open(one, 'rb').seek(1)\n"
        "        if one != '/proc/self/mem': raise KeyboardInterrupt(one)\n    except OSError: pass"
    ),
    "traces the tests": Attack(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.ptrace(16, os.getppid(), 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')",
        why="PermissionError",
    ),
    # Libraries that the tests will import.
    "replaces a library": Attack(
        "import statistics\nopen(statistics.__file__, 'a').close()" + _WRONG,
        why="PermissionError",
        tests="import statistics\nassert statistics.mean([add(1, 2)]) == 3",
    ),
    "adds a library": Attack(
        "import os\nopen(os.path.join(os.path.dirname(os.__file__), 'sitecustomize_.py'), 'w')",
        why="PermissionError",
    ),
    "leaves a module in its folder": Attack(
        "open('colorsys.py', 'w').write('def all_equal(*given): return True')" + _WRONG,
        why="AttributeError",
        tests="import colorsys\nassert colorsys.all_equal(add(1, 2), 3)",
    ),
    # Time, memory, processes, files, the network.
    "loops": Attack("def add(a, b):\n    while True: pass", why="longer than", hangs=True),
    "loops while it is loaded": Attack("while True: pass", why="longer than", hangs=True),
    "sleeps": Attack("import time\ntime.sleep(600)", why="longer than", hangs=True),
    "stops the clock": Attack(
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass",
        why="longer than",
        hangs=True,
    ),
    "yields for ever": Attack(
        "def add(a, b):\n    while True: yield 0",
        why="longer than",
        tests="assert 3 in list(add(1, 2))",
        hangs=True,
    ),
    "makes the tests compute": Attack(
        "def add(a, b): return 10**12",
        why="ended the tests",
        tests="assert sum(range(add(1, 2))) == 3",
        hangs=True,
    ),
    "a power for the tests": Attack(
        "def add(a, b): return 10**15", tests="assert 2 ** add(1, 2) == 8", hangs=True
    ),
    "a huge text": Attack("def add(a, b): return 'x' * 10**10", hangs=True),
    "a long text": Attack("def add(a, b): return 'x' * 10**8", hangs=True),
    "many names": Attack("for n in range(100_000): globals()[f'n{n}'] = n" + _WRONG),
    "recurses": Attack("def add(a, b): return add(a, b)", why="RecursionError"),
    "prints for ever": Attack("while True: print('x' * 10**6)", why="longer than", hangs=True),
    "leaves processes": Attack(_FORKS.format(result="0"), why="AssertionError"),
    "leaves a process that never ends": Attack(
        "import os, signal\nif not os.fork():\n    os.setsid()\n    for n in range(1, 65):\n        try: "
        "signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    while True: pass"
        + _WRONG,
        why="AssertionError",
    ),
    "leaves threads": Attack(
        "import threading, time\n[threading.Thread(target=time.sleep, args=[600]).start() for _ in range(50)]"
        + _WRONG,
        why="AssertionError",
    ),
    "kills the tests": Attack("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"),
    "stops the tests": Attack("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)"),
    "kills the tests' group": Attack(
        "import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.SIGKILL)"
    ),
    "closes its pipes": Attack("import os\nos.closerange(0, 100)", why="process ended"),
    "fills a file": Attack(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "open('big', 'w').write('x' * 2**22)",
        why="File too large",
    ),
    "writes elsewhere": Attack("open('/etc/passwd', 'a')" + _WRONG, why="PermissionError"),
    "makes a device of the memory": Attack(
        "import os, stat\nos.mknod('memory', stat.S_IFCHR | 0o600, os.makedev(1, 1))", why="PermissionError"
    ),
    "removes what it can": Attack(
        "import os, shutil\nshutil.rmtree(os.path.dirname(os.__file__) + '/wsgiref')" + _WRONG,
        why="PermissionError",
    ),
    "a socket by which to be told": Attack(
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nserver.settimeout(0.1)\nserver.accept()",
        why="TimeoutError",
    ),
}
