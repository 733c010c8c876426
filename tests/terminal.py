"""A program on a real pseudo-terminal, and what a person would see there."""

import copy
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

_ALTERNATE_SCREEN = 1049
_SHOWN_CURSOR = 25 << 5  # as pyte has private modes


class _Screen(pyte.Screen):
    """Pyte's screen, with the alternate one that full-screen programs draw on."""

    def __init__(self, columns: int, lines: int):
        self._normal: tuple[Any, Any] | None = None
        super().__init__(columns, lines)

    @property
    def is_alternate(self) -> bool:
        return self._normal is not None

    def set_mode(self, *modes: int, **options: Any) -> None:
        if options.get("private") and _ALTERNATE_SCREEN in modes and self._normal is None:
            self._normal = copy.deepcopy((self.buffer, self.cursor))
            self.erase_in_display(2)
        super().set_mode(*modes, **options)

    def reset_mode(self, *modes: int, **options: Any) -> None:
        if options.get("private") and _ALTERNATE_SCREEN in modes and self._normal is not None:
            (self.buffer, self.cursor), self._normal = self._normal, None
            self.dirty.update(range(self.lines))
        super().reset_mode(*modes, **options)


class Terminal:
    """A terminal in which a program runs; it ends with the block.

    Args:
        command: The program and its arguments.
        columns: Its width.
        lines: Its height.
        environment: The program's variables.
        cwd: Its working directory.

    Attributes:
        process: The program.
        output: Every byte that it has sent.
    """

    def __init__(
        self,
        command: Sequence[str],
        columns: int = 80,
        lines: int = 24,
        *,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
    ):
        self._leader, follower = pty.openpty()
        self._is_gone = False
        self.output = b""
        self._screen = _Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._set_size(columns, lines)
        variables = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
        self.process = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**variables, "TERM": "xterm-256color", **(environment or {})},
            cwd=cwd,
        )
        os.close(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(timeout=120)
        self.hang_up()

    def hang_up(self) -> None:
        """Take the terminal away, as a person does who closes the window."""
        if not self._is_gone:
            os.close(self._leader)
            self._is_gone = True

    @property
    def lines(self) -> list[str]:
        """What is to be seen, without the white space at the ends of lines."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """What is to be seen as one text."""
        return "\n".join(self.lines).rstrip()

    @property
    def is_full_screen(self) -> bool:
        """Whether the program draws on the alternate screen."""
        return self._screen.is_alternate

    @property
    def has_cursor(self) -> bool:
        """Whether the cursor is to be seen."""
        return _SHOWN_CURSOR in self._screen.mode

    @property
    def colours(self) -> set[str]:
        """The colours of the characters that are to be seen."""
        return {
            cell.fg for line in self._screen.buffer.values() for cell in line.values() if cell.data.strip()
        }

    def wait(self, condition: Callable[[Self], bool], seconds: float = 120) -> str:
        """Read until the condition holds; what is to be seen then."""
        deadline = time.monotonic() + seconds
        # A frame may come in several parts.
        while self._read(0.02) or not condition(self):
            assert time.monotonic() < deadline, (
                f"not within {seconds} s:\n{self.text}\n{self.output[-2000:]!r}"
            )
        return self.text

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """Read until the text is to be seen."""
        return self.wait(lambda terminal: text in terminal.text, seconds)

    def end(self, seconds: float = 120) -> int:
        """Read until the program has ended; its exit code."""
        self.wait(lambda terminal: terminal.process.poll() is not None, seconds)
        return self.process.returncode

    def type(self, keys: str) -> None:
        """Press keys; ``\\x1a`` is Ctrl-Z."""
        os.write(self._leader, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as a person does who pulls at the window."""
        self._set_size(columns, lines)
        self._screen.resize(lines, columns)
        os.killpg(os.tcgetpgrp(self._leader), signal.SIGWINCH)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._leader], [], [], seconds)
        if not ready:
            return b""
        try:
            data = os.read(self._leader, 1 << 16)
        except OSError:  # the program has closed its side
            return b""
        self.output += data
        self._stream.feed(data)
        return data
