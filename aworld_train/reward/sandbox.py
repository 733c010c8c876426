"""What runs in the tool environment for ``code_tests``: the tests in one process, the answer's code in another.

This file is sent there as source, so it uses only the standard library. The tests call what the answer defines through
a pipe that carries only plain values, so the answer gains nothing by printing a verdict, by its exit code, or by an
object that claims to be equal to everything. It cannot end a test's loop by raising StopIteration, its names replace
none of Python's, and the assertions that must run are recorded. The verdict is signed with a key that is used for one
score and that the answer's process never gets: Landlock confines that process, so that it can read no other process and
write nowhere but in a folder of its own. It gets the answer only after it has reported that it is confined.
"""

import ast
import builtins
import contextlib
import ctypes
import faulthandler
import hashlib
import hmac
import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
from typing import IO, Any, NoReturn

# System calls, the same on all architectures.
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14  # rights on files and folders
_REMOVE_AND_MAKE = 0x1FF0  # anything, devices included
_MAKE_DEVICES = 1 << 6 | 1 << 11
_SOCKETS_AND_SIGNALS = 3  # scopes: abstract Unix sockets, and signals to processes outside
# By machine: its number in audit.h, calls whose first argument is a process that gets a signal, fcntl and ioctl.
_SIGNALLING = {
    "x86_64": (0xC000003E, (62, 129, 200, 234, 297), 72, 16),
    "aarch64": (0xC00000B7, (129, 130, 131, 138, 240), 25, 29),
}
_PIDFD_SEND_SIGNAL = 424
# Commands of fcntl and ioctl by which a process gets signals from a file.
_SET_OWNER = ((8, 15), (0x8901, 0x8902))
# Of prctl(2).
_NO_NEW_PRIVILEGES, _SET_SUBREAPER, _SET_DUMPABLE, _SET_DEATH_SIGNAL, _SET_SECCOMP = 38, 36, 4, 1, 22
_MAX_END_SECONDS = 3.0
_GRACE_SECONDS = 1.0
_MAX_MESSAGE = 16 << 20  # bytes of one from the answer's process
BEGUN = "begun"
UNCONFINED = "the answer's code cannot be confined"
"""How the reason begins where the kernel lacks what confines it."""
_LISTS = {"l": list, "t": tuple, "s": set, "z": frozenset}


class Unsupported(BaseException):
    """The tests need something that cannot be done across processes. A BaseException, so that tests do not catch it."""


class TimeIsUp(BaseException):
    """The time limit is over."""


def judge(key: str, tests: str, answer: str, seconds: float, source: str) -> None:
    """Print ``BEGUN``, run the tests, and print the verdict: passed, failed or unusable, and the reason."""
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program is not None and key in _text_of(program):
        os.unlink(program)  # noqa: PTH108  (it holds the key)
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # nor may the answer read the key in this process's memory
    # A process that the answer detaches from its parent becomes a child of this one, and is killed at the end.
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    # Apart from the session's files, which the tool that runs this program goes through afterwards.
    folder = os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="answer-")
    os.chdir(folder)
    # Later imports must not come from directories that the answer can write to.
    sys.path[:] = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))]
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    try:
        assertions = _Assertions(ast.parse(tests, "tests"))
        code = compile(assertions.tree, "tests", "exec", optimize=0)  # with assertions, whatever runs this
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        print(signed(key, f"unusable: the tests are not valid Python: {error}"), flush=True, file=output)
        return
    child, fault = _start_answer_process(source)
    if fault:
        print(signed(key, f"unusable: {UNCONFINED}: {fault}"), flush=True, file=output)
        return
    print(signed(key, BEGUN), flush=True, file=output)
    signal.signal(signal.SIGALRM, _raise_time_is_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # Compiled code that runs for long, such as sum(range(10**12)), lets no signal handler run; this ends it.
    faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True)
    try:
        _run(code, assertions, child, answer)
        verdict = f"failed: {fault}" if (fault := assertions.fault()) else "passed"
    except TimeIsUp:
        verdict = f"failed: it took longer than {seconds:g} seconds"
    except Unsupported as error:
        verdict = f"unusable: {error}"
    except BaseException as error:
        verdict = f"failed: {_describe(error)}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()
    if not _end_children():
        verdict = "failed: the answer's code started processes that cannot be ended"
    print(signed(key, verdict), flush=True, file=output)


