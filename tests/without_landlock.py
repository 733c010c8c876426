"""A kernel without Landlock, for one program and all that it starts: ``python -m tests.without_landlock COMMAND...``.

A seccomp filter answers the three system calls of Landlock with ENOSYS, as kernels before 5.13 and gVisor do.
"""

import ctypes
import errno
import os
import struct
import sys

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl(2)
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # classic BPF: BPF_LD | BPF_W | BPF_ABS and so on
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LANDLOCK = (444, 445, 446)  # the same on all architectures


def remove_landlock() -> None:
    """Take Landlock from this process and its descendants."""
    instructions = [(_LOAD, 0, 0, 0)]  # the number of the system call
    for position, number in enumerate(_LANDLOCK):
        instructions.append((_JUMP_IF_EQUAL, len(_LANDLOCK) - position, 0, number))
    instructions += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was refused")


if __name__ == "__main__":
    remove_landlock()
    os.execv(sys.argv[1], sys.argv[1:])
