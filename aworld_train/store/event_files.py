"""Files of events: appended to by a thread of the process that plays, read by the process that loads them.

A file is a sequence of frames: length and CRC-32 as two little-endian uint32, then events as MessagePack, compressed. A
frame that is cut off, because its process was killed, ends the file. A file that has grown large is followed by
another, so that the loaded ones can be removed while the run continues.
"""

import asyncio
import atexit
import contextlib
import fcntl
import os
import platform
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aworld_train.store.compression import compressed, decompressed
from aworld_train.store.events import Event

SUFFIX = ".events"
MAX_FILE_BYTES = 64 << 20
FLUSH_SECONDS = 0.25  # how long events gather before they are written
_GATHER_SECONDS = 0.02  # the same from when a task waits for them
_RETRY_SECONDS = 1.0
_MAX_WAIT_SECONDS = 60.0
_MAX_FRAME_EVENTS = 64
_MAX_FRAME_BYTES = 1 << 30
_HEADER = struct.Struct("<II")
_ARRAY = struct.Struct(">BH")  # MessagePack's head of an array: 0xDC and the number of its elements
_encoder = msgspec.msgpack.Encoder()
_decoder: "msgspec.msgpack.Decoder[list[Event]]" = msgspec.msgpack.Decoder(list[Event])


class EventWriter:
    def __init__(self, folder: Path):
        self._folder = folder
        self._queue: deque[bytes] = deque()
        self._added = threading.Event()
        self._is_waited_for = threading.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._error: OSError | None = None
        self._closed = False
        self._name = f"{platform.node()}-{os.getpid()}-{time.time_ns():x}"
        self._number = 0
        self._descriptor: int | None = None
        self._size = 0
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(self, *events: Event) -> None:
        """Have events written soon; raises OSError if earlier ones cannot be written, for example to a full disk, and
        OverflowError for a number that 64 bits do not hold.
        """
        if self._closed:
            raise RuntimeError("an event after the end of its writer")
        if self._error is not None:
            raise self._error
        self._queue.extend([_encoder.encode(event) for event in events])
        self._added.set()

    async def written(self) -> None:
        """Wait until all events until now are written: a process that is killed then loses none of them."""
        if self._closed:
            raise RuntimeError("a wait after the end of its writer")
        loop = asyncio.get_running_loop()
        is_written: asyncio.Future[None] = loop.create_future()
        self._waiting.append(is_written)
        self._is_waited_for.set()
        self._added.set()
        try:
            await asyncio.wait_for(is_written, _MAX_WAIT_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"{self._folder}: what episodes leave was not written within {_MAX_WAIT_SECONDS:g} s"
            ) from None

    def close(self) -> None:
        """Write what is left and end the thread; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._is_waited_for.set()
        self._added.set()
        self._thread.join(timeout=30)
        atexit.unregister(self.close)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._added.wait()
            # Events that come within this time are written together: each write stops the thread of the episodes.
            if not self._closed and self._is_waited_for.wait(FLUSH_SECONDS) and not self._closed:
                time.sleep(_GATHER_SECONDS)
            self._added.clear()
            self._is_waited_for.clear()
            is_last = self._closed
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                self._write_all()
                self._error = None
            except OSError as error:
                self._error = error
                self._added.set()
            for is_written in waiting:
                _tell(is_written, self._error)
            if self._error is not None and not is_last:
                time.sleep(_RETRY_SECONDS)
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _write_all(self) -> None:
        """Write what is in the queue; what cannot be written stays in it."""
        while self._queue:
            batch = [self._queue[i] for i in range(min(len(self._queue), _MAX_FRAME_EVENTS))]
            self._write(_frame(batch))
            for _ in batch:
                self._queue.popleft()

    def _write(self, frame: bytes) -> None:
        if self._descriptor is None or self._size > MAX_FILE_BYTES:
            self._next_file()
        assert self._descriptor is not None
        try:
            rest = memoryview(frame)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # A full disk takes a part of a frame; the frame is written again as a whole.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(frame)

    def _next_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._name}.{self._number + 1:06d}{SUFFIX}"
        descriptor = os.open(
            self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        # Held until this process ends, however it ends: see `is_locked`.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._size, self._number = descriptor, 0, self._number + 1


def read_events(file: Path, offset: int, limit: int) -> Iterator[tuple[list[Event], int]]:
    """The events of the whole frames after an offset, with the offset after each frame.

    A file that is gone has none: another process has loaded it.
    """
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return
    with stream:
        stream.seek(offset)
        end = offset + limit
        while offset < end:
            header = stream.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            length, checksum = _HEADER.unpack(header)
            if length > _MAX_FRAME_BYTES:
                return
            payload = stream.read(length)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            offset += _HEADER.size + length
            yield _decoder.decode(decompressed(payload)), offset


def event_files(folder: Path) -> list[Path]:
    """The files in a folder, those of one process in the order in which they were written."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def has_successor(file: Path, files: Sequence[Path]) -> bool:
    """Whether the process that wrote a file has gone on to another one, and so never writes into it again."""
    writer, number = _writer_and_number(file)
    return any(
        _writer_and_number(other) > (writer, number) for other in files if other.name.startswith(f"{writer}.")
    )


def _writer_and_number(file: Path) -> tuple[str, int]:
    writer, _, number = file.name.removesuffix(SUFFIX).rpartition(".")
    return writer, int(number)


def _frame(events: Sequence[bytes]) -> bytes:
    payload = compressed(_ARRAY.pack(0xDC, len(events)) + b"".join(events))
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def _tell(is_written: "asyncio.Future[None]", error: OSError | None) -> None:

    def tell() -> None:
        if is_written.done():
            return
        if error is None:
            is_written.set_result(None)
        else:
            is_written.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        is_written.get_loop().call_soon_threadsafe(tell)