def signed(key: str, text: str) -> str:
    """The text on one line, after a code that only the holder of the key can compute."""
    line = " ".join(text.split())[:500]
    return f"{_code(key, line)} {line}"


def read_signed(key: str, line: str) -> str | None:
    """The text of a signed line; None where it was not signed with the key."""
    code, _, text = line.partition(" ")
    return text if hmac.compare_digest(code.encode("utf-8", "replace"), _code(key, text).encode()) else None


def _code(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def serve() -> NoReturn:
    """Report whether this process is confined; if so, run the answer's code and serve the tests until they end."""
    # The pipes get other descriptors, so that code which prints or reads does not use them by accident.
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    fault = _confine_process()
    _write(writer, ["confined", fault])
    if fault is not None:
        sys.exit(1)
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
        _write(writer, ["raised", type(error).__name__, _describe(error)])
    while True:
        request = _read(reader)
        try:
            _write(writer, _do(request, objects))
        except BaseException as error:
            _write(writer, ["raised", type(error).__name__, _describe(error)])


def _do(request: list[Any], objects: list[Any]) -> list[Any]:
    action, handle, *packed = request
    target = objects[handle]
    arguments = [unpack(value, objects.__getitem__) for value in packed]
    if action == "call":
        result = target(*arguments[0], **arguments[1])
    else:
        operations: dict[str, Any] = {
            "getattr": getattr,
            "setattr": setattr,
            "len": len,
            "item": lambda target, key: target[key],
            "set_item": lambda target, key, value: target.__setitem__(key, value),
            "iter": iter,
            "next": next,
            "contains": lambda target, value: value in target,
            "str": str,
        }
        result = operations[action](target, *arguments)
    return ["result", pack(result, objects), [pack(value, objects) for value in arguments[:1]]]


def _start_answer_process(source: str) -> tuple["subprocess.Popen[bytes]", str | None]:
    child = subprocess.Popen(
        [sys.executable, "-I", "-B", "-c", source + "\nserve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout is not None
    _, fault = _read(child.stdout)
    return child, fault


class _Assertions:
    """The tests, changed so that each assertion is recorded when it has held."""

    RECORD = "__record__"

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.held = {0}  # the module
        self._numbers: set[int] = set()
        # An assertion, and the function that must run it when it is called.
        self._required: dict[int, int] = {}
        self._last = 0
        tree.body = self._recorded(tree.body, 0)
        ast.fix_missing_locations(tree)

    def fault(self) -> str | None:
        if self._numbers and not self._numbers & self.held:
            return "none of the tests' assertions ran"
        skipped = any(
            number not in self.held and owner in self.held for number, owner in self._required.items()
        )
        return "an assertion that every run must reach did not run" if skipped else None

    def _recorded(self, body: list[Any], function: int | None) -> list[Any]:
        """The statements with their records; ``function`` runs all of them, None where it may leave some out."""
        recorded = []
        for statement in body:
            recorded.append(statement)
            match statement:
                case ast.Assert():
                    recorded.append(self._record())
                    self._numbers.add(self._last)
                    if function is not None:
                        self._required[self._last] = function
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    entered = self._record()
                    statement.body = [entered, *self._recorded(statement.body, self._last)]
                case ast.ClassDef():
                    statement.body = self._recorded(statement.body, function)
                case ast.For() | ast.AsyncFor():
                    # A loop over results that never runs has compared none of them.
                    statement.body = self._recorded(statement.body, function)
                    statement.orelse = self._recorded(statement.orelse, None)
                case _:
                    for block in (
                        statement,
                        *getattr(statement, "handlers", ()),
                        *getattr(statement, "cases", ()),
                    ):
                        self._record_blocks(block)
            if _may_leave(statement):
                function = None
        return recorded

    def _record_blocks(self, node: Any) -> None:
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                setattr(node, name, self._recorded(block, None))

    def _record(self) -> ast.Expr:
        self._last += 1
        name = ast.Name(self.RECORD, ast.Load())
        return ast.Expr(ast.Call(name, [ast.Constant(self._last)], []))


def _may_leave(statement: ast.stmt) -> bool:
    """Whether what follows a statement may not run although nothing was raised."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    is_loop = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
    leaving = ast.Return | ast.Yield | ast.YieldFrom
    if not is_loop:
        leaving |= ast.Break | ast.Continue
    return any(isinstance(node, leaving) for node in ast.walk(statement))


def _modules_used(tree: ast.Module) -> set[str]:
    used = (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {value.id for value in used if isinstance(value, ast.Name)} & sys.stdlib_module_names


def _run(
    code: types.CodeType, assertions: _Assertions, child: "subprocess.Popen[bytes]", answer: str
) -> None:
    assert child.stdin is not None and child.stdout is not None
    pipe = _Pipe(child.stdout, child.stdin)
    _write(child.stdin, [answer])
    names = pipe.receive()[1]
    # Among names with underscores is `__builtins__`, which would decide what the tests' own functions are.
    values = {name: unpack(value, pipe.mirror) for name, value in names.items() if not name.startswith("__")}
    # An answer that defines its own `math` must not decide whether two numbers are close.
    modules = _modules_used(assertions.tree) & values.keys()
    values |= {name: importlib.import_module(name) for name in modules}
    solution = types.ModuleType("solution")
    # The tests have its names already; `import *` would put them over Python's and over those that the tests made.
    solution.__dict__.update(values, __all__=[])
    sys.modules["solution"] = solution
    # An answer that defines its own `all` must not decide whether all tests hold.
    visible = {name: value for name, value in values.items() if not hasattr(builtins, name)}
    record = {_Assertions.RECORD: assertions.held.add}
    exec(code, {"__name__": "tests", **visible, **record, "solution": solution})


def _end_children() -> bool:
    deadline = time.monotonic() + _MAX_END_SECONDS
    while time.monotonic() < deadline:
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
    def __init__(self, reader: IO[bytes], writer: Any):
        self._reader, self._writer = reader, writer

    def receive(self, action: str = "") -> list[Any]:
        """Its next message; an exception it reports is raised as the built-in exception of that name.

        Only iterators raise StopIteration: from a function it would end a ``map`` or ``zip`` of the tests.
        """
        try:
            message = _read(self._reader, _MAX_MESSAGE)
        except (EOFError, ValueError, OSError) as error:
            raise RuntimeError("the answer's process ended, or said something it should not") from error
        if message[0] == "raised":
            kind = getattr(builtins, str(message[1]), RuntimeError)
            is_plain = isinstance(kind, type) and issubclass(kind, Exception)
            if is_plain and action != "next" and issubclass(kind, StopIteration | StopAsyncIteration):
                raise RuntimeError(f"the answer's code raised {message[2]}")
            raise (kind if is_plain else RuntimeError)(str(message[2]))
        return message

    def request(self, action: str, handle: int, *arguments: Any) -> Any:
        _write(self._writer, [action, handle, *(pack(value, None) for value in arguments)])
        _, result, changed = self.receive(action)
        if action == "call":
            for before, after in zip(arguments[0], unpack(changed[0], self.mirror), strict=True):
                _update_in_place(before, after)
        return unpack(result, self.mirror)

    def mirror(self, handle: int) -> Any:
        return _Mirror(self, handle)


class _Mirror:
    """A function or an object of the answer's code; it is equal only to itself, whatever its ``__eq__`` returns."""

    def __init__(self, pipe: _Pipe, handle: int):
        self.__dict__["_request"] = lambda action, *arguments: pipe.request(action, handle, *arguments)
        self.__dict__["_handle"] = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._request("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._request("setattr", name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._request("call", list(args), kwargs)

    def __len__(self) -> int:
        return int(self._request("len"))

    def __getitem__(self, key: Any) -> Any:
        return self._request("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._request("set_item", key, value)

    def __iter__(self) -> Any:
        return self._request("iter")

    def __next__(self) -> Any:
        return self._request("next")

    def __contains__(self, value: Any) -> bool:
        return self._request("contains", value) is True

    def __str__(self) -> str:
        return str(self._request("str"))

    def __bool__(self) -> bool:
        raise TypeError("an object is neither true nor false")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mirror) and other._handle == self._handle

    __hash__ = None  # type: ignore[assignment]


def pack(value: Any, objects: list[Any] | None) -> Any:
    """A value as JSON; one that is not plain is appended to ``objects`` and represented by its index."""
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
    if not isinstance(data, dict):
        return data
    ((mark, content),) = data.items()
    match mark:
        case "i":
            return int(content, 16)
        case "f":
            return float(content)
        case "c":
            return complex(*map(float, content))
        case "b":
            return bytes.fromhex(content)
        case "d":
            return {unpack(key, object_of): unpack(item, object_of) for key, item in content}
        case "o":
            return object_of(content)
    return _LISTS[mark](unpack(item, object_of) for item in content)


def _update_in_place(before: Any, after: Any) -> None:
    if isinstance(before, list) and isinstance(after, list):
        before[:] = after
    elif isinstance(before, dict | set) and isinstance(after, type(before)):
        before.clear()
        before.update(after)


def _read(reader: IO[bytes], max_bytes: int = -1) -> list[Any]:
    line = reader.readline(max_bytes)
    if not line:
        raise EOFError
    message = json.loads(line)
    if not isinstance(message, list):
        raise ValueError("not a message")
    return message


def _write(writer: Any, message: list[Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    writer.flush()


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _raise_time_is_up(number: int, frame: object) -> None:
    raise TimeIsUp


def _confine_process() -> str | None:
    """Let this process write only below its own folders, read no other process, and signal none; or why the kernel
    refused.

    A process in a Landlock domain may trace none outside it: https://docs.kernel.org/userspace-api/landlock.html
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return _without_landlock("landlock_create_ruleset")
    rights = (
        _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    )
    rules = (ctypes.c_uint64 * 3)(rights, 0, _SOCKETS_AND_SIGNALS if version >= 6 else 0)
    domain = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), 24 if version >= 6 else 8, 0)
    if domain < 0:
        return _without_landlock("landlock_create_ruleset")
    own_rights = rights & ~_MAKE_DEVICES
    allowed = {os.devnull: _WRITE_FILE, **dict.fromkeys(_own_folders(), own_rights)}
    for path, rights_there in allowed.items():
        descriptor = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights_there, descriptor)
        if libc.syscall(_LANDLOCK_ADD_RULE, domain, 1, rule, 0) < 0:
            return _without_landlock("landlock_add_rule")
        os.close(descriptor)
    if libc.syscall(_LANDLOCK_RESTRICT, domain, 0) < 0:
        return _without_landlock("landlock_restrict_self")
    os.close(domain)
    return None if version >= 6 else _refuse_signals(libc)


def _refuse_signals(libc: ctypes.CDLL) -> str | None:
    """Refuse signals to other processes by seccomp, those that this one starts included; None, or why it failed."""
    machine = _SIGNALLING.get(os.uname().machine)
    if machine is None:
        return None
    architecture, by_process, fcntl, ioctl = machine
    load, equal, above, end = 0x20, 0x15, 0x35, 0x06  # classic BPF, on seccomp_data of seccomp(2)
    allow, deny = (end, 0, 0, 0x7FFF0000), (end, 0, 0, 0x00050001)  # EPERM
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), deny, (load, 0, 0, 0)]
    code += [(above, 0, 1, 1 << 30), deny]  # x32, which numbers calls differently
    code += [(equal, 0, 1, _PIDFD_SEND_SIGNAL), deny]
    for number in by_process:
        code += [(equal, 0, 4, number), (load, 0, 0, 16), (equal, 0, 1, os.getpid()), allow, deny]
    for number, commands in zip((fcntl, ioctl), _SET_OWNER, strict=True):
        refused = [step for command in commands for step in ((equal, 0, 1, command), deny)]
        code += [(equal, 0, len(refused) + 2, number), (load, 0, 0, 24), *refused, allow]
    buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in [*code, allow]))
    program = struct.pack("HxxxxxxP", len(code) + 1, ctypes.addressof(buffer))
    if libc.prctl(_SET_SECCOMP, 2, program, 0, 0):
        return f"the kernel refuses a seccomp filter: {os.strerror(ctypes.get_errno())}"
    return None


def _own_folders() -> list[str]:
    """The folder of this answer, and that of semaphores unless something else of the session or Python is there."""
    folder, semaphores = os.getcwd(), "/dev/shm"  # noqa: PTH109
    others = [os.path.realpath(path) for path in (folder, sys.prefix, sys.base_prefix, os.__file__)]
    is_free = os.path.isdir(semaphores) and not any(path.startswith(semaphores) for path in others)  # noqa: PTH112
    return [folder, semaphores] if is_free else [folder]


def _without_landlock(call: str) -> str:
    cause = os.strerror(ctypes.get_errno())
    return f"the kernel of this worker, {os.uname().sysname} {os.uname().release}, lacks Landlock ({call}: {cause})"
