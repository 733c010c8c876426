"""What runs in the tool environment for ``code_tests``: the tests in one process, the answer's code in another.

This file is sent there as source, so it uses the standard library alone. The process with the tests starts the one with
the answer and calls what it defines through a pipe, over which only plain values go: the answer cannot print a verdict,
exit with a code, or return an object that claims to be equal to everything, and get anything by it. The verdict is
printed with a code that only who has the key of this one score can compute: to have read another verdict on its way
helps nobody. The answer's process never gets to know the key.
"""

import ast
import builtins
import contextlib
import ctypes
import hashlib
import hmac
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import types
from typing import IO, Any, NoReturn

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # system calls, the same on all architectures
_NO_NEW_PRIVILEGES, _SET_SUBREAPER, _SET_DUMPABLE = 38, 36, 4  # of prctl(2)
_MAX_ROUNDS = 200
BEGUN = "begun"
"""What is printed before the answer's code runs."""
_LISTS = {"l": list, "t": tuple, "s": set, "z": frozenset}


class Unsupported(BaseException):
    """The tests ask for something that cannot be done across processes; not for them to catch."""


class TooLong(BaseException):
    """The time is up."""


def judge(key: str, tests: str, answer: str, seconds: float, source: str) -> None:
    """Print that it has begun, run the tests, print the verdict: passed, failed or unusable, and why."""
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program is not None and key in _text_of(program):
        os.unlink(program)  # noqa: PTH108  (it tells the key)
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # so does this process's memory
    # A process that the answer hides from its parent becomes this one's child.
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    # What is imported from now on must not come from where the answer can write.
    sys.path[:] = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))]
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    try:
        tree = ast.parse(tests, "tests")
        code = compile(tree, "tests", "exec")
    except (SyntaxError, ValueError) as error:
        print(signed(key, f"unusable: the tests are no Python: {error}"), flush=True, file=output)
        return
    print(signed(key, BEGUN), flush=True, file=output)
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    child = subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", source + "\nserve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        verdict = _run(code, _modules_used(tree), child, answer)
    except TooLong:
        verdict = f"failed: it took longer than {seconds:g} seconds"
    except Unsupported as error:
        verdict = f"unusable: {error}"
    except BaseException as error:
        verdict = f"failed: {_said(error)}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    if not _end_children():
        verdict = "failed: the answer's code started processes that cannot be ended"
    print(signed(key, verdict), flush=True, file=output)


def signed(key: str, text: str) -> str:
    """The text on one line, behind what proves that it was written by who has the key."""
    line = " ".join(text.split())[:500]
    return f"{_code(key, line)} {line}"


def read_signed(key: str, line: str) -> str | None:
    """The text of such a line; None where it was not made with the key."""
    code, _, text = line.partition(" ")
    return text if hmac.compare_digest(code.encode("utf-8", "replace"), _code(key, text).encode()) else None


