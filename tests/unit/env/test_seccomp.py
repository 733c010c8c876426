"""The list of system calls: what attacks need is not on it, and every container of an environment has it."""

import json

from aworld_train.env import containers, egress_image
from aworld_train.env.backend import Size
from aworld_train.env.seccomp import seccomp_option

REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd"),
    *("keyctl", "add_key", "request_key", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("open_by_handle_at", "fanotify_init", "modify_ldt", "kexec_load", "init_module", "reboot", "clone3"),
)


def test_what_only_attacks_need_is_refused_and_nothing_is_listed_twice() -> None:
    profile = json.loads(seccomp_option().removeprefix("seccomp="))
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    rules = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    allowed = [name for rule in rules for name in rule["names"] if "args" not in rule]
    assert len(set(allowed)) == len(allowed)
    assert not {*REFUSED, "socket", "socketcall", "clone", "personality", "prlimit64"} & set(allowed)
    families = {rule["args"][0]["value"] for rule in rules if rule["names"] == ["socket"]}
    assert families == {1, 2, 10, 16}  # of this machine, of IP, and of questions to the kernel


def test_every_container_of_an_environment_has_it() -> None:
    for options in (
        containers._container_limits(Size(1.0, 1 << 28), 2),
        egress_image.egress_container_options(),
    ):
        assert seccomp_option() in options["security_opt"]
