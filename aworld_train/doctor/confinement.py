"""Whether the kernel has Landlock, without which ``code_tests`` runs no answer."""

import ctypes
import os
from collections.abc import Iterator

from aworld_train.doctor.finding import Finding, fault, ok
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

_LANDLOCK_CREATE_RULESET = 444  # the same on all architectures
_VERSION = 1  # flag: return the version instead of making a set of rules


def check_confinement(machine: Machine, needs: Needs) -> Iterator[Finding]:
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if version > 0:
        yield ok("code tests", f"The kernel confines the code of answers (Landlock {version}).")
        return
    reason = os.strerror(ctypes.get_errno())
    yield fault(
        "code tests",
        _runs_code(needs),
        f"The kernel {os.uname().release} lacks Landlock ({reason}), so code_tests runs no answer on it.",
        "Take a kernel of 5.13 or newer with Landlock enabled (lsm=landlock,...), or score on another machine.",
    )


def _runs_code(needs: Needs) -> bool:
    if needs.recipe is None or needs.directory is None:
        return False
    from aworld_train.recipe.reward_checks import runs_code

    return runs_code(needs.recipe)