def _code(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def serve() -> NoReturn:
    """Run the answer's code and do what the tests ask, until they end."""
    # The pipes are put where code that prints or reads does not get at them by accident.
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    _shut_in()
    objects: list[Any] = []
    module = types.ModuleType("solution")
    sys.modules["solution"] = module

    def pack_any(value: Any) -> Any:
        return pack(value, objects)

    try:
        (source,) = _read(reader)
        exec(compile(source, "solution.py", "exec"), module.__dict__)
        names = {name: pack_any(value) for name, value in vars(module).items() if not name.startswith("__")}
        _write(writer, ["names", names])
    except BaseException as error:
        _write(writer, ["raised", type(error).__name__, _said(error)])
    while True:
        request = _read(reader)
        try:
            _write(writer, _do(request, objects))
        except BaseException as error:
            _write(writer, ["raised", type(error).__name__, _said(error)])


def _do(request: list[Any], objects: list[Any]) -> list[Any]:
    """One operation on one of the answer's objects: its result, and the arguments as the operation left them."""
    action, handle, *packed = request
    target = objects[handle]
    given = [unpack(value, objects.__getitem__) for value in packed]
    if action == "call":
        result = target(*given[0], **given[1])
    else:
        operations: dict[str, Any] = {
            "getattr": getattr,
            "setattr": setattr,
            "len": len,
            "item": lambda one, key: one[key],
            "set_item": lambda one, key, value: one.__setitem__(key, value),
            "iter": iter,
            "next": next,
            "contains": lambda one, value: value in one,
            "str": str,
        }
        result = operations[action](target, *given)
    return ["result", pack(result, objects), [pack(value, objects) for value in given[:1]]]


def _modules_used(tree: ast.Module) -> set[str]:
    """Standard modules that the tests take something from, perhaps without having imported them."""
    used = (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {one.id for one in used if isinstance(one, ast.Name)} & sys.stdlib_module_names


def _run(code: types.CodeType, modules: set[str], child: "subprocess.Popen[bytes]", answer: str) -> str:
    """The verdict of the tests."""
    assert child.stdin is not None and child.stdout is not None
    pipe = _Pipe(child.stdout, child.stdin)
    _write(child.stdin, [answer])
    names = pipe.answer()[1]
    values = {name: unpack(value, pipe.mirror) for name, value in names.items()}
    # Nor must an answer that calls something of its own `math` be asked whether two numbers are close.
    values |= {name: importlib.import_module(name) for name in modules & values.keys()}
    solution = types.ModuleType("solution")
    solution.__dict__.update(values)
    sys.modules["solution"] = solution
    # An answer that defines its own `all` must not be asked whether all is well.
    shown = {name: value for name, value in values.items() if not hasattr(builtins, name)}
    exec(code, {"__name__": "tests", **shown, "solution": solution})
    return "passed"


def _end_children() -> bool:
    """Whether all that the answer's process has started is over; an orphan among them is this process's child."""
    for _ in range(_MAX_ROUNDS):
        for folder in os.listdir("/proc"):  # noqa: PTH208
            if folder.isdigit() and _parent_of(folder) == os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(int(folder), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.01)
    return False


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read()


def _parent_of(process: str) -> int:
    try:
        return int(_text_of(f"/proc/{process}/stat").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class _Pipe:
    """The answer's process, as the tests see it."""

    def __init__(self, reader: IO[bytes], writer: Any):
        self._reader, self._writer = reader, writer

    def answer(self) -> list[Any]:
        """What it says next; what it raised is raised here, as the built-in exception of that name."""
        try:
            said = _read(self._reader)
        except (EOFError, ValueError, OSError) as error:
            raise RuntimeError("the answer's process ended, or said something it should not") from error
        if said[0] == "raised":
            kind = getattr(builtins, str(said[1]), RuntimeError)
            is_plain = isinstance(kind, type) and issubclass(kind, Exception)
            raise (kind if is_plain else RuntimeError)(str(said[2]))
        return said

    def ask(self, action: str, handle: int, *given: Any) -> Any:
        _write(self._writer, [action, handle, *(pack(value, None) for value in given)])
        _, result, left = self.answer()
        if action == "call":
            for before, after in zip(given[0], unpack(left[0], self.mirror), strict=True):
                _take_over(before, after)
        return unpack(result, self.mirror)

    def mirror(self, handle: int) -> Any:
        return _Mirror(self, handle)


class _Mirror:
    """A function or an object of the answer's; it is equal to itself alone, whatever it says of that."""

    def __init__(self, pipe: _Pipe, handle: int):
        self.__dict__["_ask"] = lambda action, *given: pipe.ask(action, handle, *given)
        self.__dict__["_handle"] = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("setattr", name, value)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._ask("call", list(given), named)

    def __len__(self) -> int:
        return int(self._ask("len"))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("set_item", key, value)

    def __iter__(self) -> Any:
        return self._ask("iter")

    def __next__(self) -> Any:
        return self._ask("next")

    def __contains__(self, value: Any) -> bool:
        return self._ask("contains", value) is True

    def __str__(self) -> str:
        return str(self._ask("str"))

    def __bool__(self) -> bool:
        raise TypeError("an object is neither true nor false")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mirror) and other._handle == self._handle

    __hash__ = None  # type: ignore[assignment]


def pack(value: Any, objects: list[Any] | None) -> Any:
    """A value as JSON; what is not plain goes by its number among ``objects``, or nowhere if there are none.

    Raises:
        Unsupported: It is not plain, and there are no ``objects``.
    """
    if isinstance(value, _Mirror):
        return {"o": value._handle}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return {"i": hex(int(value))}
    if isinstance(value, float):
        return {"f": float.__repr__(value)}
    if isinstance(value, complex):
        return {"c": [float.__repr__(value.real), float.__repr__(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {"b": bytes(value).hex()}
    for mark, kind in _LISTS.items():
        if isinstance(value, kind):
            return {mark: [pack(item, objects) for item in value]}
    if isinstance(value, dict):
        return {"d": [[pack(key, objects), pack(item, objects)] for key, item in dict.items(value)]}
    if objects is None:
        raise Unsupported(
            f"the tests give the answer's code a {type(value).__name__}, which cannot be passed on"
        )
    objects.append(value)
    return {"o": len(objects) - 1}


def unpack(data: Any, object_of: Any) -> Any:
    """What `pack` packed; ``object_of`` gives the object of a number."""
    if not isinstance(data, dict):
        return data
    ((mark, held),) = data.items()
    match mark:
        case "i":
            return int(held, 16)
        case "f":
            return float(held)
        case "c":
            return complex(*map(float, held))
        case "b":
            return bytes.fromhex(held)
        case "d":
            return {unpack(key, object_of): unpack(item, object_of) for key, item in held}
        case "o":
            return object_of(held)
    return _LISTS[mark](unpack(item, object_of) for item in held)


def _take_over(before: Any, after: Any) -> None:
    """What a function did to a list, a set or a dict it was given."""
    if isinstance(before, list) and isinstance(after, list):
        before[:] = after
    elif isinstance(before, dict | set) and isinstance(after, type(before)):
        before.clear()
        before.update(after)


def _read(reader: IO[bytes]) -> list[Any]:
    line = reader.readline()
    if not line:
        raise EOFError
    message = json.loads(line)
    if not isinstance(message, list):
        raise ValueError("not a message")
    return message


def _write(writer: Any, message: list[Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    writer.flush()


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _too_long(number: int, frame: object) -> None:
    raise TooLong


def _shut_in() -> None:
    """Keep this process from reading the memory of others and, where the kernel can, from ending them.

    A process in a Landlock domain may trace none outside it: https://docs.kernel.org/userspace-api/landlock.html
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return
    signals = 2 if version >= 6 else 0
    devices = 1 << 6  # what may be made is of no interest, but one thing has to be named
    rules = (ctypes.c_uint64 * 3)(devices, 0, signals)
    size = 24 if version >= 6 else 8
    domain = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), size, 0)
    if domain >= 0:
        libc.syscall(_LANDLOCK_RESTRICT, domain, 0)
        os.close(domain)
