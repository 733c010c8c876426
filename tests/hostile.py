"""What a tool call can do to a worker, and sessions that look for anything of it: for environments with a shell."""

import asyncio
import random
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tools import ToolServer, ToolSession

# Takes the worker's place: removes its socket and everything near it, listens there itself, says that it is ready,
# answers every request (one that brings tests and an answer with a verdict made of what it brings), and ends or stops
# whatever it may. It leaves its session and its variables behind.
IMPOSTOR = r"""
import glob, hashlib, hmac, json, os, re, signal, socket, threading, time

STATE = b'{"ready": true, "slots": 1, "servers": ["odd"], "broken": {}}\n'

def body_of(connection):
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536) or exit()
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536) or exit()
    return head, body

def reply(body):
    text = "IMPOSTOR"
    for found in re.findall(r"judge\('([0-9a-f]+)', ('[0-9a-f]+')?", body.decode("utf-8", "replace")):
        key, word = found[0], found[1].strip("'")
        codes = {one: hmac.new(key.encode(), one.encode(), hashlib.sha256).hexdigest() for one in ("begun", "passed")}
        text = chr(10).join([*(f"{code} {one}" for one, code in codes.items()), key, f"{word} passed"])
    message = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}
    try:
        message["id"] = json.loads(body)["id"]
    except (ValueError, KeyError, TypeError):
        pass
    return json.dumps(message).encode()

def serve(connection):
    try:
        while True:
            head, body = body_of(connection)
            if b"/state" in head:
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    connection.sendall(b"%x\r\n%s\r\n" % (len(STATE), STATE))
                    time.sleep(0.2)
            answer = reply(body)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
            connection.sendall(head + answer)
    except OSError:
        pass

def listen(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1000)
    def accept():
        while True:
            threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()

def attempt(work, *arguments):
    try:
        work(*arguments)
    except OSError:
        pass

if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.environ.clear()
taken = set()
until = time.monotonic() + 30
while time.monotonic() < until:
    for folder in glob.glob("/run/aworld/*"):
        attempt(os.chmod, folder, 0o777)
        path = folder + "/worker.sock"
        if path not in taken:
            attempt(os.rename, path, folder + "/moved")
            attempt(os.unlink, path)
            try:
                listen(path)
                taken.add(path)
            except OSError:
                pass
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            for number in (signal.SIGSTOP, signal.SIGKILL):
                attempt(os.kill, int(entry), number)
    time.sleep(0.02)
"""
# Passes descriptors that nobody takes, until the kernel counts too many of this user's; how many it let through.
DESCRIPTORS_IN_FLIGHT = """
import os, socket
null, pairs, sent = os.open("/dev/null", os.O_RDONLY), [], 0
try:
    while sent < 100_000:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for _ in range(10):
            socket.send_fds(pairs[-1][0], [b"x"], [null] * 100)
            sent += 100
except OSError as error:
    print(error.strerror)
print(sent, flush=True)
"""
# All of the inotify instances that one user may have; how many that are.
INOTIFY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = 0
while made < 100_000 and libc.inotify_init() >= 0:
    made += 1
print(os.strerror(ctypes.get_errno()), made, flush=True)
"""
# Says that it is to be spared, in many processes, each smaller than the worker, until there is no memory left.
GREEDY = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        open("/proc/self/oom_score_adj", "w").write("0")
        kept = b"x" * (8 << 20)
        time.sleep(60)
"""
FILL = "for d in /workspace $HOME /tmp /dev/shm; do (while cat /dev/zero >> $d/big; do :; done &) ; done; sleep 2"
# Ends the process that has started the spawner, which has started the server, which has started this.
PARRICIDE = """
import os, signal
pid = os.getpid()
while b"serving" b".worker" not in open(f"/proc/{pid}/cmdline", "rb").read():
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
os.kill(pid, signal.SIGKILL)
"""
HOLD = "\nimport time; time.sleep(120)"
"""At the end of a program: what it has, it keeps for a while."""


def python(program: str) -> str:
    """The command that runs a program."""
    return f"python3 -c {shlex.quote(program)}"


def detached(command: str) -> str:
    """The command that leaves another one running in a session of its own."""
    return f"setsid -f {command} >/dev/null 2>&1"


HOSTILE = {
    "closes its folders": 'chmod 0500 /workspace /tmp "$HOME"; touch /workspace/x',
    "changes the rights of its folders": (
        'python3 -c \'import os; os.setxattr("/workspace", "user.note", b"MINE")\'; chmod 1777 /workspace'
    ),
    "forks without end": "bomb() { bomb | bomb & }; bomb; sleep 0.3",
    "floods descriptors": python(DESCRIPTORS_IN_FLIGHT),
    "detaches": detached("python3 -c 'import time; time.sleep(3600)  # MINE'"),
    "fills the disk": "cat /dev/zero > /workspace/big; cat /dev/zero > /tmp/big; true",
    "kills what it can": "kill -9 -1",
    "removes everything": "rm -rf / 2>/dev/null; echo MINE > /tmp/.MINE",
    "takes the worker's place": python(IMPOSTOR),
}
"""What a session does to its worker, as a shell command."""

# What is left of others: files, their marks in memory, processes, notes on folders, sockets beside the worker's.
LOOK = (
    'ls -A /workspace "$HOME" /tmp /dev/shm; cat /proc/[0-9]*/cmdline | tr "\\0" " "; ls -A /run/aworld/* 2>/dev/null;'
    ' python3 -c \'import os; print(os.listxattr("/workspace"))\'; stat -c %a /workspace /tmp "$HOME"'
)

Shell = Callable[[ToolSession, str], Awaitable[str]]
"""Runs a command in a session; what it printed."""


async def check_innocent(tools: ToolSession, shell: Shell, number: int) -> None:
    """A session works, and sees nothing of another."""
    listing = await shell(tools, LOOK)
    assert "MINE" not in listing and "big" not in listing and "IMPOSTOR" not in listing, listing
    assert listing.split()[-3:] == ["700", "700", "700"], listing
    factors = random.Random(number).sample(range(1000, 9999), 2)
    wrote = f"echo $(({factors[0]} * {factors[1]})) > /workspace/result && cat /workspace/result"
    assert (await shell(tools, wrote)).strip() == str(factors[0] * factors[1])


async def impostor_rounds(server: ToolServer, shell: Shell, rounds: int, seed: int, at_once: int) -> None:
    """Attack workers in so many sessions that end in different ways, and use another session after each.

    That one is reached if anything but its worker answers, or if anything of another session is seen in it.
    """
    turn = asyncio.Semaphore(at_once)

    async def attack(rng: random.Random) -> None:
        """A session that is attacked from inside and then ends: cut off, cancelled, or as sessions should."""
        end = rng.choice(["cut off", "cancelled", "plain"])
        command = f"{python(IMPOSTOR)}; sleep {rng.uniform(0, 0.2):.3f}"
        if end != "plain":
            command += "; sleep 60"
        attacked = replace(server, call_timeout=rng.uniform(0.2, 0.6)) if end == "cut off" else server
        with suppress(EnvironmentLost, TimeoutError):
            async with ToolSession(attacked) as tools:
                await shell(tools, "true")  # a worker is waited for
                async with asyncio.timeout(rng.uniform(0.2, 0.6) if end == "cancelled" else None):
                    await shell(tools, command)

    async def play(number: int) -> None:
        async with turn:
            await attack(random.Random(seed + number))
            async with ToolSession(server) as tools:
                await check_innocent(tools, shell, number)

    await asyncio.gather(*(play(number) for number in range(rounds)))
