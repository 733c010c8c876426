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
